"""What was measured of a finding, as words: the unit is that of its code, so the number alone would say nothing."""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dashboards.selectors import TARGET, gpu, host
from gpu_triage.judge.findings.table import CHECKS, Unit
from gpu_triage.read.exporter.judgment import GPU_FINDING, GPU_FINDING_VALUE, GPU_HOST_FINDING, GPU_HOST_FINDING_VALUE
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH

MEASURED: Final = "measured"
"""Label with the words."""
MEASURED_BY: Final = f"{TARGET}, gpu, code"

_FORMS: Final[Mapping[Unit, str]] = MappingProxyType(
    {
        Unit.RATIO: "$1 %",
        Unit.SECONDS: "$1 s",
        Unit.CELSIUS: "$1 °C",
        Unit.WATTS: "$1 W",
        Unit.HERTZ: "$1 MHz",
        Unit.LANES: "x$1",
        Unit.GENERATION: "gen $1",
        Unit.BYTES: "$1 GiB",
        Unit.BYTES_PER_SECOND: "$1 MiB/s",
    }
)
_SCALES: Final[Mapping[Unit, float]] = MappingProxyType({Unit.RATIO: 0.01})
"""Where a table shows another scale than text does."""
_EXPECTED: Final = MappingProxyType(
    {
        Unit.LANES: (GPU_PCIE_LINK_EXPECTED_WIDTH.name, " of x"),
        Unit.GENERATION: (GPU_PCIE_LINK_EXPECTED_GENERATION.name, " of "),
    }
)
"""What such a value should be, and the words before it."""


def measured() -> str:
    """The findings, with what was measured as a label; without the label if it has no number."""
    codes: dict[Unit, list[str]] = defaultdict(list)
    for check in CHECKS:
        if check.measure is not None:
            codes[check.measure.unit].append(check.code)
    del codes[Unit.COUNT]  # the many that remain
    patterns = {unit: "|".join(each) for unit, each in codes.items()}
    scaled = {unit: pattern for unit, pattern in patterns.items() if _scale(unit) != 1}
    plain = {unit: pattern for unit, pattern in patterns.items() if _scale(unit) == 1}
    parts = [_beside_expected(unit, patterns[unit]) for unit in _EXPECTED if unit in patterns]
    parts += [_written({unit: pattern}, f'code=~"{pattern}"', _scale(unit)) for unit, pattern in scaled.items()]
    parts.append(_written(plain, f'code!~"{"|".join(scaled.values())}"', 1))
    parts.append(f"group by ({MEASURED_BY}) ({gpu(GPU_FINDING.name)} > 0 or {host(GPU_HOST_FINDING.name)} > 0)")
    return f"\nor on ({MEASURED_BY})\n".join(parts)


def _scale(unit: Unit) -> float:
    return _SCALES.get(unit, unit.scale)


def _written(patterns: Mapping[Unit, str], codes: str, scale: float, below: str = "", into: str = MEASURED) -> str:
    """The values of these codes as words; those of no pattern are counts."""
    written = f'label_replace({_number(codes, scale, below)}, "{into}", "$1", "number", "(.*)")'
    for unit, pattern in patterns.items():
        written = f'label_join({written}, "coded", " ", "number", "code")'
        written = f'label_replace({written}, "{into}", "{_FORMS[unit]}", "coded", "([^ ]+) (?:{pattern})")'
    return f"max by ({MEASURED_BY}, {into}) ({written})"


def _beside_expected(unit: Unit, pattern: str) -> str:
    """Values that are below what they should be, with both."""
    metric, between = _EXPECTED[unit]
    below = f" < on ({TARGET}, gpu) group_left () max by ({TARGET}, gpu) ({gpu(metric)})"
    # A label of its own: VictoriaMetrics garbles one that is joined from itself.
    written = _written({unit: pattern}, f'code=~"{pattern}"', 1, below, into="actual")
    expected = f'count_values by ({TARGET}, gpu) ("expected", {gpu(metric)})'
    beside = f"{written}\n* on ({TARGET}, gpu) group_left (expected) {expected}"
    both = f'label_join({beside}, "{MEASURED}", "{between}", "actual", "expected")'
    return f"max by ({MEASURED_BY}, {MEASURED}) ({both})"


def _number(codes: str, scale: float, below: str) -> str:
    value = f"({gpu(GPU_FINDING_VALUE.name, codes)} or {host(GPU_HOST_FINDING_VALUE.name, codes)})"
    return f'count_values by ({MEASURED_BY}) ("number", round({value}{below}{f" / {scale!r}" if scale != 1 else ""}))'
