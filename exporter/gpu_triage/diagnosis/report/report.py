"""The whole verdict on a host: findings, one bottleneck a GPU, who should go on taking work, and what was not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_triage.diagnosis.bottleneck.classes import Bottleneck, Bottlenecks
from gpu_triage.diagnosis.bottleneck.memory import GpuMemory, Stretch
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.holders import GpuHolder, holders_of
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.settings import Change
from gpu_triage.diagnosis.findings.table import Area, Severity
from gpu_triage.diagnosis.findings.verdicts import Verdict, exit_code, verdict_on
from gpu_triage.diagnosis.report.not_read import not_read, why_blocked
from gpu_triage.diagnosis.report.readings import GpuReadings, readings_of
from gpu_triage.diagnosis.report.summaries import summaries
from gpu_triage.gpu.presence import GPU_DRIVER_INFO
from gpu_triage.subjects.exporter import GPU_EXPORTER_SIMULATED


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """The verdict on one GPU."""

    gpu: str
    uuid: str  # as name and pci_bus_id: "" where unknown
    name: str
    pci_bus_id: str
    bottleneck: Bottleneck
    since: float | None  # Unix seconds at which it came into its class, as far as was seen; None after one look
    seconds: Mapping[str, float]  # that it spent in each class so far
    strip: tuple[Stretch, ...]  # its classes of the last half hour
    verdict: Verdict  # whether it should go on taking work
    codes: tuple[str, ...]  # of its findings
    holders: tuple[GpuHolder, ...]  # whose it is, as far as is known
    readings: GpuReadings


@dataclass(frozen=True, slots=True)
class AreaVerdict:
    """One area of the playbook."""

    area: Area
    severity: Severity | None  # how urgent its worst finding is; None without findings
    summary: str | None  # what was read, in one line; None where nothing was
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that a host was judged by."""

    name: str
    kinds: tuple[str, ...]  # what was found in it; empty where it is nothing that can be read
    written: str  # when, as it says itself, ``2026-11-22 10:00:00``; "" where it does not say
    note: str  # what is wrong with it; "" where nothing is


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a host."""

    host: str  # its name, or that of the scenario
    simulated: bool  # whether it is made up
    recording: str | None  # file that is replayed; None on a host of now
    judged_at: float  # Unix seconds, by the host's clock
    measured_seconds: float
    driver: str  # its version; "" while it is unavailable
    areas: tuple[AreaVerdict, ...]  # in the playbook's order
    gpus: tuple[GpuVerdict, ...]  # by index
    verdict: Verdict
    not_read: tuple[str, ...]  # what could not be read, and what that hides
    blocked: str | None  # why the GPUs could not be looked at at all, and what to do; None when they could
    ended: tuple[Finding, ...] = ()  # that were confirmed and ended within the last 20 minutes
    files: tuple[FileRead, ...] = ()  # that were read instead of a host; empty on a host
    settings: tuple[Change, ...] = ()  # of the judge that differ from the defaults

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, in the playbook's order."""
        return tuple(finding for area in self.areas for finding in area.findings)

    def exit_code(self, fail_on: Severity) -> int:
        """Of a look that found this, as the table of verdicts has it."""
        severities = [finding.urgency for finding in self.findings]
        return exit_code(severities, fail_on, blocked=self.blocked is not None)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is judged."""

    name: str  # of the host, or of the scenario
    recording: str | None = None  # file that is replayed; None on a host of now
    continuous: bool = False  # whether it is judged again and again; one look cannot tell since when anything lasts
    files: bool = False  # whether it is told by files: of moments, and of no share of time that a GPU was busy


def report_of(
    subject: Subject,
    host: HostEvidence,
    bottlenecks: Bottlenecks,
    memories: Mapping[GpuEvidence, GpuMemory],
    found: list[Finding],
    *,
    ended: tuple[Finding, ...],
    error: str | None,
) -> Report:
    """The verdict on a host.

    Args:
        subject: what is judged.
        host: the evidence.
        bottlenecks: of each GPU.
        memories: of each GPU.
        found: every finding that is pending or confirmed.
        ended: those that ended lately.
        error: the driver's named error, if the evidence does not tell.
    """
    lines = summaries(host)
    blocked = why_blocked(host, error or host.driver_error)
    return Report(
        host=subject.name,
        simulated=subject.recording is None and host.last(GPU_EXPORTER_SIMULATED) == 1,
        recording=subject.recording,
        judged_at=host.at.wall,
        measured_seconds=host.seconds,
        driver=host.label(GPU_DRIVER_INFO, "driver_version"),
        areas=tuple(_area(area, lines[area], found) for area in Area),
        gpus=tuple(
            _gpu(gpu, bottlenecks[gpu], memories[gpu], found, continuous=subject.continuous) for gpu in host.gpus
        ),
        verdict=verdict_on(
            (finding.urgency for finding in found),
            was_read=blocked is None and (not host.gpus or host.was_read),
        ),
        not_read=tuple(not_read(host)),
        blocked=blocked,
        ended=ended,
        settings=host.settings.changed,
    )


def _area(area: Area, summary: str | None, found: list[Finding]) -> AreaVerdict:
    own = tuple(finding for finding in found if finding.check.area is area)
    severities = (finding.urgency for finding in own)
    return AreaVerdict(area, max(severities, key=lambda severity: severity.rank, default=None), summary, own)


def _gpu(
    gpu: GpuEvidence, bottleneck: Bottleneck, memory: GpuMemory, found: list[Finding], *, continuous: bool
) -> GpuVerdict:
    own = [finding for finding in found if finding.gpu == gpu.gpu and finding.uuid == gpu.uuid]
    return GpuVerdict(
        gpu=gpu.gpu,
        uuid=gpu.uuid,
        name=gpu.name,
        pci_bus_id=gpu.pci_bus_id,
        bottleneck=bottleneck,
        since=memory.since(gpu.at) if continuous else None,
        seconds=dict(memory.seconds),
        strip=memory.strip(gpu.at.monotonic),
        verdict=verdict_on((each.urgency for each in own), was_read=gpu.was_read),
        codes=tuple(dict.fromkeys(each.check.code for each in own)),
        holders=holders_of(gpu),
        readings=readings_of(gpu),
    )
