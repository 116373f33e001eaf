"""Virtual time in which lanes have threads of their own, as in the daemon: a call that waits parks its thread."""

import heapq
import math
import threading
from collections.abc import Callable
from functools import partial
from itertools import count

from gpu_triage.machine import CallBlocked, Moment
from gpu_triage.sampler.lanes import Job, ThreadLane
from gpu_triage_simulator import VirtualClock


class ParkingClock(VirtualClock):
    """A virtual clock on which threads can wait. One thread runs at a time, so that nothing is left to chance."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._running = 0
        self._parked: list[tuple[float, int]] = []
        self._tickets = count()
        self._called: set[int] = set()
        self._closed = False
        self._set_by_seconds = 0.0

    def now(self) -> Moment:
        """The present instant; the wall clock's face as it was last set."""
        moment = super().now()
        return Moment(moment.monotonic, moment.wall + self._set_by_seconds)

    def set_wall_by(self, seconds: float) -> None:
        """Set the wall clock forward, or back, against the monotonic one."""
        self._set_by_seconds += seconds

    def park(self, seconds: float) -> None:
        """Let the calling lane wait so long in virtual time.

        Raises:
            Blocked: time has ended.
        """
        with self._changed:
            ticket = next(self._tickets)
            until = super().now().monotonic + seconds
            heapq.heappush(self._parked, (until, ticket))
            self._running -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: ticket in self._called)
            self._called.discard(ticket)
            if self._closed:
                raise CallBlocked(math.inf)

    def advance(self, seconds: float) -> None:
        """Move on, stopping wherever a parked thread is to go on."""
        end = super().now().monotonic + seconds
        while self._parked and self._parked[0][0] <= end:
            until, ticket = heapq.heappop(self._parked)
            self._stand_at(until - self._start.monotonic)
            self._call(ticket)
            self.settle()
        super().advance(end - super().now().monotonic)

    def wake(self) -> None:
        """Let every parked thread go on when time does."""
        now = super().now().monotonic
        self._parked = [(now, ticket) for _, ticket in sorted(self._parked)]

    def begin(self) -> None:
        """Count one more thread that runs."""
        with self._changed:
            self._running += 1

    def end(self) -> None:
        """Count one less."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def settle(self) -> None:
        """Return when every thread is idle or parked."""
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)

    def close(self) -> None:
        """End time: whoever is parked gives up."""
        self._closed = True
        for _, ticket in self._parked:
            self._call(ticket)
        self.settle()

    def _call(self, ticket: int) -> None:
        with self._changed:
            self._called.add(ticket)
            self._running += 1
            self._changed.notify_all()


class ParkingLane(ThreadLane):
    """A real lane, whose job has ended or is parked when `submit` returns."""

    def __init__(self, name: str, clock: ParkingClock, refused: Callable[[str], bool] = lambda _name: False) -> None:
        super().__init__(name, clock, clock.end)
        self._parking = clock
        self._is_refused = partial(refused, name)

    def ready(self) -> bool:
        """As Lane."""
        if not self._is_refused():
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = self._parking.now().monotonic
        return self.refused_since is None and super().ready()

    def submit(self, job: Job, *, queued: bool = False) -> None:
        """As Lane."""
        self._parking.begin()
        super().submit(lambda: _until_time_ends(job), queued=queued)
        self._parking.settle()


def _until_time_ends(job: Job) -> None:
    try:
        job()
    except CallBlocked:
        # The test is over; what the call would have answered concerns nobody.
        return
