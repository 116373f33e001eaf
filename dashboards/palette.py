"""Colours of the dashboards: those of the status page, whose home is ``gpu_triage.diagnosis.findings.verdicts``."""

from __future__ import annotations

from typing import Final

from gpu_triage.diagnosis.findings.verdicts import CLASS_COLOURS, TONE_COLOURS

GOOD: Final = TONE_COLOURS["well"]
WATCH: Final = TONE_COLOURS["held"]
"""Of what deserves a look: warnings, and limits drawn into a picture."""
BETWEEN: Final = CLASS_COLOURS["power_cap"]
"""Between good and what deserves a look."""
BAD: Final = TONE_COLOURS["sick"]
INFO: Final = TONE_COLOURS["starved"]
GREY: Final = TONE_COLOURS["idle"]
"""Of what is not known, or no verdict."""
