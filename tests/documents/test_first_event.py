"""The queries that documents and panels show find what happened, judged by promtool.

Those over a window find an event that happened once. What is played is what the exporter publishes: most counters are
there at 0 before the event, and some begin with it. The dashboards' scenarios show most of the other queries an event.
"""

import math
import re
from pathlib import Path
from typing import Final

from tests.conftest import RequiresTool
from tests.dashboards.grafana import all_targets, substitute
from tests.documents.test_promql import fenced, in_prose, of_each
from tests.gathered import every
from tests.promql.expressions import Use, uses
from tests.promql.promtool import Run, ask, selector
from tests.promql.vocabulary import kinds, words

from gpu_triage.read.metrics.metric import Kind, MetricSpec
from gpu_triage.read.registry import METRICS
from gpu_triage.read.xid.codes import XID_CODES

WINDOWED: Final = re.compile(r"\b(?:increase|changes|delta)\(")
MINUTES, HAPPENED, ASKED = 50, 41, 44
"""What is played, when the event happens, and when the queries are asked."""
SPECS: Final = {spec.name: spec for spec in METRICS}
WITH_THEIR_EVENT: Final = {
    *("gpu_xid_errors_total", "gpu_nvswitch_sxid_errors_total", "gpu_exporter_errors_total"),
    "gpu_pcie_aer_errors_total",  # where the firmware handles these errors
}
"""Counters that are absent until there is one, in every profile."""

UNPLAYED: Final = re.compile(
    "gpu_fleet_incident|GpuFleet|gpu_hang|gpu_job_waited_for|gpu_chassis_fault|gpu_job_steps:ratio"
    "|gpu-host-1|nccl|mig_uuid|vgpu_license|reload_success|sram_threshold|clock_target|applications_clocks|cpu_thermal"
    '|class="hung"|collector="judge"|^absent|^count\\(abs|numa_memory_free|inflight|stale_seconds|degraded_info'
    "|persistence_mode ==|fabric_health ==|network_(errors|drops)|numa_miss|nfs_retrans|segments_retrans|dimm_errors"
    "|^scrape_duration|^prometheus_|process_start_time|^up|^delta"
)
"""Queries whose event is in none of the dashboards' scenarios."""


def is_born(spec: MetricSpec) -> bool:
    """Whether a counter is absent while it is 0."""
    labels = ["x"] * len(spec.labels)
    shown = spec.default_samples
    hidden = shown is not None and not shown(spec.sample(0, *labels)) and shown(spec.sample(1, *labels))
    return hidden or spec.name in WITH_THEIR_EVENT


def played(use: Use) -> tuple[str, list[float]]:
    """What a selector selects: a series of one host, with an event."""
    spec = SPECS.get(use.metric)
    labels = {"instance": "a", "job": "gpu-triage", **dict.fromkeys(spec.labels if spec else (), "79")}
    for label, operator, value in use.matchers:
        pattern = re.compile(value if "~" in operator else re.escape(value))
        candidates = (labels.get(label, ""), *sorted(words(use.metric, label) or ()), value)
        labels[label] = next(each for each in candidates if bool(pattern.fullmatch(each)) is ("!" not in operator))
    from_zero = labels.get("xid", "").isdecimal() and XID_CODES[int(labels["xid"])].common
    before = math.nan if spec and is_born(spec) and not from_zero else 0.0
    if kinds().get(use.metric) is not Kind.COUNTER and "changes" in use.inside:
        return selector(use.metric, labels.items()), [float(minute // 3 % 2) for minute in range(MINUTES)]
    return selector(use.metric, labels.items()), [before] * HAPPENED + [1.0] * (MINUTES - HAPPENED)


def test_a_query_over_a_window_finds_what_happened_once(requires_tool: RequiresTool, tmp_path: Path) -> None:
    documented = {query for queries in (fenced, in_prose) for _, query in of_each(queries)}
    shown = {substitute(target.expr, 3600.0) for target in all_targets()}
    queries = every(sorted(filter(WINDOWED.search, documented | shown)))
    series = dict(played(use) for query in queries for use in uses(query))
    questions = tuple((query, ASKED * 60.0) for query in queries)
    answers = ask(requires_tool("promtool"), Run((), (), 60, series, questions), tmp_path)
    found = {query: [each.value for each in answers.samples[query, ASKED * 60.0]] for query in queries}
    missed = [query for query, values in found.items() if not any(value > 0 for value in values)]
    assert missed == [], "\n".join(missed)


def is_played(query: str) -> bool:
    return not UNPLAYED.search(query)
