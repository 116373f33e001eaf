"""The report on a host: findings, a bottleneck and verdict per GPU, and what could not be read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpu_triage.judge.bottleneck.class_history import ClassPeriod, GpuMemory
from gpu_triage.judge.bottleneck.classes import UNHINDERED, Bottleneck, Bottlenecks
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import GpuOwner, owners_of, scheduler_known
from gpu_triage.judge.findings import verdicts
from gpu_triage.judge.findings.finding import HOST, Finding
from gpu_triage.judge.findings.settings import Change
from gpu_triage.judge.findings.table import Area, Severity
from gpu_triage.judge.report.entries import minute
from gpu_triage.judge.report.summaries import is_known, not_judged, not_read, summaries, why_blocked
from gpu_triage.options.values import LATEST_SECONDS
from gpu_triage.read.gpu import device_memory, pcie, power, presence
from gpu_triage.read.host.maintenance import GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS, SLURM
from gpu_triage.read.incidents.incident_metrics import WINDOW_DAYS
from gpu_triage.read.incidents.ledger import DAY_SECONDS


@dataclass(frozen=True, slots=True)
class GpuReadings:
    """Readings of one GPU; None if the device does not report them. All are None if it does not respond."""

    busy_ratio: float | None = None  # over the window
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    pcie_generation: float | None = None
    pcie_width: float | None = None
    pcie_expected_generation: float | None = None
    pcie_expected_width: float | None = None
    compute_processes: float | None = None


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    gpu: str
    uuid: str  # uuid, name and pci_bus_id are "" if unknown
    name: str
    pci_bus_id: str
    bottleneck: Bottleneck
    since: float | None  # Unix seconds when it was first seen in its class; None in a single poll
    seconds: Mapping[str, float]  # time spent in each class so far
    strip: tuple[ClassPeriod, ...]  # classes over the last half hour
    verdict: verdicts.Verdict  # whether it should keep taking work
    codes: tuple[str, ...]  # codes of its findings
    owners: tuple[GpuOwner, ...]  # known pods, jobs or users that hold it
    readings: GpuReadings


@dataclass(frozen=True, slots=True)
class AreaVerdict:
    """One area of the playbook."""

    area: Area
    severity: Severity | None  # urgency of its worst finding; None without findings
    summary: str | None  # readings in one line; None if nothing was read
    findings: tuple[Finding, ...]
    is_known: bool = True  # whether anything was read that it is judged by: only then is it sound without findings


@dataclass(frozen=True, slots=True)
class FileRead:
    name: str
    kinds: tuple[str, ...]  # kinds of content found; empty if none is supported
    written: str  # its own timestamp, ``2026-11-22 10:00:00``; "" if it has none
    note: str  # what is wrong with it; "" if nothing is


class PlannedWork(NamedTuple):
    """Maintenance in force, by the labels of its metric; `until` in Unix seconds."""

    until: float
    source: str
    reason: str

    def __str__(self) -> str:
        ends = minute(min(max(0.0, self.until), LATEST_SECONDS))
        return f"until {ends}{' by Slurm' * (self.source == SLURM)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Report:
    host: str  # name of the host or scenario
    simulated: bool
    recording: str | None  # recording being replayed; None for a live host
    judged_at: float  # Unix seconds, by the host's clock
    measured_seconds: float
    driver: str  # driver version; "" while it is unavailable
    areas: tuple[AreaVerdict, ...]  # in the playbook's order
    gpus: tuple[GpuVerdict, ...]  # by index
    verdict: verdicts.Verdict
    not_read: tuple[str, ...]  # what could not be read, and what that hides
    blocked: str | None  # why the GPUs could not be checked at all, and what to do; None if they could
    ended: tuple[Finding, ...] = ()  # confirmed findings that ended within the last 20 minutes
    files: tuple[FileRead, ...] = ()  # files read instead of a host; empty for a host
    settings: tuple[Change, ...] = ()  # judge settings that differ from the defaults
    scheduled: bool = True  # whether a scheduler is known on the host
    repairs: tuple[str, ...] = ()  # of the last weeks, latest first: what, when, by whom, and the note
    not_judged: tuple[str, ...] = ()  # what could not be judged, with the reason; empty for files
    maintenance: PlannedWork | None = None  # that which ends last; until then, no pages and no drains

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the playbook's order."""
        return tuple(finding for area in self.areas for finding in area.findings)

    @property
    def words(self) -> verdicts.Words:
        """How to speak of its verdicts to people."""
        return verdicts.CLUSTER if self.scheduled else verdicts.DESK

    def exit_code(self, fail_on: Severity) -> int:
        """Return the exit code for these findings, which depends on those at least as severe as `fail_on`."""
        if self.blocked is not None:
            return verdicts.EXIT_COULD_NOT_LOOK
        found = any(finding.urgency.rank >= fail_on.rank for finding in self.findings)
        return verdicts.EXIT_FINDINGS if found else verdicts.EXIT_SOUND


@dataclass(frozen=True, slots=True)
class JudgedHost:
    name: str  # name of the host or scenario
    recording: str | None = None  # recording being replayed; None for a live host
    continuous: bool = False  # judged repeatedly; a single poll cannot show when a condition began
    files: bool = False  # based on files, which hold snapshots and no busy share over time
    simulated: bool = False  # whether all of it is made up


def report_of(
    subject: JudgedHost,
    host: HostEvidence,
    bottlenecks: Bottlenecks,
    memories: Mapping[GpuEvidence, GpuMemory],
    found: list[Finding],
    *,
    ended: tuple[Finding, ...],
    error: str | None,
) -> Report:
    """Return the report on these findings, and those `ended` lately; `error` is the driver's, if not in evidence."""
    lines = summaries(host)
    blocked = why_blocked(host, error or host.driver_error)
    return Report(
        host=subject.name,
        simulated=subject.simulated,
        recording=subject.recording,
        judged_at=host.at.wall,
        measured_seconds=host.seconds,
        driver=host.label(presence.GPU_DRIVER_INFO, "driver_version"),
        areas=tuple(_area(area, lines[area], found, is_known=is_known(host, area)) for area in Area),
        gpus=tuple(
            _gpu(gpu, bottlenecks[gpu], memories[gpu], found, continuous=subject.continuous) for gpu in host.gpus
        ),
        verdict=verdicts.verdict_on(
            (finding.urgency for finding in found), was_read=blocked is None and (not host.gpus or host.was_read)
        ),
        not_read=tuple(not_read(host)),
        blocked=blocked,
        ended=ended,
        settings=host.settings.changed,
        scheduled=scheduler_known(host),
        repairs=tuple(_repairs(host)),
        not_judged=() if subject.files or blocked is not None else tuple(not_judged(host)),
        maintenance=_maintenance(host),
    )


def _repairs(host: HostEvidence) -> Iterator[str]:
    present = {gpu.uuid: f"GPU {gpu.gpu}" for gpu in host.gpus}
    for each in reversed(() if host.memory.decisions is None else host.memory.decisions.repairs):
        if host.at.wall - each.at <= WINDOW_DAYS[-1] * DAY_SECONDS:
            name = present.get(each.uuid, f"a board that was at {each.pci_bus_id}")
            yield f"{name}, {minute(each.at)} by {each.by}{each.note and f': {each.note}'}"


def _maintenance(host: HostEvidence) -> PlannedWork | None:
    series = host.series(GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS)
    found = (PlannedWork(each.last, each.labels["source"], each.labels["reason"]) for each in series)
    return max((each for each in found if each.until > host.at.wall), default=None)


def _area(area: Area, summary: str | None, found: list[Finding], *, is_known: bool) -> AreaVerdict:
    own = tuple(finding for finding in found if finding.check.area is area)
    severities = (finding.urgency for finding in own)
    worst = max(severities, key=lambda severity: severity.rank, default=None)
    return AreaVerdict(area, worst, summary, own, is_known)


def _gpu(
    gpu: GpuEvidence, bottleneck: Bottleneck, memory: GpuMemory, found: list[Finding], *, continuous: bool
) -> GpuVerdict:
    own = [finding for finding in found if finding.identity == gpu.key]
    if own or any(finding.subject == HOST for finding in found):
        bottleneck = bottleneck._replace(because=bottleneck.because.removesuffix(UNHINDERED))
    return GpuVerdict(
        gpu=gpu.gpu,
        uuid=gpu.uuid,
        name=gpu.name,
        pci_bus_id=gpu.pci_bus_id,
        bottleneck=bottleneck,
        since=memory.since(gpu.at) if continuous else None,
        seconds=dict(memory.seconds),
        strip=memory.strip(gpu.at.monotonic),
        verdict=verdicts.verdict_on((each.urgency for each in own), was_read=gpu.was_read),
        codes=tuple(dict.fromkeys(each.check.code for each in own)),
        owners=owners_of(gpu),
        readings=_readings(gpu),
    )


def _readings(gpu: GpuEvidence) -> GpuReadings:
    if not gpu.up:
        return GpuReadings()
    return GpuReadings(
        busy_ratio=gpu.busy_share,
        power_watts=gpu.last(power.GPU_POWER_WATTS),
        power_limit_watts=gpu.last(power.GPU_POWER_LIMIT_WATTS),
        temperature_celsius=gpu.last(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu"),
        memory_used_bytes=gpu.last(device_memory.GPU_MEMORY_USED_BYTES),
        memory_total_bytes=gpu.last(device_memory.GPU_MEMORY_TOTAL_BYTES),
        pcie_generation=gpu.last(pcie.GPU_PCIE_LINK_GENERATION),
        pcie_width=gpu.last(pcie.GPU_PCIE_LINK_WIDTH),
        pcie_expected_generation=gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_GENERATION),
        pcie_expected_width=gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH),
        compute_processes=gpu.compute_processes if gpu.processes_known else None,
    )
