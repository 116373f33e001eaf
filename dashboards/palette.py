"""Colors of the dashboards: those of the status page, defined in ``gpu_triage.judge.findings.verdicts``."""

from typing import Final

from gpu_triage.judge.findings.verdicts import CLASS_COLORS, TONE_COLORS

GOOD: Final = TONE_COLORS["well"]
WATCH: Final = TONE_COLORS["held"]
"""For warnings, and for limits drawn in a panel."""
BETWEEN: Final = CLASS_COLORS["power_cap"]
"""Between GOOD and WATCH."""
BAD: Final = TONE_COLORS["sick"]
INFO: Final = TONE_COLORS["starved"]
GRAY: Final = TONE_COLORS["idle"]
"""For unknown values, or no verdict."""
