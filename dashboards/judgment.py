"""Panels with the judge's results: findings with their start times, and the time lost to each bottleneck class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import LOST, TARGET, gpu, host, lost_seconds, only, rate, when
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import GPU, HOST, NARROW_HOST, Column, table_of
from dashboards.value_mappings import CLASS, FINDING, SEVERITY, by_severity
from gpu_triage.judge.findings.check import Unit
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_FINDING_VALUE,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING_VALUE,
)
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_EXPECTED_WIDTH

MOST_LOST: Final = 40
"""The most rows in a table of lost time."""


def findings(size: Size) -> PanelBuilder:
    """Present findings on the selected GPUs and their hosts, with what was measured and start times."""
    by = f"{TARGET}, gpu, code, action"
    severity = by_severity(lambda matcher: f"group by ({by}) ({_present(matcher)})")
    shown = f"bottomk({MOST_FINDINGS}, {severity})"

    def of_shown(expr: str, on: str = by) -> str:
        return only(expr, on, shown)

    return table_of(
        "Findings",
        "What the exporter finds wrong now, the most severe and then the oldest first. Rows without a GPU are about "
        "the host. What began first is often the cause of the rest. A finding is pending until it has lasted for its "
        f"wait; its alert fires while it is confirmed. With more than {MOST_FINDINGS}: the most severe. No data: no "
        "finding. Step 0 tells whether the exporter responds.",
        Column("Severity", expr=shown, texts=SEVERITY[:3], width=90),
        Column("Finding", label="code", link=("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=160),
        NARROW_HOST,
        GPU,
        Column("Measured", label=MEASURED, width=104),
        Column("Value", expr=of_shown(measured(), MEASURED_BY), hidden=True),
        Column("Since", expr=of_shown(when(f"min by ({by}) ({_present()})")), unit="dateTimeFromNow", width=116),
        Column("State", expr=of_shown(f"max by ({by}) ({_STATES})"), texts=FINDING, width=82),
        Column("Action", label="action", min_width=100),
        sort=("Severity", "Since"),
        size=size,
    )


MOST_FINDINGS: Final = 300
_STATES = f"{gpu(GPU_FINDING.name)} > 0 or {host(GPU_HOST_FINDING.name)} > 0"


def _present(matchers: str = "") -> str:
    of_gpus, of_host = GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name, GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS.name
    return f"{gpu(of_gpus, matchers)} or {host(of_host, matchers)}"


def time_lost(size: Size) -> PanelBuilder:
    return table_of(
        "Time lost, by GPU and class",
        "How long each GPU was limited by something other than its own work in the time shown. The sum is what the "
        "incident has cost so far. No data: no time lost. Step 0 tells whether the exporter responds.",
        HOST,
        GPU,
        Column("Lost to", label="class", texts=CLASS, width=130),
        Column(
            "Time",
            expr=f"topk({MOST_LOST}, sum by ({TARGET}, gpu, class) ({lost_seconds()}) > 0)",
            unit="s",
            decimals=0,
        ),
        sort="-Time",
        size=size,
    )


def gpus_lost(size: Size) -> PanelBuilder:
    return lines(
        "GPUs lost, by bottleneck",
        "How many GPUs' worth of time each class takes at each moment, from the seconds counter, so that a gap between "
        "scrapes hides nothing. Many GPUs changing at once point at something they share. No data: no time lost.",
        Query(f"sum by (class) ({rate(gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST))})", "{{class}}"),
        unit="none",
        size=size,
        stacked=True,
        names={str(name): (text, color) for name, text, color in CLASS},
    )


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
