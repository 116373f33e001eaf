"""Jobs that compute run one after another; one that hangs does not keep the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from gpu_triage.machine import RealClock
from gpu_triage.sampler.lanes import ThreadLane, Turns

LANES = 6
WAIT_SECONDS = 20.0


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


def lanes(turns: Turns) -> list[ThreadLane]:
    return [ThreadLane(f"gpu-{index}", RealClock(), _nothing, turns) for index in range(LANES)]


def _nothing() -> None:
    return None


def _hang_until(event: threading.Event) -> None:
    event.wait(WAIT_SECONDS)


def _fail() -> None:
    raise ValueError


def submit_all(some: list[ThreadLane], job: Callable[[], None], *, in_turn: bool = True) -> None:
    for lane in some:
        assert lane.ready()
        lane.submit(job, in_turn=in_turn)


def test_one_computes_at_a_time() -> None:
    jobs, some = Jobs(), lanes(Turns())
    submit_all(some, jobs.run)
    assert jobs.wait_for(LANES)
    assert jobs.most_at_once == 1


def test_a_job_that_hangs_keeps_nobody_from_running() -> None:
    held, jobs, some = threading.Event(), Jobs(), lanes(Turns())
    stuck, *others = some
    assert stuck.ready()
    stuck.submit(partial(_hang_until, held), in_turn=True)
    try:
        for _ in range(3):
            submit_all(others, jobs.run)
            assert jobs.wait_for(len(others))
            while any(lane.busy_since is not None for lane in others):
                threading.Event().wait(0.001)
        assert stuck.busy_since is not None
    finally:
        held.set()


def test_a_job_that_fails_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match=r"^$"), turns.taken():
        _fail()
    jobs, some = Jobs(), lanes(turns)
    submit_all(some, jobs.run)
    assert jobs.wait_for(LANES)
    assert jobs.most_at_once == 1
