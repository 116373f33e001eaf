"""Lanes and waits: jobs that compute run one after another, and whatever becomes of one, the others go on.

How long the sampler waits: until it tries again, before it doubts itself, and when it is told to stop.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import pytest
from tests.e2e.processes import wait_for

from gpu_triage.errors import DriverUnavailable
from gpu_triage.machine import CallBlocked, Machine, Moment, ProbeReport, RealClock, SystemNvml
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.ledger import INCIDENT_HISTORY, RESET, Incident, IncidentLedger
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.sampler import lanes
from gpu_triage.sampler.driver import DriverLook, DriverWatch, ProbeSchedule
from gpu_triage.sampler.lanes import CallWatch, InlineLane, Job, Lane, ThreadLane, Turn, lacking_threads
from gpu_triage.sampler.outcomes import Context, OutcomeStore
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import JudgeRounds, Sampler
from gpu_triage.sampler.state_directory import StateDirectory
from gpu_triage.sampler.state_store import StateStore, StateStores
from gpu_triage_simulator import VirtualClock

LANES = 6
WAIT_SECONDS = 20.0


class Rounds:
    """As much of a sampler as the runner needs: a job for each lane, once."""

    fatal = None

    def __init__(self, jobs: dict[Lane, Job]) -> None:
        self._jobs = jobs
        self._lanes = tuple(jobs)

    def step(self) -> None:
        while self._jobs:
            lane, job = self._jobs.popitem()
            assert lane.ready()
            lane.submit(job, queued=True)

    def save_incidents(self) -> None:
        return None

    def publish(self) -> None:
        return None

    def idle(self) -> bool:
        return all(lane.busy_since is None for lane in self._lanes)

    def close(self, wait: object) -> None:
        del wait

    def save(self, wait: object) -> None:
        del wait


def _nothing() -> None:
    return None


def _fail() -> None:
    raise ZeroDivisionError


@pytest.fixture
def queue() -> Iterator[Callable[[Job], None]]:
    """Starts a job in a lane of its own, which waits for the turn of all."""
    turn, used = Turn(), []

    def start(job: Job) -> None:
        used.append(lane := ThreadLane("test", RealClock(), _nothing, turn))
        assert lane.ready()
        lane.submit(job, queued=True)

    yield start
    for lane in used:
        lane.close()


@pytest.fixture
def held(queue: Callable[[Job], None]) -> Iterator[threading.Event]:
    """Ends the job that has the turn."""
    began, held = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        held.wait(WAIT_SECONDS)

    queue(hang)
    assert began.wait(WAIT_SECONDS)
    yield held
    held.set()


def test_queued_jobs_run_one_at_a_time(
    queue: Callable[[Job], None], held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_TURN_SECONDS", WAIT_SECONDS)
    done = threading.Event()
    queue(done.set)
    assert not done.wait(0.1)
    held.set()
    assert done.wait(WAIT_SECONDS)


@pytest.mark.usefixtures("held")
def test_a_job_that_hangs_is_waited_for_once(queue: Callable[[Job], None], monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = threading.Event(), threading.Event()
    queue(second.set)
    assert second.wait(WAIT_SECONDS)
    monkeypatch.setattr(lanes, "_TURN_SECONDS", WAIT_SECONDS)
    queue(third.set)
    assert third.wait(WAIT_SECONDS / 2)


class Taken:
    """A lock that another thread keeps."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def acquire(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return False


def test_a_turn_is_given_back_by_the_job_that_has_it_even_if_that_fails() -> None:
    turn = Turn()
    with pytest.raises(ZeroDivisionError):
        turn.run(_fail)
    assert not turn._lock.locked()
    turn._lock = cast("threading.Lock", taken := Taken())
    turn.run(_nothing)
    assert taken.waits == [0.05]
    assert not turn._lock.locked()


def test_the_runner_lets_all_go_when_one_hangs() -> None:
    held, done = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        held.wait(WAIT_SECONDS)

    runner = Runner(RealClock(), 1.0)
    *others, stuck = (runner.lane(f"gpu-{index}") for index in range(LANES))
    jobs: dict[Lane, Job] = dict.fromkeys(others, done.release)
    jobs[stuck] = hang  # the first to be started
    runner.start(cast("Sampler", Rounds(jobs)), _nothing, lambda _cause: None)
    try:
        assert all(done.acquire(timeout=WAIT_SECONDS) for _ in others)
    finally:
        held.set()
        runner.request_stop()


def assert_works(lane: ThreadLane) -> None:
    done = threading.Event()
    lane.submit(done.set)
    assert done.wait(WAIT_SECONDS)


@pytest.fixture
def lane() -> Iterator[ThreadLane]:
    lane = ThreadLane("test", RealClock(), lambda: None, Turn())
    yield lane
    lane.close()


def test_a_thread_is_started_when_it_is_needed(lane: ThreadLane) -> None:
    before = frozenset(threading.enumerate())
    assert lane.busy_since is None
    assert frozenset(threading.enumerate()) <= before
    assert lane.ready()
    assert_works(lane)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_in_a_job_is_replaced_and_gets_no_other() -> None:
    def die() -> None:
        raise MemoryError

    idle: list[bool] = []
    dying = ThreadLane("test", RealClock(), lambda: idle.append(dying.busy_since is None), Turn())
    assert dying.ready()
    dying.submit(die)
    wait_for(dying.ready)
    assert idle == [False]
    assert_works(dying)
    wait_for(lambda: idle == [False, True])
    dying.close()


def test_a_thread_that_cannot_start_is_tried_again(lane: ThreadLane, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not lane.ready()
        since = lane.refused_since
        assert since is not None
        assert not lane.ready()
        assert lane.refused_since == since
        assert lane.busy_since is None
    assert lane.ready()
    assert lane.refused_since is None


T = TypeVar("T")

CONFIG = Config()
EPSILON = 0.01


class CountingLane(InlineLane):
    """Counts jobs instead of running them."""

    jobs = 0

    def submit(self, job: Job, *, queued: bool = False) -> None:
        del job, queued
        self.jobs += 1


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(SystemNvml(), tmp_path / "sys", tmp_path / "proc", None, VirtualClock(monotonic=0.0))


def context(machine: Machine) -> Context:
    return Context(machine, CONFIG, partial(InlineLane, machine.clock), lambda _take: None, lambda _outcome: None)


def test_a_driver_that_does_not_answer_is_tried_less_and_less_often(machine: Machine) -> None:
    lane = CountingLane(machine.clock)
    driver = DriverWatch(context(machine), lane, lambda _look: None)
    now = 0.0
    for seconds in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        driver.take(DriverLook(None, None, DriverUnavailable("driver_not_loaded", ""), opened=True), now)
        before = lane.jobs
        driver.submit(now + seconds - EPSILON, reopen=False, quiet=True)
        assert lane.jobs == before, seconds
        now += seconds
        driver.submit(now, reopen=False, quiet=True)
        assert lane.jobs == before + 1, seconds


class NoProbe:
    def look(self) -> ProbeReport:
        raise AssertionError


def test_missing_gpus_are_looked_for_less_and_less_often_after_two_minutes() -> None:
    lane = CountingLane(VirtualClock())
    probes = ProbeSchedule(NoProbe(), lane, lambda _report: None)
    looked = []
    for second in range(3300):
        before = lane.jobs
        probes.update(float(second), missing=second < 2300, at_once=False)  # then they are back
        probes.submit(float(second))
        looked += [second] if lane.jobs > before else []
    assert looked == [*range(5, 136, 10), 155, 195, 275, 435, 755, 1395, 2295]


def test_a_session_for_the_same_gpus_is_opened_after_a_pause_that_doubles() -> None:
    probes = ProbeSchedule(None, CountingLane(VirtualClock()), lambda _report: None)
    back = frozenset({"GPU-1"})
    opened = [second for second in range(3000) if probes.needs_new_session(back, float(second))]
    assert opened == [0, 15, 45, 105, 225, 465, 945, 1845, 2745]
    assert probes.needs_new_session(frozenset({"GPU-2"}), 2746.0)
    assert not probes.needs_new_session(frozenset({"GPU-2"}), 2746.0 + 15 - EPSILON)


@pytest.mark.parametrize(("reason", "seconds"), [("in_use", 10.0), ("missing", 60.0)])
def test_a_state_directory_that_cannot_be_used_is_tried_again(
    machine: Machine, tmp_path: Path, reason: str, seconds: float
) -> None:
    directory = tmp_path / "state"
    if reason == "in_use":
        directory.mkdir()
        StateDirectory(directory).lock()
    store = state_store(machine, directory)
    visit = store.due(0.0)
    assert visit is not None
    assert store.take(visit(), 0.0) == (reason,)
    assert store.due(seconds - EPSILON) is None
    assert store.due(seconds) is not None


def state_store(machine: Machine, directory: Path, kept: IncidentLedger | None = None) -> StateStore[object]:
    lane = InlineLane(machine.clock)
    stores = StateStores(context(machine), lane, StateDirectory(directory), lambda _name, _errors: None, may_write=True)
    return cast("StateStore[object]", stores.add(INCIDENT_HISTORY, kept or IncidentLedger()))


def test_changes_are_saved_at_once_and_then_every_five_seconds(machine: Machine, tmp_path: Path) -> None:
    ledger = IncidentLedger()
    store = state_store(machine, tmp_path, ledger)
    saved = []
    for second in range(20):
        visit = store.due(float(second))
        if visit is not None:
            news = visit()
            store.take(news, float(second))
            saved += [second] if news.written is not None else []
        ledger.note(Incident(RESET, f"GPU-{second}", "", "", second, second, "", float(second)))
    assert saved == [1, 6, 11, 16]


@pytest.mark.parametrize(("waited", "settled"), [(5.0, False), (5.0 + EPSILON, True)])
def test_incidents_wait_for_the_saved_state_for_five_seconds(
    machine: Machine, tmp_path: Path, waited: float, *, settled: bool
) -> None:
    store = state_store(machine, tmp_path)
    assert not store.settled(0.0)
    store.due(0.0)
    assert store.settled(waited) is settled


class NoJudge:
    judged = 0
    saved = (None, None)

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        del store, now
        self.judged += 1
        return iter(())

    def interrupt(self) -> None:
        raise AssertionError


def test_the_first_judgment_waits_for_the_first_readings_for_ten_seconds() -> None:
    judge, counted = NoJudge(), []
    rounds = JudgeRounds(judge, VirtualClock(), 5.0)  # type: ignore[arg-type]  # it keeps nothing
    for now in (0.0, 10.0 - EPSILON, 10.0, 15.0 - EPSILON, 15.0):
        rounds.run(OutcomeStore(["judge"]), None, Moment(now, now), starting=True)
        counted.append(judge.judged)
    assert counted == [0, 0, 1, 1, 2]


def test_a_call_is_named_after_a_second_and_a_lane_that_lacks_a_thread_after_thirty() -> None:
    clock = VirtualClock(monotonic=0.0)
    lane = InlineLane(clock, "thermal")

    def blocked() -> None:
        raise CallBlocked(100.0)

    lane.submit(blocked)
    lane.refused_since = 0.0
    for seconds, named, lacking in ((1.0 - EPSILON, 0, False), (1.0, 1, False), (30.0, 1, False), (30.01, 1, True)):
        clock.advance(seconds - clock.now().monotonic)
        assert len(CallWatch(5.0).look([lane], seconds)) == named
        assert ("thermal" in (lacking_threads([lane], seconds) or "")) is lacking


def test_a_sampler_that_publishes_nothing_for_long_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(RealClock(), 1.0)
    assert runner.alive() is not None
    runner._thread, runner._published_at = threading.current_thread(), 100.0
    for silence, alive in ((31.0, True), (31.0 + EPSILON, False)):
        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", lambda silence=silence: 100.0 + silence)
            assert (runner.alive() is None) is alive


class EndedThread(threading.Thread):
    """Notes how long its end would be waited for."""

    waited: float | None = None

    def join(self, timeout: float | None = None) -> None:
        self.waited = timeout


def test_sampling_has_two_seconds_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(RealClock(), 1.0)
    assert runner.seconds_left == float("inf")
    now, left = [1000.0], []
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        runner._thread = ended = EndedThread()
        runner.stop()
        assert ended.waited == pytest.approx(2.2), "it may still log what could not be done"
        for now[0] in (1000.0, 1001.5, 1002.0, 1010.0):
            left.append(runner.seconds_left)
    assert left == [2.0, 0.5, 0.0, 0.0]


class Watched(threading.Condition):
    """Notes how long it would be waited on, and waits for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        self.waits.append(round(timeout or 0.0, 3))
        return predicate()


class Pauses(threading.Event):
    """Notes how long each pause is, and moves the clock on instead; the runner stops in the last one."""

    def __init__(self, runner: Runner, now: list[float], rounds: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._runner, self._now, self._rounds = runner, now, rounds

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(round(timeout or 0.0, 3))
        self._now[0] += timeout or 0.0
        if len(self.pauses) == self._rounds:
            self._runner.request_stop()
        return self.is_set()


class BusyRounds(Rounds):
    """A sampler whose lanes are never idle, and whose steps take so long."""

    def __init__(self, now: list[float], steps: list[float]) -> None:
        super().__init__({})
        self._now, self._steps = now, steps

    def step(self) -> None:
        self._now[0] += self._steps.pop(0)

    def idle(self) -> bool:
        return False

    def close(self, wait: object) -> None:
        cast("Callable[[Callable[[], bool]], bool]", wait)(self.idle)

    save = close


@pytest.mark.parametrize(
    ("interval", "steps", "pauses", "waits"),
    [
        # Missed intervals are skipped, and the phase stays.
        (1.0, [0.3, 2.5, 0.1, 0.0], [0.7, 0.0, 0.4], [0.25] * 4 + [0.5, 2.0]),
        (0.2, [0.1, 0.0], [0.1], [0.1] * 2 + [0.5, 2.0]),
        # The last round leaves less time to close and save than they would have.
        (1.0, [0.0, 1.9], [1.0], [0.25] * 2 + [0.1, 0.1]),
        (1.0, [0.0, 3.0], [1.0], [0.25] * 2 + [0.0, 0.0]),
    ],
)
def test_a_round_waits_for_its_answers_and_then_for_the_next(
    monkeypatch: pytest.MonkeyPatch, interval: float, steps: list[float], pauses: list[float], waits: list[float]
) -> None:
    now = [0.0]
    runner = Runner(RealClock(), interval)
    runner._woken, runner._stopping = Watched(), Pauses(runner, now, len(pauses))
    runner._sampler = cast("Sampler", BusyRounds(now, list(steps)))
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        runner._run()
    assert runner._stopping.pauses == pauses
    assert runner._woken.waits == waits
