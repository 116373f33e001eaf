"""Interprets the query results: the fleet's hosts, worst first, and boards that fail repeatedly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from gpu_triage.cli.fleet.client import Series
from gpu_triage.cli.fleet.query import QueryResults
from gpu_triage.judge.evidence.owners import GpuOwner, owners_among
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import WORST_FIRST, Verdict
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES, GPU_VERDICT

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


class FleetGpu(NamedTuple):
    """One GPU in the fleet."""

    gpu: str
    uuid: str
    name: str  # like serial: "" if unknown, and on hosts to keep
    serial: str
    verdict: Verdict
    bottleneck: str  # "" if unknown
    owners: tuple[GpuOwner, ...]  # empty on hosts to keep


class FleetFinding(NamedTuple):
    """One finding on a host or GPU."""

    severity: str  # after confirmation
    code: str
    action: str
    gpu: str  # index; PCI address if the driver does not show it; "" for the host
    uuid: str
    since: float  # Unix seconds
    pending: bool = False  # has not lasted long enough to be confirmed

    @property
    def urgency(self) -> str:
        """Current severity: a critical finding is a warning until it is confirmed."""
        critical_soon = self.pending and self.severity == Severity.CRITICAL.value
        return Severity.WARNING.value if critical_soon else self.severity


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host in the fleet."""

    key: HostKey
    verdict: Verdict  # NOT_READ also if the exporter is down and its last verdict was keep
    answers: bool  # whether its exporter was scraped
    simulated: bool
    gpus: tuple[FleetGpu, ...]  # by index
    findings: tuple[FleetFinding, ...]  # the most severe first

    @property
    def owners(self) -> tuple[GpuOwner, ...]:
        """Affected jobs: the owners of GPUs with findings, or of all GPUs if the host itself has findings."""
        hit = {(each.gpu, each.uuid) for each in self.findings if each.severity != Severity.INFO.value}
        everybody = ("", "") in hit
        found = (each.owners for each in self.gpus if everybody or (each.gpu, each.uuid) in hit)
        return tuple(dict.fromkeys(owner for owners in found for owner in owners))

    @property
    def worst(self) -> int:
        """Rank of the most severe finding; -1 if none. A host that was not read ranks as a warning."""
        unread = Severity.WARNING.rank if self.verdict is Verdict.NOT_READ else -1
        return max([unread, *(_RANKS.get(each.urgency, 0) for each in self.findings)])


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
        """Identifier of the board."""
        return self.serial or self.uuid


@dataclass(frozen=True, slots=True)
class Fleet:
    """All selected hosts, worst first, and boards that fail repeatedly, the most frequent first."""

    at: float
    hosts: tuple[FleetHost, ...]
    offenders: tuple[RepeatOffender, ...]

    def with_verdict(self, verdict: Verdict) -> tuple[FleetHost, ...]:
        """The hosts with this verdict."""
        return tuple(each for each in self.hosts if each.verdict is verdict)


def fleet_of(answers: QueryResults) -> Fleet:
    """Build the fleet from the query results."""
    up = {key_of(each) for each in answers.exporters}
    down = {key_of(each) for each in answers.down} - up
    simulated = {key_of(each) for each in answers.simulated}
    verdicts = _worst(answers.host_verdicts, key_of)
    gpus, findings = _gpus(answers), _findings(answers)
    known = up | down | verdicts.keys() | gpus.keys() | findings.keys()
    hosts = (
        FleetHost(
            key=key,
            verdict=verdicts.get(key, Verdict.NOT_READ),
            answers=key in up,
            simulated=key in simulated,
            gpus=tuple(sorted(gpus[key], key=lambda each: (_number(each.gpu), each.uuid))),
            findings=tuple(sorted(findings[key], key=_order)),
        )
        for key in known
    )
    serials = {(key_of(each), each.labels["uuid"]): each.labels["serial"] for each in answers.gpus}
    offenders = (offender_of(each, serials.get((key_of(each), each.labels["uuid"]), "")) for each in answers.incidents)
    return Fleet(
        answers.at,
        tuple(sorted(hosts, key=_badness)),
        tuple(sorted(offenders, key=lambda each: (-each.times, each.key, each.gpu))),
    )


def key_of(series: Series) -> HostKey:
    """The host of a series."""
    return HostKey(series.labels["cluster"], series.labels["job"], series.labels["instance"])


def _badness(host: FleetHost) -> tuple[object, ...]:
    """Sort key: drain, watch, not read, keep; then the number of findings and of bottlenecked GPUs."""
    severities = [each.urgency for each in host.findings]
    held_back = sum(each.bottleneck not in _UNREMARKABLE and each.bottleneck != "" for each in host.gpus)
    counts = (-severities.count(each.value) for each in reversed(Severity))
    return (WORST_FIRST.index(host.verdict), *counts, -held_back, host.key)


def _order(finding: FleetFinding) -> tuple[object, ...]:
    return (-_RANKS.get(finding.urgency, 0), finding.pending, finding.code, _number(finding.gpu), finding.uuid)


def _number(text: str) -> tuple[int, str]:
    return (int(text) if text.isdecimal() and len(text) < 6 else -1, text)  # noqa: PLR2004 - no index is longer


def _verdict(value: float) -> Verdict:
    state = GPU_VERDICT.states.get(int(value))
    return Verdict.NOT_READ if state is None else Verdict(state)


def _worst(found: Iterable[Series], key: Callable[[Series], Key]) -> dict[Key, Verdict]:
    """Verdicts by subject; the worst if a server without deduplication returns a subject twice."""
    verdicts: dict[Key, Verdict] = {}
    for each in found:
        verdict = _verdict(each.value)
        verdicts[key(each)] = max(verdicts.get(key(each), verdict), verdict, key=lambda known: known.rank)
    return verdicts


def _gpus(answers: QueryResults) -> defaultdict[HostKey, list[FleetGpu]]:
    verdicts = _worst(answers.verdicts, gpu_key)
    classes = {gpu_key(each): int(each.value) for each in answers.bottlenecks}
    identities = {gpu_key(each): each.labels for each in answers.gpus}
    allocated, processes = _by_gpu(answers.allocated), _by_gpu(answers.processes)
    found: defaultdict[HostKey, list[FleetGpu]] = defaultdict(list)
    for key in verdicts.keys() | classes.keys() | identities.keys():
        host, gpu, uuid = key
        identity = identities.get(key)
        number = classes.get(key, 0)
        found[host].append(
            FleetGpu(
                gpu=gpu,
                uuid=uuid,
                name=identity["name"] if identity else "",
                serial=identity["serial"] if identity else "",
                verdict=verdicts.get(key, Verdict.NOT_READ),
                bottleneck=BOTTLENECK_CLASSES[number - 1] if 1 <= number <= len(BOTTLENECK_CLASSES) else "",
                owners=owners_among(allocated[key], processes[key]),
            )
        )
    return found


def _findings(answers: QueryResults) -> defaultdict[HostKey, list[FleetFinding]]:
    states: dict[_FindingKey, float] = {}
    for series in (*answers.states, *answers.host_states):
        states[_finding_key(series)] = max(series.value, states.get(_finding_key(series), State.ENDED))
    began: dict[_FindingKey, float] = {}
    for series in (*answers.findings, *answers.host_findings):
        key = _finding_key(series)
        # Older exporters don't publish states: all of their findings count.
        if states.get(key, State.CONFIRMED) != State.ENDED:
            began[key] = min(series.value, began.get(key, series.value))
    found: defaultdict[HostKey, list[FleetFinding]] = defaultdict(list)
    for key, since in began.items():
        host, severity, code, action, gpu, uuid = key
        pending = states.get(key) == State.PENDING
        found[host].append(FleetFinding(severity, code, action, gpu, uuid, since, pending))
    return found


def offender_of(series: Series, serial: str) -> RepeatOffender:
    """The board in a series of gpu_incidents_recent."""
    labels = series.labels
    return RepeatOffender(key_of(series), labels["gpu"], labels["uuid"], serial, labels["kind"], int(series.value))


_FindingKey = tuple[HostKey, str, str, str, str, str]


def _finding_key(series: Series) -> _FindingKey:
    labels = series.labels
    gpu = labels["gpu"] or labels["pci_bus_id"], labels["uuid"]
    return key_of(series), labels["severity"], labels["code"], labels["action"], *gpu


GpuKey = tuple[HostKey, str, str]
"""A GPU: its host, index and UUID."""


def gpu_key(series: Series) -> GpuKey:
    """The GPU of a series."""
    return key_of(series), series.labels["gpu"], series.labels["uuid"]


def _by_gpu(found: Iterable[Series]) -> defaultdict[GpuKey, list[Mapping[str, str]]]:
    by_gpu: defaultdict[GpuKey, list[Mapping[str, str]]] = defaultdict(list)
    for series in found:
        by_gpu[gpu_key(series)].append(series.labels)
    return by_gpu


def shared(findings: Iterable[FleetFinding]) -> Iterator[tuple[FleetFinding, tuple[str, ...]]]:
    """Group findings with the same code and state: the one that began first, and all affected GPUs."""
    by_code: dict[tuple[str, str, bool, bool], list[FleetFinding]] = {}
    for each in findings:
        by_code.setdefault((each.severity, each.code, each.pending, each.gpu == ""), []).append(each)
    for members in by_code.values():
        first = min(members, key=lambda each: each.since)
        yield first, tuple(each.gpu for each in members if each.gpu)
