"""What values mean: names and colours of bottleneck classes, verdicts and other states."""

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

from gpu_triage.diagnosis.findings.verdicts import CLASS_COLOURS
from gpu_triage.gpu.fabric import GPU_FABRIC_HEALTH, GPU_FABRIC_STATE
from gpu_triage.gpu.recovery import GPU_RECOVERY_ACTION
from gpu_triage.subjects.judgement import GPU_BOTTLENECK, GPU_HOST_VERDICT, GPU_VERDICT

Words = Sequence[tuple[int | str, str, str]]
"""Values, or words of a label, each with the text and the colour that it is shown with."""

BOTTLENECK: Final = tuple((value, name, CLASS_COLOURS[name]) for value, name in GPU_BOTTLENECK.states.items())
CLASS: Final = tuple((name, name, colour) for _, name, colour in BOTTLENECK)
"""The classes where they are a label, not a value."""

_VERDICT_COLOURS: Final[Mapping[str, str]] = {"keep": "green", "watch": "orange", "drain": "dark-red"}
VERDICT: Final = tuple((value, name, _VERDICT_COLOURS[name]) for value, name in GPU_VERDICT.states.items())
HOST_VERDICT: Final = tuple((value, name, _VERDICT_COLOURS[name]) for value, name in GPU_HOST_VERDICT.states.items())
NOT_READ: Final = "not read"
"""What a cell says whose GPU or host has no verdict."""

UP: Final = ((1, "up", "green"), (0, "down", "dark-red"))
REACHED: Final = ((1, "up", "green"), (0, "lost", "dark-red"))
"""Of a GPU: one that is lost or stalled is not just down."""
YES: Final = ((1, "yes", "green"), (0, "no", "red"))
ON: Final = ((1, "on", "text"), (0, "off", "text"))
NO_FAULT: Final = ((0, "no", "green"), (1, "yes", "dark-red"))
SUSPECT: Final = ((0, "no", "green"), (1, "yes", "orange"))
ALLOWED: Final = ((1, "yes", "green"), (0, "refused", "red"), (2, "unknown", "#808080"))
STEP: Final = ((-1, "N/A", "#808080"), (0, "OK", "green"))
SEVERITY: Final = (
    (1, "critical", "dark-red"),
    (2, "warning", "orange"),
    (3, "info", "blue"),
    (4, "none", "#808080"),
)
_RECOVERY_COLOURS: Final[Mapping[str, str]] = {
    "nothing": "green",
    "drain peer-to-peer work": "orange",
    "drain and reset": "orange",
}
RECOVERY: Final = tuple(
    (value, name, _RECOVERY_COLOURS.get(name, "dark-red")) for value, name in GPU_RECOVERY_ACTION.states.items()
)
_FABRIC_COLOURS: Final[Mapping[str, str]] = {
    "not started": "red",
    "in progress": "orange",
    "completed": "green",
    "healthy": "green",
    "unhealthy": "red",
    "limited capacity": "orange",
}
FABRIC_STATE: Final = tuple((value, name, _FABRIC_COLOURS[name]) for value, name in GPU_FABRIC_STATE.states.items())
FABRIC_HEALTH: Final = tuple((value, name, _FABRIC_COLOURS[name]) for value, name in GPU_FABRIC_HEALTH.states.items())


def mapping(words: Words, *, absent: str | None = None) -> list[ValueMapping]:
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
