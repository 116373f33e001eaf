"""Names and colors of values: bottleneck classes, verdicts and other states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from grafana_foundation_sdk.models.dashboard import (
    DashboardRegexMapOptions,
    DashboardSpecialValueMapOptions,
    RegexMap,
    SpecialValueMap,
    SpecialValueMatch,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

from dashboards.palette import BAD, BETWEEN, CLASS_COLORS, GOOD, GRAY, INFO, PLAIN, TONE_COLORS, WATCH
from dashboards.selectors import DOWN, GONE, RELEASED, UNREAD
from gpu_triage.judge.findings.verdicts import COLORS
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK,
    GPU_COMPUTE_BOUND,
    GPU_FINDING,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)
from gpu_triage.read.gpu.fabric import GPU_FABRIC_CONFIGURATION, GPU_FABRIC_HEALTH, GPU_FABRIC_STATE
from gpu_triage.read.gpu.modes import GPU_RECOVERY_ACTION, GPU_VGPU_LICENSE_STATE, GPU_VIRTUALIZATION_MODE
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_PHYSICAL_STATE
from gpu_triage.read.metrics.metric import MetricSpec

Texts = Sequence[tuple[float | str, str, str]]
"""Values of a metric or label, each with the text and color to show."""


def _states(spec: MetricSpec, color_of: Callable[[str], str]) -> tuple[tuple[int, str, str], ...]:
    """The values of a metric that is a state, with their names."""
    return tuple((value, name, color_of(name)) for value, name in spec.states.items())


BOTTLENECK: Final = _states(GPU_BOTTLENECK, CLASS_COLORS.__getitem__)
CLASS: Final = tuple((name, name, color) for _, name, color in BOTTLENECK)
"""The classes as label values instead of metric values."""

_BOUND_COLORS: Final = {"neither": WATCH, "compute": GOOD, "memory": INFO, "both": BETWEEN}
BOUND: Final = _states(GPU_COMPUTE_BOUND, _BOUND_COLORS.__getitem__)
_VERDICT_COLORS: Final = {verdict.value: TONE_COLORS[color.tone] for verdict, color in COLORS.items()}
NOT_READ: Final = "not read"
"""Cell text for a GPU or host without a verdict."""
_WITHOUT_VERDICT: Final = ((UNREAD, NOT_READ, GRAY), (RELEASED, "released", WATCH))
GPU_STATE: Final = (*_states(GPU_VERDICT, _VERDICT_COLORS.__getitem__), *_WITHOUT_VERDICT)
HOST_STATE: Final = (
    *_states(GPU_HOST_VERDICT, _VERDICT_COLORS.__getitem__),
    *((DOWN, "down", BAD), (GONE, "gone", WATCH), *_WITHOUT_VERDICT),
)
SILENT: Final = ((0, "up", GOOD), (1, "gone", WATCH), (2, "down", BAD))

UP: Final = ((1, "up", GOOD), (0, "down", BAD))
REACHED: Final = ((1, "up", GOOD), (0, "lost", BAD))
"""For GPUs: a lost or stalled one isn't just down."""
ALERT_FIRES: Final = 4
FIRES: Final = "alert fires"
_STATES: Final = {**GPU_FINDING.states, ALERT_FIRES: FIRES}
FINDING: Final = tuple((value, name, PLAIN) for value, name in _STATES.items())
"""Without colors: how bad a finding is, is its severity, confirmed or not."""
ON: Final = ((1, "on", PLAIN), (0, "off", PLAIN))
YES: Final = ((1, "yes", PLAIN), (0, "no", PLAIN))
VIRTUALIZATION: Final = _states(GPU_VIRTUALIZATION_MODE, lambda _name: PLAIN)
NO_FAULT: Final = ((0, "no", GOOD), (1, "yes", BAD))
WATCH_IF_YES: Final = ((0, "no", GOOD), (1, "yes", WATCH))
ALLOWED: Final = ((1, "yes", GOOD), (0, "refused", BAD), (2, "unknown", GRAY))
_RANKS: Final = {"-": GRAY, "n": GRAY, "0": GOOD, "1": WATCH, "2": BAD, "3": INFO}
STEP: Final = tuple((rf"{rank}\|(.*)", "$1", color) for rank, color in _RANKS.items())
"""A step's verdict, by what is before the bar."""
SEVERITY: Final = ((1, "critical", BAD), (2, "warning", WATCH), (3, "info", INFO), (4, "none", GRAY))


def by_severity(query: Callable[[str], str]) -> str:
    """The rank of each series in SEVERITY, as a query; `query` gets a matcher of one severity."""
    return "\nor\n".join(f"{rank} * {query(_SEVERITY_IS.format(name))}" for rank, name, _ in SEVERITY[:3])


_SEVERITY_IS: Final = 'severity="{}"'
_RECOVERY_COLORS: Final[Mapping[str, str]] = {
    "nothing": GOOD,
    "drain peer-to-peer work": WATCH,
    "drain and reset": WATCH,
}
RECOVERY: Final = _states(GPU_RECOVERY_ACTION, lambda name: _RECOVERY_COLORS.get(name, BAD))
_FABRIC_COLORS: Final[Mapping[str, str]] = {
    "not started": BAD,
    "in progress": WATCH,
    "completed": GOOD,
    "healthy": GOOD,
    "unhealthy": BAD,
    "limited capacity": WATCH,
}
FABRIC_STATE: Final = _states(GPU_FABRIC_STATE, _FABRIC_COLORS.__getitem__)
FABRIC_HEALTH: Final = _states(GPU_FABRIC_HEALTH, _FABRIC_COLORS.__getitem__)
VGPU_LICENSE: Final = _states(GPU_VGPU_LICENSE_STATE, lambda name: GOOD if name == "licensed" else BAD)
FABRIC_CONFIGURATION: Final = _states(GPU_FABRIC_CONFIGURATION, lambda name: GOOD if name == "nothing" else WATCH)
PORT_STATE: Final = _states(GPU_HOST_INFINIBAND_PHYSICAL_STATE, lambda name: GOOD if name == "link up" else WATCH)


def patterns(texts: Texts) -> list[ValueMapping]:
    """Value mappings of words by regular expression; a text may refer to a group of it as ``$1``."""
    return [
        RegexMap(
            options=DashboardRegexMapOptions(
                pattern=str(pattern), result=ValueMappingResult(text=text, color=color, index=index)
            )
        )
        for index, (pattern, text, color) in enumerate(texts)
    ]


def mapping(texts: Texts, *, absent: str | None = None) -> list[ValueMapping]:
    """Value mappings; `absent` is the cell text for a missing value."""
    options = {
        str(value): ValueMappingResult(text=text, color=color, index=index)
        for index, (value, text, color) in enumerate(texts)
    }
    found: list[ValueMapping] = [ValueMap(options=options)] if options else []
    if absent is not None:
        result = ValueMappingResult(text=absent, color=GRAY, index=len(options))
        special = DashboardSpecialValueMapOptions(match=SpecialValueMatch.NULL, result=result)
        found.append(SpecialValueMap(options=special))
    return found
