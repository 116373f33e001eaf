"""The whole verdict on a host: findings, one bottleneck a GPU, who should go on taking work, and what was not seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.blind_spots import blind_spots
from gpu_triage.diagnosis.calm import summaries
from gpu_triage.diagnosis.codes import CHECKS, EXPLAINED_BY, Area, Severity
from gpu_triage.diagnosis.evidence import Evidence
from gpu_triage.diagnosis.findings import Finding, Judge
from gpu_triage.diagnosis.judge_clocks import judge_clock_policy, judge_heat, judge_power, judge_stragglers
from gpu_triage.diagnosis.judge_feed import (
    judge_baseline,
    judge_locality,
    judge_placement,
    judge_settings,
    judge_work,
    spinning_judge,
    starvation_judge,
)
from gpu_triage.diagnosis.judge_health import judge_memory_errors, judge_presence, judge_recovery, judge_xids
from gpu_triage.diagnosis.judge_paths import judge_link_errors, judge_links, judge_nvlink, judge_peers, judge_slots
from gpu_triage.diagnosis.ladder import Bottleneck, bottleneck_of
from gpu_triage.diagnosis.view import GpuView, HostView, view_of

JUDGES: Final[tuple[Judge, ...]] = (
    judge_presence,
    judge_xids,
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
    judge_work,
    judge_settings,
)
"""All judges but those that need the bottlenecks."""


class Fitness(Enum):
    """Whether a GPU or the host should go on taking work."""

    KEEP = "keep"
    WATCH = "watch"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """The verdict on one GPU.

    Attributes:
        gpu: NVML index, as text.
        uuid: "" where it was never told.
        name: of the model; "" where unknown.
        pci_bus_id: "" where unknown.
        bottleneck: which resource is scarce first.
        fitness: whether it should go on taking work.
        codes: of its findings.
    """

    gpu: str
    uuid: str
    name: str
    pci_bus_id: str
    bottleneck: Bottleneck
    fitness: Fitness
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AreaVerdict:
    """One area of the playbook.

    Attributes:
        area: which one.
        severity: of its worst finding; None when there is none.
        summary: what was looked at, in one line.
        findings: worst first within the order of the playbook.
    """

    area: Area
    severity: Severity | None
    summary: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a host.

    Attributes:
        host: its name, or that of the scenario.
        simulated: whether it is made up.
        watched_seconds: how long it was watched.
        driver: version of the driver; "" while it is unavailable.
        areas: in the playbook's order.
        gpus: by index.
        fitness: of the host.
        not_read: what could not be read, and what that hides.
        blocked: why the GPUs could not be looked at at all, and what to do; None when they could.
    """

    host: str
    simulated: bool
    watched_seconds: float
    driver: str
    areas: tuple[AreaVerdict, ...]
    gpus: tuple[GpuVerdict, ...]
    fitness: Fitness
    not_read: tuple[str, ...]
    blocked: str | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, in the playbook's order."""
        return tuple(finding for area in self.areas for finding in area.findings)

    def reaches(self, severity: Severity) -> bool:
        """Whether any finding is at least as severe."""
        return any(finding.check.severity.rank >= severity.rank for finding in self.findings)


def report_of(evidence: Evidence, host_name: str, blocked: str | None) -> Report:
    """The verdict on this evidence."""
    host = view_of(evidence)
    bottlenecks = {gpu: bottleneck_of(gpu, host) for gpu in host.gpus}
    judges = (*JUDGES, starvation_judge(bottlenecks), spinning_judge(bottlenecks))
    order = {check.code: place for place, check in enumerate(CHECKS)}
    found = _explained(sorted((f for judge in judges for f in judge(host)), key=lambda f: order[f.check.code]))
    gpus = tuple(_gpu(gpu, bottlenecks[gpu], found) for gpu in host.gpus)
    driver = evidence.one(catalogue.DRIVER_INFO)
    return Report(
        host=host_name,
        simulated=evidence.last(catalogue.EXPORTER_SIMULATED) == 1,
        watched_seconds=evidence.seconds,
        driver="" if driver is None else driver.labels["driver_version"],
        areas=_areas(host, found),
        gpus=gpus,
        fitness=Fitness.WATCH if host.released else _host_fitness(found, gpus, blocked),
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


def _gpu(gpu: GpuView, bottleneck: Bottleneck, found: list[Finding]) -> GpuVerdict:
    bus_id = gpu.label(catalogue.INFO, "pci_bus_id")
    own = [finding for finding in found if finding.gpu == gpu.gpu and finding.uuid == gpu.uuid]
    return GpuVerdict(
        gpu=gpu.gpu,
        uuid=gpu.uuid,
        name=gpu.name,
        pci_bus_id=bus_id,
        bottleneck=bottleneck,
        fitness=_fitness(own),
        codes=tuple(dict.fromkeys(finding.check.code for finding in own)),
    )


def _fitness(findings: Iterable[Finding]) -> Fitness:
    worst = _worst(findings)
    if worst is Severity.CRITICAL:
        return Fitness.DRAIN
    return Fitness.WATCH if worst is Severity.WARNING else Fitness.KEEP


def _host_fitness(found: list[Finding], gpus: tuple[GpuVerdict, ...], blocked: str | None) -> Fitness:
    own = _fitness(finding for finding in found if finding.of_host)
    if blocked is not None or own is Fitness.DRAIN:
        return Fitness.DRAIN
    # A board without an index is nobody's GPU here, but somebody's to look after.
    ailing = any(gpu.fitness is not Fitness.KEEP for gpu in gpus) or _fitness(found) is not Fitness.KEEP
    if gpus and all(gpu.fitness is Fitness.DRAIN for gpu in gpus):
        return Fitness.DRAIN
    return Fitness.WATCH if ailing else Fitness.KEEP
