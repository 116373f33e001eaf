"""Lanes: jobs that compute run one after another, and whatever becomes of a job or thread, the others go on."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import cast

import pytest
from tests.e2e.processes import wait_for

from gpu_triage.machine import RealClock
from gpu_triage.sampler.lanes import Job, JobQueue, Lane, ThreadLane
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

LANES = 6
WAIT_SECONDS = 20.0


class Rounds:
    """As much of a sampler as the runner needs: a job for each lane, once."""

    fatal = None

    def __init__(self, lanes: list[Lane], special: dict[Lane, Job], job: Job) -> None:
        self._jobs = {lane: special.get(lane, job) for lane in lanes}
        self._lanes = lanes

    def step(self) -> None:
        while self._jobs:
            lane = next(iter(self._jobs))
            assert lane.ready()
            lane.submit(self._jobs.pop(lane), queued=True)

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


class Jobs:
    """Jobs that note how many of them run at once."""

    def __init__(self) -> None:
        self.most_at_once = 0
        self.done = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._running = 0

    def run(self) -> None:
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        # Long enough for all the others to come and wait.
        threading.Event().wait(0.002)
        with self._lock:
            self._running -= 1
        self.done.release()

    def wait_for(self, count: int) -> bool:
        return all(self.done.acquire(timeout=WAIT_SECONDS) for _ in range(count))


def lanes(queue: JobQueue) -> list[ThreadLane]:
    return [ThreadLane(f"gpu-{index}", RealClock(), _nothing, queue) for index in range(LANES)]


def _nothing() -> None:
    return None


def _hang_until(event: threading.Event) -> None:
    event.wait(WAIT_SECONDS)


def _fail() -> None:
    raise ValueError


def submit_all(some: list[ThreadLane], job: Callable[[], None], *, queued: bool = True) -> None:
    for lane in some:
        assert lane.ready()
        lane.submit(job, queued=queued)


def wait_until_idle(some: list[ThreadLane]) -> None:
    while any(lane.busy_since is not None for lane in some):
        threading.Event().wait(0.001)


def test_one_computes_at_a_time() -> None:
    jobs, some = Jobs(), lanes(JobQueue())
    submit_all(some, jobs.run)
    assert jobs.wait_for(LANES)
    assert jobs.most_at_once == 1


def test_jobs_run_in_the_order_they_came() -> None:
    seen: list[int] = []
    some = lanes(JobQueue())
    for index, lane in enumerate(some):
        assert lane.ready()
        lane.submit(partial(seen.append, index), queued=True)
    wait_until_idle(some)
    assert seen == list(range(LANES))


def test_a_job_that_hangs_keeps_nobody_once_all_are_let_go() -> None:
    held, jobs, queue = threading.Event(), Jobs(), JobQueue()
    stuck, *others = lanes(queue)
    assert stuck.ready()
    stuck.submit(partial(_hang_until, held), queued=True)
    submit_all(others, jobs.run)
    assert not jobs.done.acquire(timeout=0.05)
    try:
        queue.start_all()
        assert jobs.wait_for(len(others))
        wait_until_idle(others)
        # From then on they take turns as before.
        jobs.most_at_once = 0
        submit_all(others, jobs.run)
        assert jobs.wait_for(len(others))
        assert jobs.most_at_once == 1
        wait_until_idle(others)
        assert stuck.busy_since is not None
    finally:
        held.set()
    wait_until_idle([stuck])
    # The one that was overtaken has no turn to give: the next round is one by one too.
    jobs.most_at_once = 0
    submit_all([stuck, *others], jobs.run)
    assert jobs.wait_for(LANES)
    assert jobs.most_at_once == 1


def test_a_job_that_hung_when_all_were_started_starts_no_other_when_it_ends() -> None:
    queue = JobQueue()
    ends: dict[str, Job] = {}
    for name in ("hung", "overtook"):
        queue.submit(_nothing, partial(ends.__setitem__, name))
    queue.start_all()
    ends["overtook"]()
    for name in ("runs", "waits"):
        queue.submit(_nothing, partial(ends.__setitem__, name))
    ends["hung"]()
    assert list(ends) == ["hung", "overtook", "runs"]
    ends["runs"]()
    assert list(ends) == ["hung", "overtook", "runs", "waits"]


def test_the_runner_lets_all_go_when_one_hangs() -> None:
    held, jobs = threading.Event(), Jobs()
    runner = Runner(RealClock(), 1.0)
    stuck, *others = some = [runner.lane(f"gpu-{index}") for index in range(LANES)]
    sampler = Rounds(some, {stuck: partial(_hang_until, held)}, jobs.run)
    runner.start(cast("Sampler", sampler), _nothing, lambda _cause: None)
    try:
        assert jobs.wait_for(len(others))
    finally:
        held.set()
        runner.request_stop()


def test_a_job_that_fails_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    jobs, some = Jobs(), lanes(JobQueue())
    submit_all(some[:1], _fail)
    submit_all(some[1:], jobs.run)
    assert jobs.wait_for(LANES - 1)
    assert jobs.most_at_once == 1


def assert_works(lane: ThreadLane) -> None:
    done = threading.Event()
    lane.submit(done.set)
    assert done.wait(WAIT_SECONDS)


@pytest.fixture
def lane() -> Iterator[ThreadLane]:
    lane = ThreadLane("test", RealClock(), lambda: None)
    yield lane
    lane.close()


def test_a_thread_is_started_when_it_is_needed(lane: ThreadLane) -> None:
    before = frozenset(threading.enumerate())
    assert lane.busy_since is None
    assert frozenset(threading.enumerate()) <= before
    assert lane.ready()
    assert_works(lane)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("end", [SystemExit, MemoryError, KeyboardInterrupt])
def test_a_thread_that_dies_in_a_job_is_replaced(lane: ThreadLane, end: type[BaseException]) -> None:
    def die() -> None:
        raise end

    assert lane.ready()
    lane.submit(die)
    wait_for(lane.ready)
    assert_works(lane)


def test_a_thread_that_dies_before_its_job_is_replaced() -> None:
    class Dying(ThreadLane):
        dies = True

        def _run(self, jobs: SimpleQueue[Job | None]) -> None:
            if not self.dies:
                super()._run(jobs)

    lane = Dying("test", RealClock(), lambda: None)
    assert lane.ready()
    lane.submit(lambda: None)
    wait_for(lambda: lane.busy_since is None)
    lane.dies = False
    wait_for(lane.ready)
    assert_works(lane)
    lane.close()


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
