"""The queries about a fleet's present, of which each is one instant query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.diagnosis.findings.limits import LIMITS
from gpu_triage.fleet.client import PrometheusClient, Series
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.processes.allocation import GPU_ALLOCATED
from gpu_triage.processes.on_gpu import GPU_PROCESS_OWNER_INFO
from gpu_triage.subjects.exporter import GPU_EXPORTER_BUILD_INFO, GPU_EXPORTER_SIMULATED, GPU_EXPORTER_TIME_SECONDS
from gpu_triage.subjects.judgement import (
    GPU_BOTTLENECK,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)
from gpu_triage.subjects.metric import MetricSpec

_ON_HOST: Final = "on (cluster, job, instance)"
_REMEMBERED: Final = "1d"  # for which an exporter that is down is known by what it exposed before
LAST_SCRAPED_MINUTES: Final = 15
"""For so long, a host to drain or to watch is shown as it was last scraped."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which hosts are asked about: regular expressions of RE2, each of a whole label; None for all."""

    cluster: str | None = None
    job: str | None = None
    instance: str | None = None

    def __str__(self) -> str:
        """The selector of PromQL; "" for all hosts."""
        parts = ("cluster", self.cluster), ("job", self.job), ("instance", self.instance)
        found = ",".join(f"{name}=~{json.dumps(each, ensure_ascii=False)}" for name, each in parts if each is not None)
        return f"{{{found}}}" if found else ""

    def with_matcher(self, matcher: str) -> str:
        """The selector with one more matcher."""
        return f"{{{','.join(filter(None, (str(self)[1:-1], matcher)))}}}"


@dataclass(frozen=True, slots=True)
class Answers:
    """The series of each question, at one moment.

    Attributes:
        at: Unix seconds of it.
        down: targets that cannot be scraped.
        exporters: those that can.
        findings, host_findings: when each that is present began.
        states, host_states: of findings, as gpu_finding has them; without those of exporters that are older.
        gpus: identity of the GPUs of hosts with a verdict other than keep, as `allocated` and `processes`.
        incidents: of the last 30 days, by board.
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
    """The query of each field of `Answers`."""
    where = str(selection)
    verdict = f"{GPU_HOST_VERDICT.name}{where}"
    unscraped = f"(last_over_time({verdict}[{LAST_SCRAPED_MINUTES}m]) > 0 unless {_ON_HOST} {verdict})"

    def last(spec: MetricSpec) -> str:
        """The series of hosts with a verdict other than keep that were not scraped now, as they were last."""
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
    """Timestamps by the clock of each host, which may be wrong; unchanged where a host exposes no time."""
    told, time = f"{timestamps.name}{where}", f"{GPU_EXPORTER_TIME_SECONDS.name}{where}"
    behind = f"max by (cluster, job, instance) (timestamp({time}) - {time})"
    return f"({told} + {_ON_HOST} group_left () {behind}) or {told}"


def ask(client: PrometheusClient, selection: Selection, at: float | None) -> Answers:
    """The answers at this Unix time, or now by the server's clock.

    Raises:
        PrometheusUnavailable: the server does not answer, or rejects a regular expression.
    """
    seconds = client.now() if at is None else at
    return Answers(at=seconds, **{name: client.at(query, seconds) for name, query in queries(selection).items()})
