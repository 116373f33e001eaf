"""The whole verdict on a host: findings, one bottleneck a GPU, who should go on taking work, and what was not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.blind_spots import blind_spots
from gpu_triage.diagnosis.calm import summaries
from gpu_triage.diagnosis.codes import CHECKS, EXPLAINED_BY, Area, Severity
from gpu_triage.diagnosis.findings import Finding, Judge
from gpu_triage.diagnosis.judge_clocks import judge_clock_policy, judge_heat, judge_power, judge_stragglers
from gpu_triage.diagnosis.judge_feed import (
    judge_baseline,
    judge_locality,
    judge_memory_growth,
    judge_placement,
    judge_settings,
    starvation_judge,
    work_judge,
)
from gpu_triage.diagnosis.judge_health import judge_memory_errors, judge_presence, judge_recovery, judge_xids
from gpu_triage.diagnosis.judge_paths import judge_link_errors, judge_links, judge_nvlink, judge_peers, judge_slots
from gpu_triage.diagnosis.ladder import Bottleneck
from gpu_triage.diagnosis.past import ClassMemory, Stretch
from gpu_triage.diagnosis.repeat_offenders import judge_repeat_offenders
from gpu_triage.diagnosis.verdicts import Verdict, exit_code, verdict_on
from gpu_triage.diagnosis.view import GpuView, HostView

JUDGES: Final[tuple[Judge, ...]] = (
    judge_presence,
    judge_xids,
    judge_repeat_offenders,
    judge_memory_errors,
    judge_recovery,
    judge_heat,
    judge_power,
    judge_clock_policy,
    judge_stragglers,
    judge_links,
    judge_link_errors,
    judge_slots,
    judge_baseline,
    judge_peers,
    judge_nvlink,
    judge_locality,
    judge_placement,
    judge_memory_growth,
    judge_settings,
)
"""All judges but those that need the bottlenecks."""


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """The verdict on one GPU.

    Attributes:
        gpu: NVML index, as text.
        uuid: "" where it was never told.
        name: of the model; "" where unknown.
        pci_bus_id: "" where unknown.
        bottleneck: which resource is scarce first.
        since: Unix seconds at which it came into that class, as far as was seen; None after one look.
        seconds: that it spent in each class so far.
        strip: its classes of the last half hour.
        verdict: whether it should go on taking work.
        codes: of its findings.
    """

    gpu: str
    uuid: str
    name: str
    pci_bus_id: str
    bottleneck: Bottleneck
    since: float | None
    seconds: Mapping[str, float]
    strip: tuple[Stretch, ...]
    verdict: Verdict
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AreaVerdict:
    """One area of the playbook.

    Attributes:
        area: which one.
        severity: of its worst finding; None when there is none.
        summary: what was read, in one line; None where nothing was.
        findings: worst first within the order of the playbook.
    """

    area: Area
    severity: Severity | None
    summary: str | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a host.

    Attributes:
        host: its name, or that of the scenario.
        simulated: whether it is made up.
        recording: file that is replayed; None on a host of now.
        measured_seconds: over how long it was measured.
        driver: version of the driver; "" while it is unavailable.
        areas: in the playbook's order.
        gpus: by index.
        verdict: on the host.
        not_read: what could not be read, and what that hides.
        blocked: why the GPUs could not be looked at at all, and what to do; None when they could.
    """

    host: str
    simulated: bool
    recording: str | None
    measured_seconds: float
    driver: str
    areas: tuple[AreaVerdict, ...]
    gpus: tuple[GpuVerdict, ...]
    verdict: Verdict
    not_read: tuple[str, ...]
    blocked: str | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, in the playbook's order."""
        return tuple(finding for area in self.areas for finding in area.findings)

    def exit_code(self, fail_on: Severity) -> int:
        """Of a look that found this, as the table of verdicts has it."""
        severities = [finding.check.severity for finding in self.findings]
        return exit_code(severities, fail_on, blocked=self.blocked is not None)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is judged.

    Attributes:
        name: of the host, or of the scenario.
        recording: file that is replayed; None on a host of now.
        continuous: whether it is judged again and again; one look cannot tell since when anything lasts.
    """

    name: str
    recording: str | None = None
    continuous: bool = False


def findings_of(host: HostView, bottlenecks: Mapping[GpuView, Bottleneck]) -> list[Finding]:
    """Everything found, in the playbook's order, with the cause of what follows from something else."""
    judges = (*JUDGES, starvation_judge(bottlenecks), work_judge(bottlenecks))
    order = {check.code: place for place, check in enumerate(CHECKS)}
    return _explained(sorted((f for judge in judges for f in judge(host)), key=lambda f: order[f.check.code]))


def report_of(
    subject: Subject,
    host: HostView,
    classes: Mapping[GpuView, tuple[Bottleneck, ClassMemory]],
    found: list[Finding],
    blocked: str | None,
) -> Report:
    """The verdict on a host.

    Args:
        subject: what is judged.
        host: as measured.
        classes: the class of each GPU, and what is remembered of it.
        found: the findings.
        blocked: why the GPUs could not be looked at at all; None when they could.
    """
    evidence = host.evidence
    gpus = tuple(_gpu(gpu, *classes[gpu], found, continuous=subject.continuous) for gpu in host.gpus)
    driver = evidence.one(catalogue.DRIVER_INFO)
    was_read = blocked is None and (not host.gpus or any(gpu.was_read for gpu in host.gpus))
    return Report(
        host=subject.name,
        simulated=subject.recording is None and evidence.last(catalogue.EXPORTER_SIMULATED) == 1,
        recording=subject.recording,
        measured_seconds=evidence.seconds,
        driver="" if driver is None else driver.labels["driver_version"],
        areas=_areas(host, found),
        gpus=gpus,
        verdict=verdict_on((finding.check.severity for finding in found), was_read=was_read),
        not_read=blind_spots(host),
        blocked=blocked,
    )


def _explained(found: list[Finding]) -> list[Finding]:
    codes = {(finding.subject, finding.check.code) for finding in found}
    return [
        replace(finding, explained_by=cause)
        if (cause := next((c for c in EXPLAINED_BY.get(finding.check.code, ()) if (finding.subject, c) in codes), ""))
        else finding
        for finding in found
    ]


def _areas(host: HostView, found: list[Finding]) -> tuple[AreaVerdict, ...]:
    lines = summaries(host)
    areas = []
    for area in Area:
        own = tuple(finding for finding in found if finding.check.area is area)
        areas.append(AreaVerdict(area, _worst(own), lines[area], own))
    return tuple(areas)


def _worst(findings: Iterable[Finding]) -> Severity | None:
    return max((finding.check.severity for finding in findings), key=lambda severity: severity.rank, default=None)


def _gpu(
    gpu: GpuView, bottleneck: Bottleneck, memory: ClassMemory, found: list[Finding], *, continuous: bool
) -> GpuVerdict:
    now = gpu.evidence.at
    own = [finding for finding in found if finding.gpu == gpu.gpu and finding.uuid == gpu.uuid]
    return GpuVerdict(
        gpu=gpu.gpu,
        uuid=gpu.uuid,
        name=gpu.name,
        pci_bus_id=gpu.label(catalogue.INFO, "pci_bus_id"),
        bottleneck=bottleneck,
        since=memory.since.wall if continuous and memory.since is not None else None,
        seconds=dict(memory.seconds),
        strip=memory.strip(now.monotonic),
        verdict=verdict_on((finding.check.severity for finding in own), was_read=gpu.was_read),
        codes=tuple(dict.fromkeys(finding.check.code for finding in own)),
    )
