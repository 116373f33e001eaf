"""The present state of a fleet: instant queries, and what they say of its hosts, worst first, and of boards."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Final, NamedTuple, TypeVar

from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.judge.evidence.owners import GpuOwner, owners_among
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import BY_CODE, Check, Severity
from gpu_triage.judge.findings.verdicts import WORST_FIRST, Verdict, verdict_on
from gpu_triage.judge.report.entries import accepted_text
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.read.exporter import exporter_health, judgment
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.host.maintenance import GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENTS_RECENT
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_OWNER_INFO

HOST_LABELS: Final = "cluster, job, instance"
GPU_LABELS: Final = f"{HOST_LABELS}, gpu, uuid"
_ON_HOST: Final = f"on ({HOST_LABELS})"
_FROM_DCGM: Final = 'recorded_from="dcgm"'
_DCGM: Final = '__name__=~"DCGM_FI_DEV_GPU_TEMP(_CELSIUS)?"'  # DCGM 4.7 renamed it
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

    @property
    def cluster_alone(self) -> str:
        """The PromQL selector of series without hosts."""
        return str(Selection(self.cluster))

    def with_matcher(self, matcher: str) -> str:
        return narrowed(str(self), matcher)


def narrowed(where: str, matcher: str) -> str:
    """The PromQL selector, which may be "", with another matcher."""
    return f"{{{','.join(filter(None, (where[1:-1], matcher)))}}}"


def matcher(label: str, value: str) -> str:
    """A PromQL matcher for exactly this value, whatever characters it has."""
    return f"{label}={json.dumps(value, ensure_ascii=False)}"


def matcher_of_any(label: str, values: Iterable[str]) -> str:
    return f"{label}=~{json.dumps(any_of(values), ensure_ascii=False)}"


def any_of(values: Iterable[str]) -> str:
    """A regular expression for exactly these values, with what all begin and end with only once.

    VictoriaMetrics rejects queries of more than 16 KiB, and the hosts of a large job are named several times in one.
    """
    values = sorted(values)
    before = commonprefix(values)  # noqa: RUF071 - strings, not paths
    rest = [value[len(before) :] for value in values]
    after = commonprefix([value[::-1] for value in rest])[::-1]  # noqa: RUF071 - as above
    middle = "|".join(re.escape(value[: len(value) - len(after)]) for value in rest)
    return f"{re.escape(before)}(?:{middle}){re.escape(after)}" if len(values) > 1 else re.escape(before)


QueryResults = Mapping[str, list[Series]]  # the results of all queries at one point in time, by the names of `queries`


def queries(selection: Selection) -> Mapping[str, str]:
    """The queries about a fleet by name.

    down, exporters: targets with failing and with successful scrapes.
    findings, host_findings: start time of each present finding; states, host_states: their states. One query for them
    all would name the hosts too often for VictoriaMetrics (see `any_of`).
    accepted: until when a finding is accepted.
    gpus, allocated, processes: identity and owners of the GPUs on hosts with a verdict other than keep.
    incidents: by board, over the last 30 days.
    maintenance: when it ends; by the rules also of hosts that are not scraped, and of cordoned nodes, without reason.
    dcgm, dcgm_findings: hosts that only dcgm-exporter watches, by the rules of compat/dcgm.yml; when each finding was
    first recorded, at most a day ago.
    """
    where, dcgm = str(selection), selection.with_matcher(_FROM_DCGM)
    verdict = f"{judgment.GPU_HOST_VERDICT.name}{where}"
    unscraped = f"(last_over_time({verdict}[{LAST_SCRAPED_MINUTES}m]) > 0 unless {_ON_HOST} {verdict})"

    def last(spec: MetricSpec) -> str:
        """The last samples of hosts with a verdict other than keep that are currently not scraped."""
        return f"last_over_time({spec.name}{where}[{LAST_SCRAPED_MINUTES}m]) and {_ON_HOST} {unscraped}"

    def now_or_last(spec: MetricSpec) -> str:
        return f"{spec.name}{where} or {last(spec)}"

    def to_look_at(spec: MetricSpec) -> str:
        return f"{spec.name}{where} and {_ON_HOST} {verdict} > 0 or {last(spec)}"

    def since(timestamps: MetricSpec) -> str:
        """Timestamps corrected for each host's clock offset; unchanged if the host doesn't expose its time."""
        reported, time = f"{timestamps.name}{where}", f"{exporter_health.GPU_EXPORTER_TIME_SECONDS.name}{where}"
        behind = f"max by ({HOST_LABELS}) (timestamp({time}) - {time})"
        return f"({reported} + {_ON_HOST} group_left () {behind}) or {reported} or {last(timestamps)}"

    states = judgment.GPU_FINDING, judgment.GPU_HOST_FINDING
    recorded = (f"min_over_time(timestamp({spec.name}{dcgm})[1d:1m])" for spec in states)
    build = f"{exporter_health.GPU_EXPORTER_BUILD_INFO.name}{where}"
    ours = selection.with_matcher('job=~".*gpu-triage.*"')
    planned = f"{GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS.name}{where}"
    until = f"instance:gpu_maintenance:until{where}"
    return {
        "down": f"(up{ours} or up{where} and {_ON_HOST} last_over_time({build}[{_REMEMBERED}])) == 0",
        "exporters": f"group by ({HOST_LABELS}) ({build})",
        "simulated": f"{exporter_health.GPU_EXPORTER_SIMULATED.name}{where} == 1",
        "host_verdicts": f"{verdict} or {unscraped}",
        "verdicts": now_or_last(judgment.GPU_VERDICT),
        "bottlenecks": now_or_last(judgment.GPU_BOTTLENECK),
        "findings": since(judgment.GPU_FINDING_SINCE_TIMESTAMP_SECONDS),
        "host_findings": since(judgment.GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS),
        "dcgm_findings": " or ".join(recorded),
        "states": now_or_last(judgment.GPU_FINDING),
        "host_states": now_or_last(judgment.GPU_HOST_FINDING),
        "accepted": now_or_last(judgment.GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS),
        "gpus": f"group by ({GPU_LABELS}, name, serial) ({to_look_at(GPU_INFO)} or {GPU_INFO.name}{dcgm})",
        "allocated": f"({to_look_at(GPU_ALLOCATED)}) == 1",
        "processes": to_look_at(GPU_PROCESS_OWNER_INFO),
        "dcgm": f"group by ({HOST_LABELS}) ({GPU_UP.name}{dcgm})",
        "maintenance": f"{planned} or last_over_time({planned}[{_REMEMBERED}]) and {_ON_HOST} {until} or {until}",
        "incidents": offender_query(selection, "5m"),
    }


def offender_query(selection: Selection, window: str) -> str:
    """The boards with recurring incidents of one kind within 30 or 7 days, at any time in the window, such as 30d."""

    def most(within: int) -> str:
        which = selection.with_matcher(f'by="board",days="{within}",kind!="reset"')
        return f"max by ({GPU_LABELS}, kind) (max_over_time({GPU_INCIDENTS_RECENT.name}{which}[{window}]))"

    month, week = (f"{LIMITS['gpu.repeat_offender'][name].value:.0f}" for name in ("in_30_days", "in_7_days"))
    return f"{most(30)} >= {month} or {most(30)} and {most(7)} >= {week}"


def ask(client: PrometheusClient, selection: Selection, at: float | None) -> Fleet:
    """The fleet at this Unix time, or at the server's current time; raises PrometheusUnavailable."""
    seconds = client.now() if at is None else at
    return fleet_of(seconds, {name: client.at(query, seconds) for name, query in queries(selection).items()})


def nothing_found(client: PrometheusClient, selection: Selection, at: float) -> str:
    """Why a server has nothing of an exporter: the rest of a sentence, with what to do."""
    if client.at(f"group ({GPU_UP.name}{selection.with_matcher(_FROM_DCGM)})", at):
        return "only dcgm-exporter watches these GPUs; install gpu-triage on their hosts, which knows whose they are"
    if client.at(f"group ({selection.with_matcher(_DCGM)})", at):
        return "there is only dcgm-exporter at that time; load rules/compat/dcgm.yml, or install gpu-triage there"
    which = f"no exporter of gpu-triage matches {selection}" if str(selection) else "there is no exporter of gpu-triage"
    return f"{which} at that time; ask for {exporter_health.GPU_EXPORTER_BUILD_INFO.name} there"


Key = TypeVar("Key", bound=Hashable)

_RANKS: Final[Mapping[str, int]] = {severity.value: severity.rank for severity in Severity}
_UNREMARKABLE: Final = frozenset({"compute", "idle", "unattributed"})


class HostKey(NamedTuple):
    """A host's labels in Prometheus; cluster is "" if the label is missing."""

    cluster: str
    job: str
    instance: str

    def __str__(self) -> str:
        """Display name: ``east/gpu-07:9836``."""
        return f"{self.cluster}/{self.instance}" if self.cluster else self.instance

    def part(self, gpus: str) -> str:
        """Display name of GPUs, or of the host if that is "": ``GPU 0-3 of east/gpu-07:9836``."""
        return f"GPU {gpus} of {self}" if gpus else str(self)


class FleetGpu(NamedTuple):
    gpu: str
    uuid: str
    name: str  # like serial: "" if unknown, and on hosts to keep
    serial: str
    verdict: Verdict
    bottleneck: str  # "" if unknown
    owners: tuple[GpuOwner, ...]  # empty on hosts to keep


@dataclass(frozen=True, slots=True)
class SeenFinding:
    host: HostKey
    gpu: str  # index; PCI address if the driver does not show it; "" for the host
    uuid: str
    severity: str  # after confirmation
    code: str
    action: str
    state: State  # the most advanced that was seen
    accepted: str  # by whom, until when and why; "" if it is not

    @property
    def check(self) -> Check | None:
        return BY_CODE.get(self.code)

    @property
    def pending(self) -> bool:
        """Whether it has not lasted long enough to be confirmed."""
        return self.state is State.PENDING

    @property
    def urgency(self) -> str:
        """Present severity: a critical finding is a warning until it is confirmed; an accepted one is information."""
        if self.accepted:
            return Severity.INFO.value
        critical_soon = self.pending and self.severity == Severity.CRITICAL.value
        return Severity.WARNING.value if critical_soon else self.severity

    @property
    def rank(self) -> int:
        return _RANKS.get(self.urgency, 0)

    def order(self) -> tuple[object, ...]:
        """Sort key: the most urgent first."""
        return -self.rank, self.pending, self.code, self.host, index_order(self.gpu), self.uuid


def finding_json(finding: SeenFinding) -> dict[str, str | None]:
    """A finding as JSON, without its host."""
    return {
        "severity": finding.urgency,
        "confirmed_severity": finding.severity,
        "state": finding.state.text,
        "code": finding.code,
        "action": finding.action,
        "gpu": finding.gpu or None,
        "uuid": finding.uuid or None,
    }


@dataclass(frozen=True, slots=True)
class FleetFinding(SeenFinding):
    since: float  # Unix seconds


@dataclass(frozen=True, slots=True)
class FleetHost:
    key: HostKey
    verdict: Verdict  # NOT_READ also if the exporter is down and its last verdict was keep
    answers: bool  # whether its exporter was scraped
    simulated: bool
    by_dcgm: bool  # whether only dcgm-exporter's metrics tell of it: without serious findings, it is not read
    gpus: tuple[FleetGpu, ...]  # by index
    findings: tuple[FleetFinding, ...]  # the most severe first
    maintenance: PlannedWork | None = None

    @property
    def owners(self) -> tuple[GpuOwner, ...]:
        """Affected jobs: the owners of GPUs with findings, or of all GPUs if the host itself has findings."""
        hit = {
            (each.gpu, each.uuid)
            for each in self.findings
            if each.severity != Severity.INFO.value and not each.accepted
        }
        everybody = ("", "") in hit
        found = (each for each in self.gpus if everybody or (each.gpu, each.uuid) in hit)
        return tuple(dict.fromkeys(owner for gpu in found for owner in gpu.owners))

    @property
    def worst(self) -> int:
        """Rank of the most severe finding, a warning if the host was not read; -1 without one, or in maintenance."""
        if self.maintenance is not None:
            return -1
        unread = Severity.WARNING.rank if self.verdict is Verdict.NOT_READ else -1
        return max([unread, *(each.rank for each in self.findings)])


class RepeatOffender(NamedTuple):
    """A board with recurring incidents of one kind."""

    key: HostKey
    gpu: str
    uuid: str
    serial: str
    kind: str  # ``lost``, ``uncorrected`` or an Xid code
    times: int  # in 30 days

    @property
    def board(self) -> str:
        return self.serial or self.uuid


@dataclass(frozen=True, slots=True)
class Fleet:
    """All selected hosts, worst first, and boards that fail repeatedly, the most frequent first."""

    at: float
    hosts: tuple[FleetHost, ...]
    offenders: tuple[RepeatOffender, ...]

    def with_verdict(self, verdict: Verdict) -> tuple[FleetHost, ...]:
        """Those outside maintenance."""
        return tuple(each for each in self.hosts if each.verdict is verdict and each.maintenance is None)


def fleet_of(at: float, answers: QueryResults) -> Fleet:
    up = {key_of(each) for each in answers["exporters"]}
    by_dcgm = {key_of(each) for each in answers["dcgm"]} - up
    down = {key_of(each) for each in answers["down"]} - up - by_dcgm
    simulated = {key_of(each) for each in answers["simulated"]}
    verdicts = _worst(answers["host_verdicts"], key_of)
    gpus, findings = _gpus(answers), _findings(answers)
    planned: dict[HostKey, PlannedWork] = {}
    for each in answers["maintenance"]:
        work = PlannedWork(each.value, each.labels["source"], each.labels["reason"] or "the node is cordoned")
        planned[key_of(each)] = max(work, planned.get(key_of(each), work))
    for key in by_dcgm:
        severities = (Severity(each.urgency) for each in findings[key])
        verdicts.setdefault(key, verdict_on(severities, was_read=False))
    known = up | down | verdicts.keys() | gpus.keys() | findings.keys()
    hosts = (
        FleetHost(
            key=key,
            verdict=verdicts.get(key, Verdict.NOT_READ),
            answers=key in up | by_dcgm,
            simulated=key in simulated,
            by_dcgm=key in by_dcgm,
            gpus=tuple(sorted(gpus[key], key=lambda each: (index_order(each.gpu), each.uuid))),
            findings=tuple(sorted(findings[key], key=SeenFinding.order)),
            maintenance=planned.get(key),
        )
        for key in known
    )
    return Fleet(at, tuple(sorted(hosts, key=_badness)), repeat_offenders(answers["incidents"], answers["gpus"]))


def key_of(series: Series) -> HostKey:
    return HostKey(*(series.labels[name] for name in HostKey._fields))


def _badness(host: FleetHost) -> tuple[object, ...]:
    """Sort key: drain, watch, not read, in maintenance, keep; then the number of findings and of bottlenecked GPUs."""
    severities = [each.urgency for each in host.findings]
    held_back = sum(each.bottleneck not in _UNREMARKABLE and each.bottleneck != "" for each in host.gpus)
    counts = (-severities.count(each.value) for each in reversed(Severity))
    planned = host.maintenance is not None
    return (WORST_FIRST.index(Verdict.KEEP if planned else host.verdict), not planned, *counts, -held_back, host.key)


def index_order(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() and len(text) < 6 else -1, text)  # noqa: PLR2004 - no index is longer


def _worst(found: Iterable[Series], key: Callable[[Series], Key]) -> dict[Key, Verdict]:
    """Verdicts by subject; the worst if a server without deduplication returns a subject twice."""
    verdicts: dict[Key, Verdict] = {}
    for each in found:
        state = judgment.GPU_VERDICT.states.get(int(each.value))
        verdict = Verdict.NOT_READ if state is None else Verdict(state)
        verdicts[key(each)] = max(verdicts.get(key(each), verdict), verdict, key=lambda known: known.rank)
    return verdicts


def _gpus(answers: QueryResults) -> defaultdict[HostKey, list[FleetGpu]]:
    verdicts = _worst(answers["verdicts"], gpu_key)
    classes = {gpu_key(each): int(each.value) for each in answers["bottlenecks"]}
    identities = {gpu_key(each): each.labels for each in answers["gpus"]}
    allocated, processes = _by_gpu(answers["allocated"]), _by_gpu(answers["processes"])
    found: defaultdict[HostKey, list[FleetGpu]] = defaultdict(list)
    for key in verdicts.keys() | classes.keys() | identities.keys():
        identity = identities.get(key, {})
        found[key[0]].append(
            FleetGpu(
                *key[1:],
                name=identity.get("name", ""),
                serial=identity.get("serial", ""),
                verdict=verdicts.get(key, Verdict.NOT_READ),
                bottleneck=judgment.GPU_BOTTLENECK.states.get(classes.get(key, 0), ""),
                owners=owners_among(allocated[key], processes[key]),
            )
        )
    return found


def _findings(answers: QueryResults) -> defaultdict[HostKey, list[FleetFinding]]:
    states: dict[FindingKey, float] = {}
    for series in (*answers["states"], *answers["host_states"]):
        key = finding_key(series)
        states[key] = max(series.value, states.get(key, State.ENDED))
    began: dict[FindingKey, float] = {}
    for series in (*answers["findings"], *answers["host_findings"], *answers["dcgm_findings"]):
        key = finding_key(series)
        if states.get(key, State.ENDED) != State.ENDED:
            began[key] = min(series.value, began.get(key, series.value))
    accepted = {
        (gpu_key(each), each.labels["code"]): accepted_text(each.value, each.labels["by"], each.labels["reason"])
        for each in answers["accepted"]
    }
    found: defaultdict[HostKey, list[FleetFinding]] = defaultdict(list)
    for key, since in began.items():
        state = State.PENDING if states[key] == State.PENDING else State.CONFIRMED
        host, gpu, uuid, _, code, _ = key
        found[host].append(FleetFinding(*key, state, accepted.get(((host, gpu, uuid), code), ""), since))
    return found


def repeat_offenders(incidents: Iterable[Series], gpus: Iterable[Series]) -> tuple[RepeatOffender, ...]:
    """The most frequent first; `gpus` have the serial numbers, which dcgm-exporter does not report."""
    serials = {
        each.labels["uuid"]: each.labels["serial"] for each in gpus if each.labels["uuid"] and each.labels["serial"]
    }
    found = []
    for each in incidents:
        host, gpu, uuid = gpu_key(each)
        found.append(RepeatOffender(host, gpu, uuid, serials.get(uuid, ""), each.labels["kind"], int(each.value)))
    return tuple(sorted(found, key=lambda each: (-each.times, each)))


FindingKey = tuple[HostKey, str, str, str, str, str]


def finding_key(series: Series) -> FindingKey:
    """The first fields of `SeenFinding`."""
    labels = series.labels
    gpu = labels["gpu"] or labels["pci_bus_id"], labels["uuid"]
    return key_of(series), *gpu, labels["severity"], labels["code"], labels["action"]


GpuKey = tuple[HostKey, str, str]  # A GPU: its host, index and UUID


def gpu_key(series: Series) -> GpuKey:
    return key_of(series), series.labels["gpu"], series.labels["uuid"]


def _by_gpu(found: Iterable[Series]) -> defaultdict[GpuKey, list[Mapping[str, str]]]:
    by_gpu: defaultdict[GpuKey, list[Mapping[str, str]]] = defaultdict(list)
    for series in found:
        by_gpu[gpu_key(series)].append(series.labels)
    return by_gpu


def shared(findings: Iterable[FleetFinding]) -> Iterator[tuple[FleetFinding, tuple[str, ...]]]:
    """Group findings with the same code and state: the one that began first, and all affected GPUs."""
    by_code: dict[tuple[object, ...], list[FleetFinding]] = {}
    for each in findings:
        by_code.setdefault((each.severity, each.code, each.pending, each.gpu == "", each.accepted), []).append(each)
    for members in by_code.values():
        first = min(members, key=lambda each: each.since)
        yield first, tuple(each.gpu for each in members if each.gpu)
