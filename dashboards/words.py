"""What values mean: names and colours of bottleneck classes and of other states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    SpecialValueMap,
    SpecialValueMatch,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

CLASSES: Final[Mapping[str, str]] = {
    "sick": "dark-red",
    "thermal": "red",
    "power_brake": "light-red",
    "pcie_link": "dark-orange",
    "power_cap": "orange",
    "clock_cap": "light-orange",
    "hung": "dark-purple",
    "memory": "dark-yellow",
    "storage": "yellow",
    "cpu": "light-yellow",
    "network": "purple",
    "numa": "light-purple",
    "communication": "dark-blue",
    "compute": "green",
    "unattributed": "light-blue",
    "idle": "#808080",
}
"""Colour of each bottleneck class, in the order of its rank, 1 for the first."""

BOTTLENECK: Final = tuple((rank, name, colour) for rank, (name, colour) in enumerate(CLASSES.items(), 1))

UP: Final = ((1, "answers", "green"), (0, "lost", "dark-red"))
YES: Final = ((1, "yes", "green"), (0, "no", "red"))
ON: Final = ((1, "on", "text"), (0, "off", "text"))
NO_FAULT: Final = ((0, "no", "green"), (1, "yes", "dark-red"))
SUSPECT: Final = ((0, "no", "green"), (1, "yes", "orange"))
ALLOWED: Final = ((1, "yes", "green"), (0, "refused", "red"), (2, "unknown", "#808080"))
VERDICT: Final = ((-1, "N/A", "#808080"), (0, "OK", "green"))
SEVERITY: Final = (
    (1, "critical", "dark-red"),
    (2, "warning", "orange"),
    (3, "info", "blue"),
    (4, "none", "#808080"),
)
RECOVERY: Final = (
    (0, "none", "green"),
    (1, "reset the GPU", "dark-red"),
    (2, "reboot", "dark-red"),
    (3, "drain peer access", "orange"),
    (4, "drain and reset", "orange"),
)
FABRIC_STATE: Final = ((1, "not started", "red"), (2, "in progress", "orange"), (3, "completed", "green"))
FABRIC_HEALTH: Final = ((1, "healthy", "green"), (2, "unhealthy", "red"), (3, "limited", "orange"))


def mapping(words: Sequence[tuple[int, str, str]], *, absent: str | None = None) -> list[ValueMapping]:
    """Texts and colours of values; `absent` is what a cell says that has no value."""
    texts = {
        str(value): ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, text, colour) in enumerate(words)
    }
    found: list[ValueMapping] = [ValueMap(options=texts)] if texts else []
    if absent is not None:
        result = ValueMappingResult(text=absent, color="#808080", index=len(words))
        options = DashboardSpecialValueMapOptions(match=SpecialValueMatch.NULL, result=result)
        found.append(SpecialValueMap(options=options))
    return found
