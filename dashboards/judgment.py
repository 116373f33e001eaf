"""Panels with the judge's results: findings with their start times, and the time lost to each bottleneck class."""

from __future__ import annotations

from typing import Final

from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import LOST, TARGET, bottleneck, by_gpu, by_host, gpu, host, lost_seconds, rate, when
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import GPU, HOST, NARROW_HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, CLASS, FINDING, HOST_VERDICT, NOT_READ, SEVERITY, VERDICT, by_severity
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)

MOST_LOST: Final = 40
"""The most rows in a table of lost time."""

VERDICT_COLUMN: Final = Column("Verdict", expr=by_gpu(gpu(GPU_VERDICT.name)), texts=VERDICT, absent=NOT_READ, width=80)
HOST_VERDICT_COLUMN: Final = Column(
    "Verdict", expr=by_host(host(GPU_HOST_VERDICT.name)), texts=HOST_VERDICT, absent=NOT_READ, width=80
)
BOTTLENECK_COLUMN: Final = Column("Bottleneck", expr=by_gpu(bottleneck()), texts=BOTTLENECK)


def findings(size: Size) -> PanelBuilder:
    """Present findings on the selected GPUs and their hosts, with start times."""
    by = f"{TARGET}, gpu, code, action"
    severity = by_severity(lambda matcher: f"group by ({by}) ({_present(matcher)})")
    return table_of(
        "Findings",
        "What the exporter finds wrong now, the most severe and then the oldest first. Rows without a GPU are about "
        "the host. What began first is often the cause of the rest. A finding is pending until it has lasted for its "
        "wait; its alert fires while it is confirmed.",
        Column("Severity", expr=severity, texts=SEVERITY[:3], width=96),
        Column("Finding", label="code", link=("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=186),
        NARROW_HOST,
        GPU,
        Column("Action", label="action", width=128),
        Column("State", expr=f"max by ({by}) ({_STATES})", texts=FINDING, width=96),
        Column("Since", expr=when(f"min by ({by}) ({_present()})"), unit="dateTimeFromNow", min_width=112),
        sort=("Severity", "Since"),
        size=size,
        empty="No data: no finding. Step 0 tells whether the exporter responds",
    )


_STATES = f"{gpu(GPU_FINDING.name)} > 0 or {host(GPU_HOST_FINDING.name)} > 0"


def _present(matchers: str = "") -> str:
    of_gpus, of_host = GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name, GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS.name
    return f"{gpu(of_gpus, matchers)} or {host(of_host, matchers)}"


def time_lost(size: Size) -> PanelBuilder:
    return table_of(
        "Time lost, by GPU and class",
        "How long each GPU was limited by something other than its own work in the time shown. The sum is what the "
        "incident has cost so far.",
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
        empty="No data: no time lost. Step 0 tells whether the exporter responds",
    )


def gpus_lost(size: Size) -> PanelBuilder:
    return lines(
        "GPUs lost, by bottleneck",
        "How many GPUs' worth of time each class takes at each moment, from the seconds counter, so that a gap between "
        "scrapes hides nothing. Many GPUs changing at once point at something they share.",
        Query(f"sum by (class) ({rate(gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST))})", "{{class}}"),
        unit="none",
        size=size,
        stacked=True,
        names={str(name): (text, color) for name, text, color in CLASS},
    )
