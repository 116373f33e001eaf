"""Colors of the dashboards: those of the status page, as light or as dark as text on them needs.

Grafana writes on cells and tiles in near-black above a brightness of 180 of 255, else in near-white. Each color has a
contrast of 4.5 or more with its text, and faults differ from ``compute`` for color-blind people.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings import verdicts

CLASS_COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sick": "#be1b25",
        "thermal": "#b84d00",
        "power_brake": "#f9b258",
        "pcie_link": "#c0208f",
        "power_cap": "#f6be3c",
        "clock_cap": "#664400",
        "hung": "#5a3ec2",
        "memory": "#1f4fa3",
        "storage": "#356fca",
        "cpu": "#0274a2",
        "network": "#0e6981",
        "numa": "#72f3ef",
        "communication": "#665ceb",
        "compute": "#7cde9b",
        "unattributed": "#c4aeea",
        "idle": "#bab8c1",
    }
)
_CLASSES: Final = {color: name for name, color in verdicts.CLASS_COLORS.items()}
TONE_COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {tone: CLASS_COLORS[_CLASSES[color]] for tone, color in verdicts.TONE_COLORS.items()}
)

GOOD: Final = TONE_COLORS["well"]
WATCH: Final = TONE_COLORS["held"]
"""For warnings, and for limits drawn in a panel."""
BETWEEN: Final = CLASS_COLORS["power_cap"]
"""Between GOOD and WATCH."""
BAD: Final = TONE_COLORS["sick"]
INFO: Final = TONE_COLORS["starved"]
GRAY: Final = TONE_COLORS["idle"]
"""For unknown values, or no verdict."""
PLAIN: Final = "transparent"
"""For neutral states: Grafana writes on it in the theme's own color."""
