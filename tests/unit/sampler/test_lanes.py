"""A lane goes on, whatever becomes of its thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from tests.e2e.processes import wait_for

from gpu_triage.machine import RealClock
from gpu_triage.sampler.lanes import Job, ThreadLane

WAIT_SECONDS = 5.0


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
    done = threading.Event()
    lane.submit(done.set)
    assert done.wait(WAIT_SECONDS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("end", [SystemExit, MemoryError, KeyboardInterrupt])
def test_a_thread_that_dies_in_a_job_is_replaced(lane: ThreadLane, end: type[BaseException]) -> None:
    def die() -> None:
        raise end

    assert lane.ready()
    lane.submit(die)
    wait_for(lane.ready)
    done = threading.Event()
    lane.submit(done.set)
    assert done.wait(WAIT_SECONDS)


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
    done = threading.Event()
    lane.submit(done.set)
    assert done.wait(WAIT_SECONDS)
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
