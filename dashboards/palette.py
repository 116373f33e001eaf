"""Colors of the dashboards: those of the status page, defined in ``gpu_triage.judge.findings.verdicts``."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.verdicts import CLASS_COLOURS, TONE_COLOURS

GOOD: Final = TONE_COLOURS["well"]
WATCH: Final = TONE_COLOURS["held"]
"""For warnings, and for limits drawn in a panel."""
BETWEEN: Final = CLASS_COLOURS["power_cap"]
"""Between GOOD and WATCH."""
BAD: Final = TONE_COLOURS["sick"]
INFO: Final = TONE_COLOURS["starved"]
GREY: Final = TONE_COLOURS["idle"]
"""For unknown values, or no verdict."""
