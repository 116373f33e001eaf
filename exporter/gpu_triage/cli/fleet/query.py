"""Instant queries for the present state of a fleet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.cli.fleet.client import PrometheusClient, Series
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.exporter.health import GPU_EXPORTER_BUILD_INFO, GPU_EXPORTER_SIMULATED, GPU_EXPORTER_TIME_SECONDS
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO

_ON_HOST: Final = "on (cluster, job, instance)"
_REMEMBERED: Final = "1d"  # how long an unreachable exporter is remembered from its earlier samples
LAST_SCRAPED_MINUTES: Final = 15
"""A host to drain or watch that is no longer scraped is shown in its last state for this long."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which hosts to query: RE2 regular expressions, each matching a whole label value; None for all."""

    cluster: str | None = None
    job: str | None = None
    instance: str | None = None

    def __str__(self) -> str:
        """The PromQL selector; "" for all hosts."""
        parts = ("cluster", self.cluster), ("job", self.job), ("instance", self.instance)
        found = ",".join(f"{name}=~{json.dumps(each, ensure_ascii=False)}" for name, each in parts if each is not None)
        return f"{{{found}}}" if found else ""

    def only(self, cluster: str, instances: Iterable[str] | None = None) -> Selection:
        """The same in exactly this cluster, and on these instances if given."""
        hosts = self.instance if instances is None else any_of(instances)
        return replace(self, cluster=re.escape(cluster), instance=hosts)

    def with_matcher(self, matcher: str) -> str:
        """The selector with an additional matcher."""
        return f"{{{','.join(filter(None, (str(self)[1:-1], matcher)))}}}"


def any_of(values: Iterable[str]) -> str:
    """A regular expression for exactly these values, with what all begin and end with only once.

    VictoriaMetrics rejects queries of more than 16 KiB, and the hosts of a large job are named several times in one.
    """
    values = sorted(values)
    before = _common_start(values)
    rest = [value[len(before) :] for value in values]
    after = _common_start([value[::-1] for value in rest])[::-1]
    middle = "|".join(re.escape(value[: len(value) - len(after)]) for value in rest)
    return f"{re.escape(before)}(?:{middle}){re.escape(after)}" if len(values) > 1 else re.escape(before)


def _common_start(values: Iterable[str]) -> str:
    values = list(values)
    first, last = min(values), max(values)
    pairs = enumerate(zip(first, last, strict=False))
    return next((first[:place] for place, (one, other) in pairs if one != other), first)


@dataclass(frozen=True, slots=True)
class QueryResults:
    """The results of all queries at one point in time.

    Attributes:
        at: evaluation time in Unix seconds.
        down: targets with failing scrapes.
        exporters: targets with successful scrapes.
        findings, host_findings: start time of each present finding.
        states, host_states: states of findings, from gpu_finding; older exporters have none.
        gpus: identity of the GPUs on hosts with a verdict other than keep; `allocated` and `processes` likewise.
        incidents: by board, over the last 30 days.
    """

    at: float
    down: list[Series]
    exporters: list[Series]
    simulated: list[Series]
    host_verdicts: list[Series]
    verdicts: list[Series]
    bottlenecks: list[Series]
    findings: list[Series]
    host_findings: list[Series]
    states: list[Series]
    host_states: list[Series]
    gpus: list[Series]
    allocated: list[Series]
    processes: list[Series]
    incidents: list[Series]


def queries(selection: Selection) -> Mapping[str, str]:
    """The query for each field of `QueryResults`."""
    where = str(selection)
    verdict = f"{GPU_HOST_VERDICT.name}{where}"
    unscraped = f"(last_over_time({verdict}[{LAST_SCRAPED_MINUTES}m]) > 0 unless {_ON_HOST} {verdict})"

    def last(spec: MetricSpec) -> str:
        """The last samples of hosts with a verdict other than keep that are currently not scraped."""
        return f"last_over_time({spec.name}{where}[{LAST_SCRAPED_MINUTES}m]) and {_ON_HOST} {unscraped}"

    def now_or_last(spec: MetricSpec) -> str:
        return f"{spec.name}{where} or {last(spec)}"

    def to_look_at(spec: MetricSpec) -> str:
        return f"{spec.name}{where} and {_ON_HOST} {verdict} > 0 or {last(spec)}"

    build = f"{GPU_EXPORTER_BUILD_INFO.name}{where}"
    ours = selection.with_matcher('job=~".*gpu-triage.*"')
    month, week = (
        GPU_INCIDENTS_RECENT.name + selection.with_matcher(f'by="board",days="{days}",kind!="reset"')
        for days in (30, 7)
    )
    repeated = LIMITS["gpu.repeat_offender"]
    return {
        "down": f"(up{ours} or up{where} and {_ON_HOST} last_over_time({build}[{_REMEMBERED}])) == 0",
        "exporters": f"group by (cluster, job, instance) ({build})",
        "simulated": f"{GPU_EXPORTER_SIMULATED.name}{where} == 1",
        "host_verdicts": f"{verdict} or {unscraped}",
        "verdicts": now_or_last(GPU_VERDICT),
        "bottlenecks": now_or_last(GPU_BOTTLENECK),
        **{
            name: f"{_by_the_servers_clock(spec, where)} or {last(spec)}"
            for name, spec in (
                ("findings", GPU_FINDING_SINCE_TIMESTAMP_SECONDS),
                ("host_findings", GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS),
            )
        },
        "states": now_or_last(GPU_FINDING),
        "host_states": now_or_last(GPU_HOST_FINDING),
        "gpus": f"group by (cluster, job, instance, gpu, uuid, name, serial) ({to_look_at(GPU_INFO)})",
        "allocated": f"({to_look_at(GPU_ALLOCATED)}) == 1",
        "processes": to_look_at(GPU_PROCESS_OWNER_INFO),
        "incidents": (
            f"{month} >= {repeated['in_30_days'].value:.0f} "
            f"or {month} and ignoring (days) {week} >= {repeated['in_7_days'].value:.0f}"
        ),
    }


def _by_the_servers_clock(timestamps: MetricSpec, where: str) -> str:
    """Timestamps corrected for each host's clock offset; unchanged if the host doesn't expose its time."""
    reported, time = f"{timestamps.name}{where}", f"{GPU_EXPORTER_TIME_SECONDS.name}{where}"
    behind = f"max by (cluster, job, instance) (timestamp({time}) - {time})"
    return f"({reported} + {_ON_HOST} group_left () {behind}) or {reported}"


def ask(client: PrometheusClient, selection: Selection, at: float | None) -> QueryResults:
    """Run all queries at this Unix time, or at the server's current time; raises PrometheusUnavailable."""
    seconds = client.now() if at is None else at
    return QueryResults(at=seconds, **{name: client.at(query, seconds) for name, query in queries(selection).items()})
