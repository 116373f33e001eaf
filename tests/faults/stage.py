"""A host on which a fault is staged, second by second, and its healthy twin to compare it with."""

import dataclasses
import heapq
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from tests.faults.files import Files
from tests.faults.library import FaultyLibrary, no_fault
from tests.faults.page import Page, parsed, readings
from tests.rig import Rig
from tests.watched_paths import watched

from gpu_triage.machine import CallBlocked, Moment
from gpu_triage.options.config import Config
from gpu_triage.sampler.lanes import Job, ThreadLane, Turn
from gpu_triage_simulator import Scenario, SimulatedMachine, VirtualClock, simulated_machine


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
        super().__init__(name, clock, clock.end, Turn())
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


class Stage(Rig):
    """A running exporter, and what can be done to its host."""

    def __init__(self, simulated: SimulatedMachine, time: ParkingClock, config: Config) -> None:
        self.library = FaultyLibrary(simulated.machine.nvml)  # where faults of calls are put
        self.files = Files(simulated.root)  # where files are damaged
        self.time = time  # the clock
        self.threadless: tuple[str, ...] = ()  # lanes that cannot have a thread, by the beginning of their names
        whole = simulated.machine
        sysfs, procfs = (watched(root, self._opened) for root in (whole.sysfs, whole.procfs))
        machine = dataclasses.replace(whole, nvml=self.library, sysfs=sysfs, procfs=procfs)
        super().__init__(simulated, time, config, machine, lambda name: ParkingLane(name, time, self._is_threadless))
        self.seconds = -1  # scenario time; the page shows the sample taken then

    def second(self) -> Page:
        """Sample the next second; the page as it is then."""
        self.tick()
        self.exposition.refresh()
        return parsed(self.page())

    def tick(self) -> None:
        """Sample the next second, without a look at the page."""
        if self.seconds >= 0:
            self.files.heal()
            self.time.advance(1.0)
        self.files.hurt()
        self.seconds += 1
        self.sampler.step()
        self.sampler.publish()

    def until(self, seconds: int) -> Page:
        """Sample up to and with this scenario time; the page as it is then."""
        while self.seconds < seconds - 1:
            self.tick()
        return self.second()

    @property
    def holding(self) -> frozenset[tuple[str, str]]:
        """Subject and code of each finding whose condition holds now; one that is only held is not among them."""
        findings = () if self.judge.latest is None else self.judge.latest.report.findings
        return frozenset((finding.uuid or finding.subject, finding.check.code) for finding in findings if finding.holds)

    def park(self, seconds: float) -> None:
        """Let the calling lane wait, in virtual time and until the fault is cured."""
        self.time.park(seconds)

    def log_to_kernel(self, content: bytes) -> None:
        with self.kmsg.open("ab") as log:
            log.write(content)

    def read_kernel_log(self, read: Callable[[int, int], bytes]) -> None:
        """Let reads of the kernel log go through this: what a device answers no file does."""
        kernel = self.sampler._xid._kernel
        assert kernel is not None
        kernel._read = read

    def set_wall_by(self, seconds: float) -> None:
        self.time.set_wall_by(seconds)

    def cure(self) -> None:
        self.library.fault = no_fault
        self.library.hide()
        self.time.wake()
        self.files.damaged = ()
        self.threadless = ()
        self.files.stuck = None
        self.read_kernel_log(os.read)

    def _is_threadless(self, lane: str) -> bool:
        return lane.startswith(self.threadless)

    def _opened(self, path: Path) -> None:
        if self.files.stuck is not None and self.files.stuck.search(str(path)):
            self.time.park(math.inf)


@contextmanager
def staged(scenario: Scenario, config: Config) -> Iterator[Stage]:
    """A stage for the length of a ``with`` block."""
    time = ParkingClock()
    with simulated_machine(scenario, clock=time) as simulated:
        stage = Stage(simulated, time, config)
        try:
            yield stage
        finally:
            time.close()
            stage.files.heal()
            stage.sampler.close(lambda condition: condition())


class Twin:
    """The same host without a fault: its readings by second, taken once and ahead of time."""

    def __init__(self, scenario: Scenario, config: Config, seconds: int) -> None:
        pages, holding = [], set[tuple[str, str]]()
        with staged(scenario, config) as stage:
            for _ in range(seconds):
                pages.append(readings(stage.second()))
                holding |= stage.holding
        self.pages = tuple(pages)  # the readings by second
        self.holding = frozenset(holding)  # findings whose conditions held at any time, as `Stage.holding` gives them
