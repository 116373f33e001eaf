"""A finding of any kind follows its GPU from what is known of it to what is known later, and ends after the repair."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from types import MappingProxyType
from typing import NamedTuple

import pytest
from tests.rig import rig, three

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.observed import READS
from gpu_triage.judge.evidence.past import DAY_SECONDS, Memory
from gpu_triage.judge.evidence.series import Group, Labels
from gpu_triage.judge.findings.finding import Finding, KnownGpus, State
from gpu_triage.judge.findings.saved import SAVED_FINDINGS, SavedLives
from gpu_triage.judge.findings.states import EndReason, FindingStates, Life
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Check
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.modes import GPU_VGPU_LICENSE_STATE
from gpu_triage.read.gpu.nvlink import GPU_C2C_LINKS_UP
from gpu_triage.read.gpu.presence import GPU_ERROR_INFO, GPU_UP
from gpu_triage.read.metrics.metric import GPU_LABELS, MetricSpec

BEGIN, STEP, WINDOW = 130.0, 60.0, 60.0
LONGEST = max(check.wait_seconds for check in CHECKS), max(check.hold_seconds for check in CHECKS)
INDEX = "1"
AT_REST = "pcie.generation_low"
"""The only kind that cannot be observed on a busy GPU."""
FINE = MappingProxyType({GPU_VGPU_LICENSE_STATE: GPU_VGPU_LICENSE_STATE.value_of("licensed"), GPU_C2C_LINKS_UP: 10})
"""What GPUs that have it report when it is fine; of others it is 0."""


class Gpu(NamedTuple):
    """The GPU as it is known; without an index, the driver does not show it."""

    gpu: str = ""
    uuid: str = ""
    pci_bus_id: str = ""


@pytest.fixture(scope="module")
def healthy() -> HostEvidence:
    """A host with three busy GPUs that report whatever a finding may be based on."""
    with rig(three("h100-8"), Config()) as running:
        running.run_to(BEGIN)
        assert running.judge.latest is not None
        host = running.judge.latest.host
    index = {spec: dict(groups) for spec, groups in host.index.items()}
    for spec in set(READS.values()) - index.keys():
        owner = (host.gpus[1].gpu, host.gpus[1].uuid) if spec.labels[:2] == GPU_LABELS else ()
        labels = (*owner, *(next(iter(spec.label_values.get(name, ())), "x") for name in spec.labels[len(owner) :]))
        index[spec] = {owner: {labels: (host.at.monotonic, float(FINE.get(spec, 0)))}}
    return replace(host, index=index)


def known_as(healthy: HostEvidence, gpu: Gpu) -> HostEvidence:
    """The host when its second GPU is known as this; without a UUID, it does not answer."""
    if gpu.uuid:
        return healthy
    own = (healthy.gpus[1].gpu, healthy.gpus[1].uuid)
    index: dict[MetricSpec, Mapping[Labels, Group]] = {
        spec: {labels: group for labels, group in groups.items() if labels != own}
        for spec, groups in healthy.index.items()
    }
    if gpu.gpu:
        names = (gpu.gpu, "")
        facts = [(GPU_UP, names, 0.0), (GPU_ERROR_INFO, (*names, "lost"), 1.0)]
        if gpu.pci_bus_id:
            facts.append((GPU_INFO, (*names, "", gpu.pci_bus_id, *[""] * 6), 1.0))
        for spec, labels, value in facts:
            index[spec] = {**index.get(spec, {}), names: {labels: (healthy.at.monotonic, value)}}
    return replace(healthy, index=index)


class Course:
    """The judge on a host with a fault of every kind at once."""

    def __init__(self, healthy: HostEvidence) -> None:
        memory = Memory()
        memory.seconds = 2 * DAY_SECONDS
        self.healthy = replace(healthy, memory=memory)
        self.now = healthy.at.monotonic
        self.judge = HostJudge(JudgedHost("host", continuous=True))
        self.ends: set[EndReason] = set()

    def restart(self) -> None:
        saved = SAVED_FINDINGS.encode(SavedLives("boot", self.judge.states.lives))
        self.judge = HostJudge(JudgedHost("host", continuous=True))
        self.judge.states.restore(SAVED_FINDINGS.decode(saved, "findings.json", 0.0).memory.lives)

    def look(self, gpu: Gpu, found: Sequence[Finding] = (), after: float = STEP) -> list[Life]:
        """Judge after some seconds; returns the pending and confirmed lives of the GPU and of the host."""
        self.now += after
        began = self.healthy.at
        host = replace(known_as(self.healthy, gpu), at=Moment(self.now, began.wall + self.now - began.monotonic))
        self.judge.judge(host, more=found)
        lives = self.judge.states.lives
        self.ends |= {life.end for life in lives if life.end is not None}
        others = {each.uuid for each in self.healthy.gpus} - {self.healthy.gpus[1].uuid}
        return [life for life in lives if life.state is not State.ENDED and life.finding.uuid not in others]


def made(check: Check, gpu: str = "", uuid: str = "", pci_bus_id: str = "") -> Finding:
    return Finding(check, "x", gpu or None, uuid, pci_bus_id, value=None if check.measure is None else 1.0)


KNOWN = ("UUID", "address", "slot", "index")
COURSES = (*((each,) for each in KNOWN), *product(KNOWN[:3], repeat=2), ("index", "index"))


@pytest.mark.slow
@pytest.mark.parametrize("course", COURSES, ids=" then ".join)
def test_a_finding_of_any_kind_ends_in_its_hold_once_its_gpu_is_repaired(
    healthy: HostEvidence, course: tuple[str, ...]
) -> None:
    """The exporter is restarted between the two parts of a course; one of one part is of its first start."""
    whole = Gpu(INDEX, healthy.gpus[1].uuid, healthy.gpus[1].pci_bus_id)
    gpus = {
        "UUID": whole,
        "address": whole._replace(uuid=""),
        "slot": Gpu(pci_bus_id=whole.pci_bus_id),
        "index": Gpu(INDEX),
    }
    running = Course(healthy)
    for number, known in enumerate(course):
        if number:
            running.restart()
        gpu = gpus[known]
        found = [made(check, *(() if check.of_host else gpu)) for check in CHECKS]
        running.look(gpu, found)
        lives = running.look(gpu, found, after=LONGEST[0])
        assert {life.state for life in lives} == {State.CONFIRMED}
        assert len(lives) == len(CHECKS), "one of each kind"
    repaired_at, over_at = running.now, dict[str, float]()
    while running.now < repaired_at + WINDOW + LONGEST[1] + 2 * STEP:
        codes = [life.finding.check.code for life in running.look(whole)]
        assert len(set(codes)) == len(codes)
        over_at |= {check.code: running.now for check in CHECKS if check.code not in {*over_at, *codes}}
    lasted = {check: over_at.get(check.code, inf) - repaired_at for check in CHECKS if check.code != AT_REST}
    assert [check.code for check, seconds in lasted.items() if seconds > WINDOW + check.hold_seconds + 2 * STEP] == []
    assert running.ends <= {EndReason.GONE, EndReason.MOVED}


X = Gpu("1", "GPU-x", "0000:b3:00.0")
Y = Gpu("0", "GPU-y", "0000:65:00.0")
UNNAMED = X._replace(uuid="")
LATCHED, WAITS = made(BY_CODE["gpu.lost"], *X), made(BY_CODE["thermal.hw"], *X)
AT_SLOT = Finding(BY_CODE["gpu.lost"], "x", pci_bus_id=X.pci_bus_id)


def ends(states: FindingStates) -> list[tuple[str, EndReason]]:
    return [(life.finding.identity, life.end) for life in states.lives if life.end is not None]


def judged(states: FindingStates, at: float, gpus: Sequence[Gpu], *found: Finding) -> list[Finding]:
    """The pending and confirmed findings on a host with these GPUs."""
    present, _ = states.judge(found, lambda _finding: True, at, gpus=KnownGpus(gpus))
    return [life.finding for life in present]


@pytest.mark.parametrize("before", [AT_SLOT, replace(LATCHED, uuid=""), replace(LATCHED, uuid="", pci_bus_id="")])
def test_a_finding_goes_on_under_the_uuid_and_what_was_published_before_ends(before: Finding) -> None:
    states = FindingStates()
    judged(states, 0.0, [], before)
    assert judged(states, 5.0, [Y, X]) == [before.about(X)]
    assert ends(states) == [(before.identity, EndReason.MOVED)]
    assert judged(states, 10.0, [Y, X], LATCHED) == [LATCHED]
    (life,) = (life for life in states.lives if life.state is State.CONFIRMED)
    assert (life.began_at, life.holds) == (0.0, True)


def test_a_pending_finding_moves_without_a_trace_and_its_wait_goes_on() -> None:
    states = FindingStates()
    judged(states, 0.0, [UNNAMED], replace(WAITS, uuid=""))
    judged(states, 60.0, [X], WAITS)
    (life,) = states.lives
    assert (life.finding, life.lasted_seconds) == (WAITS, 60.0)


def test_what_is_still_said_of_a_slot_stays_with_the_slot() -> None:
    """An Xid of before the kernel found the present card may be of another card."""
    states = FindingStates()
    judged(states, 0.0, [], AT_SLOT)
    assert judged(states, 5.0, [X], AT_SLOT) == [AT_SLOT]
    assert ends(states) == []


def test_a_board_that_was_known_before_is_the_one_at_its_address() -> None:
    states = FindingStates()
    judged(states, 0.0, [X], LATCHED)
    assert judged(states, 5.0, [UNNAMED], replace(LATCHED, uuid="")) == [LATCHED]
    assert judged(states, 10.0, [], AT_SLOT) == [replace(LATCHED, gpu=None)]


def test_a_finding_about_a_board_ends_when_another_one_is_in_its_slot() -> None:
    states = FindingStates()
    new = X._replace(uuid="GPU-new")
    judged(states, 0.0, [X], LATCHED, WAITS)
    assert judged(states, 5.0, [new]) == []
    assert ends(states) == [(X.uuid, EndReason.REPLACED)]
    fault = replace(LATCHED, uuid=new.uuid)
    assert judged(states, 10.0, [new], fault) == [fault]


def test_a_board_that_has_moved_to_another_slot_keeps_its_findings() -> None:
    states = FindingStates()
    judged(states, 0.0, [X, Y], LATCHED)
    moved = X._replace(pci_bus_id="0000:17:00.0")
    assert judged(states, 5.0, [moved, Y._replace(pci_bus_id=X.pci_bus_id)]) == [LATCHED.about(moved)]


def test_the_index_of_a_gpu_that_is_gone_is_not_taken_for_the_gpu() -> None:
    """The driver numbers the others anew."""
    states, lost = FindingStates(), replace(LATCHED, gpu="0", uuid="", pci_bus_id=Y.pci_bus_id)
    other = made(BY_CODE["recovery.action"], *X)
    judged(states, 0.0, [Y._replace(uuid=""), X], lost, other)
    assert judged(states, 5.0, [X._replace(gpu="0")]) == [lost, replace(other, gpu="0")]
    assert ends(states) == []
