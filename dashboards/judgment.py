"""Panels with the judge's results: findings with their start times, and the time lost to each bottleneck class."""

from dashboards.measured import MEASURED, MEASURED_BY, measured
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import LOST, MOST_ROWS, TARGET, gpu, host, lost_seconds, only, rate, when
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import GPU, GPU_OR_HOST, HOST, NARROW_HOST, Column, table_of
from dashboards.value_mappings import CLASS, FINDING, SEVERITY, by_severity
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
)


def findings(size: Size) -> PanelBuilder:
    """Present findings on the selected GPUs and their hosts, with what was measured and start times."""
    by = f"{TARGET}, gpu, code, action"
    severity = by_severity(lambda matcher: f"group by ({by}) ({_present(matcher)})")
    shown = f"bottomk({MOST_ROWS}, {severity})"

    def of_shown(expr: str, on: str = by) -> str:
        return only(expr, on, shown)

    return table_of(
        "Findings",
        "What the exporter finds wrong now, the most severe and then the oldest first. Rows without a GPU are about "
        "the host. What began first is often the cause of the rest. A finding is pending until it has lasted for its "
        f"wait; its alert fires while it is confirmed. With more than {MOST_ROWS}: the most severe. No data: no "
        "finding. Step 0 tells whether the exporter responds.",
        Column("Severity", expr=shown, texts=SEVERITY[:3], width=90),
        Column("Finding", label="code", link=("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=154),
        NARROW_HOST,
        GPU_OR_HOST,
        Column("Measured", label=MEASURED, width=104),
        Column("Value", expr=of_shown(measured(), MEASURED_BY), hidden=True),
        Column("Since", expr=of_shown(when(f"min by ({by}) ({_present()})")), unit="dateTimeFromNow", width=116),
        Column("State", expr=of_shown(f"max by ({by}) ({_STATES})"), texts=FINDING, width=82),
        Column("Action", label="action", min_width=130),
        sort=("Severity", "Since"),
        size=size,
    )


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
            expr=f"topk({MOST_ROWS}, sum by ({TARGET}, gpu, class) ({lost_seconds()}) > 0)",
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
