"""How soon a class follows what happens: at once if seconds show it strongly and it is news, else by the window."""

from types import MappingProxyType

import pytest
from tests.evidence import Key, Readings
from tests.fed import GPU, Fed

from gpu_triage.judge.bottleneck.class_history import Soon
from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.evidence.thresholds import (
    NEWS_SECONDS,
    NO_CAUSE_SECONDS,
    SOON_SECONDS,
    SOON_WAITING_SHARE,
    UNKNOWN_SECONDS,
    WINDOW_SECONDS,
)
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_PERFORMANCE_STATE, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host.disk import GPU_HOST_DISK_WRITTEN_BYTES_TOTAL
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.on_gpu import GPU_NUMA_MISMATCHED_PROCESSES, GPU_PROCESSES

STEP = 5.0
NONE: Readings = MappingProxyType({})


class Host:
    """A judged host with one GPU, whose readings change.

    Attributes:
        changes: each class that the GPU entered, with the second.
    """

    def __init__(self, step_seconds: float = STEP) -> None:
        self.fed, self._step_seconds = Fed(step_seconds), step_seconds
        self.changes: list[tuple[float, str]] = []
        self._totals: dict[Key, float] = {}

    def run(self, seconds: float, busy: float, more: Readings = NONE, *, processes: int | None = 1) -> Bottleneck:
        """Judge this for so long, each round; return what is said at the end."""
        readings: dict[Key, float] = {
            (GPU_UP, GPU): 1.0,
            (GPU_PERFORMANCE_STATE, GPU): 0.0,
            (GPU_MEMORY_USED_BYTES, GPU): 0.0 if processes == 0 else 8.0 * 1024**3,
            (GPU_SM_UTILIZATION_RATIO, GPU): busy,
            (GPU_BUSY_SECONDS_TOTAL, GPU): busy,
            **CALM,
            **more,
        }
        if processes is not None:
            readings[GPU_PROCESSES, (*GPU, "compute")] = processes
        until = self.fed.seconds + seconds
        while self.fed.seconds < until:
            at = self.fed.seconds
            self.fed.see([self._sample(key, value) for key, value in readings.items()])
            if not self.changes or self.changes[-1][1] != self.now.name:
                self.changes.append((at, self.now.name))
        return self.now

    def _sample(self, key: Key, value: float) -> Sample:
        spec, labels = key
        if spec.name.endswith("_total"):
            value = self._totals[key] = self._totals.get(key, 0.0) + value * self._step_seconds
        return spec.sample(value, *labels)

    @property
    def now(self) -> Bottleneck:
        return self.fed.report.gpus[0].bottleneck


PRESSURE, HEAT = (GPU_HOST_PRESSURE_SECONDS_TOTAL, ("io", "some")), (GPU_THROTTLE_SECONDS_TOTAL, (*GPU, "hw_thermal"))
CALM: Readings = {PRESSURE: 0.0, HEAT: 0.0, (GPU_HOST_DISK_WRITTEN_BYTES_TOTAL, ("nvme0n1",)): 0.0}
STALLED: Readings = {PRESSURE: 0.9}
SAVES: Readings = {**STALLED, (GPU_HOST_DISK_WRITTEN_BYTES_TOTAL, ("nvme0n1",)): 1e9}
MISPLACED: Readings = {(GPU_NUMA_MISMATCHED_PROCESSES, GPU): 1.0}
WORK_SECONDS, LOOK_SECONDS = 180.0, 120.0
HOT = LIMITS["thermal.hw"]["share"].value
AT_ONCE = SOON_SECONDS + STEP


def after_work(busy: float, more: Readings = NONE, step_seconds: float = STEP) -> list[tuple[float, str]]:
    """The classes of a GPU that worked and then is like this, with the seconds since then."""
    host = Host(step_seconds)
    host.run(WORK_SECONDS, 1.0)
    assert host.changes[-1][1] == "compute"
    known = len(host.changes)
    host.run(LOOK_SECONDS, busy, more)
    return [(at - WORK_SECONDS, name) for at, name in host.changes[known:]]


@pytest.mark.parametrize(
    ("busy", "more", "name"),
    [
        pytest.param(0.2, STALLED, "storage", id="it waits for storage"),
        pytest.param(1.0, {HEAT: 3 * HOT + 0.05}, "thermal", id="it is throttled"),
        pytest.param(0.2, MISPLACED, "numa", id="its process is on another node"),
    ],
)
def test_strong_evidence_decides_within_seconds_and_for_good(busy: float, more: Readings, name: str) -> None:
    ((seconds, found),) = after_work(busy, more)
    assert (found, seconds <= AT_ONCE) == (name, True)


@pytest.mark.parametrize(
    ("busy", "more", "name"),
    [
        pytest.param(SOON_WAITING_SHARE + 0.05, STALLED, "storage", id="it waits a little"),
        pytest.param(1.0, {HEAT: 3 * HOT - 0.05}, "thermal", id="it is throttled a little"),
        pytest.param(SOON_WAITING_SHARE + 0.02, NONE, "unattributed", id="without a cause"),
    ],
)
def test_weak_evidence_waits_for_the_window(busy: float, more: Readings, name: str) -> None:
    ((seconds, found),) = after_work(busy, more)
    assert (found, AT_ONCE < seconds <= WINDOW_SECONDS) == (name, True)


@pytest.mark.parametrize(
    ("seconds", "changes"), [(SOON_SECONDS, []), (SOON_SECONDS + NO_CAUSE_SECONDS + STEP, ["unattributed"])]
)
def test_what_has_no_cause_takes_longer_than_what_has(seconds: float, changes: list[str]) -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    known = len(host.changes)
    host.run(seconds, 0.2)
    assert [name for _, name in host.changes[known:]] == changes


@pytest.mark.parametrize(("step_seconds", "is_sudden"), [(SOON_SECONDS, True), (SOON_SECONDS + 1, False)])
def test_a_single_round_is_no_strong_evidence(step_seconds: float, *, is_sudden: bool) -> None:
    ((seconds, name),) = after_work(0.2, STALLED, step_seconds)
    assert (name, seconds < 2 * SOON_SECONDS) == ("storage", is_sudden)


@pytest.mark.parametrize(
    ("works_seconds", "names"),
    [
        pytest.param(NEWS_SECONDS - 15, ["storage", "compute"], id="it comes and goes"),
        pytest.param(NEWS_SECONDS + 15, ["storage", "compute"] * 4, id="each time it is news"),
    ],
)
def test_what_comes_back_soon_is_left_to_the_window(works_seconds: float, names: list[str]) -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    host.changes.clear()
    host.run(STEP, 1.0)
    for _ in range(4):
        host.run(15.0, 0.2, STALLED)
        host.run(works_seconds, 1.0)
    assert [name for _, name in host.changes][1:] == names


@pytest.mark.parametrize(("gap", "is_news"), [(NEWS_SECONDS, True), (NEWS_SECONDS - 1, False)])
def test_news_was_not_seen_for_a_while_and_stays_news_while_it_lasts(gap: float, *, is_news: bool) -> None:
    soon = Soon()
    assert [soon.note("compute", 0.0), soon.note("storage", 5.0), soon.note("storage", 10.0)] == [True] * 3
    assert soon.note("compute", 15.0) is False
    assert soon.note("compute", 10.0 + gap - 1) is False
    assert [soon.note("storage", 10.0 + gap), soon.note("storage", 500.0)] == [is_news] * 2


@pytest.mark.parametrize(
    ("more", "names"),
    [
        pytest.param(STALLED, ["storage"], id="something else"),
        pytest.param(NONE, ["thermal", "unattributed"], id="nothing known"),
    ],
)
def test_what_was_before_a_sudden_change_no_longer_counts(more: Readings, names: list[str]) -> None:
    """The heat of the minute before is still in the window."""
    host = Host()
    host.run(WORK_SECONDS, 1.0, {HEAT: 1.0})
    assert host.now.name == "thermal"
    host.run(SOON_SECONDS, 0.3, more)
    known = len(host.changes)
    host.run(20.0, 0.3, more)
    assert {name for _, name in host.changes[known - 1 :]} == set(names)


@pytest.mark.parametrize("more", [SAVES, {**SAVES, **MISPLACED}, MISPLACED], ids=["saves", "saves on", "misplaced"])
def test_a_pause_is_none_of_the_classes_that_a_job_at_work_would_have(more: Readings) -> None:
    assert after_work(0.0, more) == []
    assert after_work(0.2, more) != [], "what works now and then does not pause"


def test_a_pause_says_how_long_it_has_lasted() -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    said = host.run(60.0, 0.0)
    assert (said.name, said.because) == ("compute", "pauses, for 60 s now; compute before that")


def test_a_class_that_is_held_keeps_its_own_words() -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    share = SOON_WAITING_SHARE + 0.02
    while host.run(STEP, share).because.startswith("busy") and "until" not in host.now.because:
        assert host.now.name == "compute"
    held = [host.now.because] + [host.run(STEP, share).because for _ in range(2)]
    assert host.now.name == "compute"
    words, seconds = zip(*(each.split(", until ") for each in held), strict=True)
    assert seconds == ("5 s ago", "10 s ago", "15 s ago")
    assert len(set(words)) == 1
    assert words[0].endswith("nothing holds it back")
    assert host.run(UNKNOWN_SECONDS, share).name == "unattributed"
    assert "until" not in host.now.because
