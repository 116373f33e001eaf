"""The queries about a fleet's present, of which each is one instant query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.fleet.client import PrometheusClient, Series
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.processes.allocation import GPU_ALLOCATED
from gpu_triage.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.subjects.exporter import GPU_EXPORTER_BUILD_INFO, GPU_EXPORTER_SIMULATED, GPU_EXPORTER_TIME_SECONDS
from gpu_triage.subjects.judgement import (
    GPU_BOTTLENECK,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)
from gpu_triage.subjects.metric import MetricSpec

_ON_HOST: Final = "on (cluster, job, instance)"
_REMEMBERED: Final = "1d"  # for which an exporter that is down is known by what it exposed before


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
    gpus: list[Series]
    allocated: list[Series]
    processes: list[Series]
    incidents: list[Series]


def queries(selection: Selection) -> Mapping[str, str]:
    """The query of each field of `Answers`."""
    where = str(selection)
    to_look_at = f"and {_ON_HOST} {GPU_HOST_VERDICT.name}{where} > 0"
    build = f"{GPU_EXPORTER_BUILD_INFO.name}{where}"
    ours = selection.with_matcher('job=~".*gpu-triage.*"')
    month, week = (
        GPU_INCIDENTS_RECENT.name + selection.with_matcher(f'by="board",days="{days}",kind!="reset"')
        for days in (30, 7)
    )
    return {
        "down": f"(up{ours} or up{where} and {_ON_HOST} last_over_time({build}[{_REMEMBERED}])) == 0",
        "exporters": f"group by (cluster, job, instance) ({build})",
        "simulated": f"{GPU_EXPORTER_SIMULATED.name}{where} == 1",
        "host_verdicts": f"{GPU_HOST_VERDICT.name}{where}",
        "verdicts": f"{GPU_VERDICT.name}{where}",
        "bottlenecks": f"{GPU_BOTTLENECK.name}{where}",
        "findings": _by_the_servers_clock(GPU_FINDING_SINCE_TIMESTAMP_SECONDS, where),
        "host_findings": _by_the_servers_clock(GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS, where),
        "gpus": (f"group by (cluster, job, instance, gpu, uuid, name, serial) ({GPU_INFO.name}{where}) {to_look_at}"),
        "allocated": f"{GPU_ALLOCATED.name}{where} == 1 {to_look_at}",
        "processes": f"{GPU_PROCESS_INFO.name}{where} {to_look_at}",
        "incidents": (
            f"{month} >= {thresholds.REPEATED_IN_30_DAYS} "
            f"or {month} and ignoring (days) {week} >= {thresholds.REPEATED_IN_7_DAYS}"
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
