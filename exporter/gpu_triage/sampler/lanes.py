"""Lanes: worker threads for each GPU, the driver and the host, with one job in flight, so that a hang is isolated."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Final

from gpu_triage.driver.crash import explained
from gpu_triage.driver.nvml.session import CurrentCall
from gpu_triage.log import fields
from gpu_triage.machine import CallBlocked, Clock
from gpu_triage.read.exporter.exporter_health import CallInFlight
from gpu_triage.read.metrics.contract import HOST_LABELS, GpuLabels

log = logging.getLogger(__name__)

DEADLINE: Final = "deadline"
"""The error of a round that took longer than the deadline."""

BLOCKED: Final = "blocked"
"""The error of a round that could not start in time because another collector uses the lane."""

NO_THREAD: Final = "no_thread"
"""The error of a lane that cannot start its thread, and of the rounds that should have run in it."""

_TURN_SECONDS: Final = 0.05
"""How long a CPU-bound job waits for its turn: on a healthy host, one takes a tenth of this."""

_WITHOUT_THREAD_SECONDS: Final = 30.0
"""How long a lane may lack a thread before the exporter reports itself unhealthy."""

Job = Callable[[], None]
"""Work for a lane; it must not raise."""

Post = Callable[[Callable[[float], None]], None]
"""How a job hands over its result: the sampler's thread calls the function with the time in monotonic seconds."""


def overdue(since: float | None, now: float, seconds: float) -> bool:
    """Whether something that started at `since` has lasted longer than `seconds`; False if `since` is None."""
    return since is not None and now - since > seconds


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a job; the deadline applies to each step."""

    collector: str  # which the step belongs to
    gpu: GpuLabels = HOST_LABELS  # the GPU being queried; HOST_LABELS if no particular one
    call: CurrentCall = field(default_factory=CurrentCall)  # the NVML function being called


class Lane(ABC):
    """Runs one job at a time."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.step = self._own_step = Step(name)  # `step` is the current step of its job, or the last one
        self.refused_since: float | None = None  # since when no thread can be started; None with one, or if not needed
        self._clock = clock
        self._began_at: float | None = None  # of the current step

    @property
    @abstractmethod
    def busy_since(self) -> float | None:
        """Monotonic second at which the job's current step started; None when idle."""

    def ready(self) -> bool:
        """Whether it can take a job now: it is idle, and has a thread or could start one."""
        return self.busy_since is None

    @abstractmethod
    def submit(self, job: Job, *, queued: bool = False) -> None:
        """Start a job, on a lane that is ready; a CPU-bound one is `queued` while another one is running."""

    def mark(self, step: Step | None = None) -> None:
        """Called by the job at the start of each step; None means the step that the lane is named after."""
        self.step = step or self._own_step
        self._began_at = self._clock.now().monotonic

    def close(self) -> None:  # noqa: B027 - there is nothing to close on a virtual clock
        """Take no more jobs."""


LaneMaker = Callable[[str], Lane]


def lacking_threads(lanes: Iterable[Lane], now: float) -> str | None:
    """A sentence naming the lanes that have lacked a thread for a while; None if none has."""
    lasting = {lane.step.collector for lane in lanes if overdue(lane.refused_since, now, _WITHOUT_THREAD_SECONDS)}
    if not lasting:
        return None
    names = ", ".join(sorted(lasting))
    return f"no thread can be started to read {names}; raise pids.max (TasksMax in the systemd unit)"


class Turn:
    """Lets CPU-bound jobs of several threads run one at a time, for as long as none takes too long.

    Only one thread at a time can hold Python's GIL. CPU-bound threads that compete for it switch hundreds of times a
    second, which costs a tenth of the total time or more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, job: Job) -> None:
        lock = self._lock
        is_its_turn = lock.acquire(timeout=_TURN_SECONDS)
        if not is_its_turn and lock is self._lock:
            # The job that has it may hang: no later job waits for that one again.
            self._lock = threading.Lock()
        try:
            job()
        finally:
            if is_its_turn:
                lock.release()


class ThreadLane(Lane):
    """A lane with its own thread, which starts with the first job and is replaced if it ends."""

    def __init__(self, name: str, clock: Clock, on_idle: Callable[[], None], turn: Turn) -> None:
        super().__init__(name, clock)
        self._on_idle = on_idle
        self._turn = turn
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def busy_since(self) -> float | None:
        # If the thread died during a job, that job will never finish.
        return self._began_at if self._alive() else None

    def ready(self) -> bool:
        return super().ready() and (self._alive() or self._start())

    def submit(self, job: Job, *, queued: bool = False) -> None:
        self.mark()
        self._jobs.put(partial(self._turn.run, job) if queued else job)

    def close(self) -> None:
        # The thread ends after its current job.
        self._jobs.put(None)

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> bool:
        self._jobs, self._began_at = SimpleQueue(), None
        # A thread stuck in the kernel cannot be terminated; as a daemon thread, it does not block the exit either.
        run, name = partial(self._run, self._jobs), f"lane-{self._own_step.collector}"
        thread = threading.Thread(target=explained, args=(run,), name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            # Due to pids.max, RLIMIT_NPROC or lack of memory, which may be temporary.
            if self.refused_since is None:
                self.refused_since = self._clock.now().monotonic
            return False
        self._thread, self.refused_since = thread, None
        return True

    def _run(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
                # If it raises, the thread ends, and must get no further job until then.
                self._began_at = None
            finally:
                self._on_idle()


class InlineLane(Lane):
    """A lane on a virtual clock: runs a job at once; a job that would hang keeps the lane busy until its end time."""

    def __init__(self, clock: Clock, name: str = "") -> None:
        super().__init__(name, clock)
        self._until = -math.inf

    @property
    def busy_since(self) -> float | None:
        return self._began_at if self._clock.now().monotonic < self._until else None

    def submit(self, job: Job, *, queued: bool = False) -> None:  # noqa: ARG002 - jobs run one after another anyway
        self.mark()
        try:
            job()
        except CallBlocked as blocked:
            self._until = blocked.until


_NAMED_AFTER_SECONDS: Final = 1.0
"""Calls normally take milliseconds."""


class CallWatch:
    """Reports calls that take too long, at each publication. Only the sampler's thread calls it."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._logged: dict[tuple[Step, float], str] = {}

    def look(self, lanes: Iterable[Lane], now: float) -> tuple[CallInFlight, ...]:
        """Slow calls, slowest first. Logs when a call exceeds the deadline and when it finally returns."""
        calls: dict[tuple[Step, float], CallInFlight] = {}
        for lane in lanes:
            since, step = lane.busy_since, lane.step
            if since is not None and now - since >= _NAMED_AFTER_SECONDS:
                calls[step, since] = CallInFlight(step.gpu, step.collector, step.call.function, now - since)
        for key, call in calls.items():
            if call.seconds > self._deadline_seconds and key not in self._logged:
                self._logged[key] = call.function
                log.error("a call does not return", extra=_facts(key[0], call.function, call.seconds))
        for key in self._logged.keys() - calls.keys():
            function = self._logged.pop(key)
            log.info("a call that did not return is over", extra=_facts(key[0], function, now - key[1]))
        return tuple(sorted(calls.values(), key=lambda call: -call.seconds))


def _facts(step: Step, function: str, seconds: float) -> dict[str, object]:
    named = {"collector": step.collector, "gpu": step.gpu.gpu, "uuid": step.gpu.uuid, "function": function}
    return fields(**{name: text for name, text in named.items() if text}, seconds=round(seconds, 1))
