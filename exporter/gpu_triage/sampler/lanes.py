"""Lanes: each GPU, the driver and the host have theirs, with one job in flight, so that a hang stays where it is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from gpu_triage.machine import Blocked, Clock
from gpu_triage.nvml.session import CurrentCall
from gpu_triage.subjects.contract import HOST_LABELS, GpuLabels

DEADLINE: Final = "deadline"
"""The error of a round that took longer than the deadline."""

BLOCKED: Final = "blocked"
"""The error of a round that could not begin in time: another collector's holds the lane."""

NO_THREAD: Final = "no_thread"
"""The error of a lane that cannot have a thread, and of rounds that should have run in it."""

_WITHOUT_THREAD_SECONDS: Final = 30.0
"""How long sampling may lack a thread before the exporter calls itself unhealthy."""

Job = Callable[[], None]
"""Work for a lane; it must not raise."""


def overdue(since: float | None, now: float, seconds: float) -> bool:
    """Whether what began at `since` has lasted for longer than so many seconds; None has not begun."""
    return since is not None and now - since > seconds


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a job: the deadline is for each.

    Attributes:
        collector: whose step it is.
        gpu: the GPU that is asked; HOST_LABELS where it is none in particular.
        call: the function of NVML that is being called.
    """

    collector: str
    gpu: GpuLabels = HOST_LABELS
    call: CurrentCall = field(default_factory=CurrentCall)


class Lane(Protocol):
    """Runs one job at a time."""

    @property
    def busy_since(self) -> float | None:
        """Monotonic second since which the present step of the job has been running; None when idle."""

    @property
    def step(self) -> Step:
        """The present step, or the last one."""

    @property
    def refused_since(self) -> float | None:
        """Monotonic second since which it cannot have a thread; None while it has one or needs none."""

    def ready(self) -> bool:
        """Whether it takes a job now: it is idle, and has a thread or could start one."""

    def submit(self, job: Job, *, in_turn: bool = False) -> None:
        """Start a job; only on a lane that is ready.

        Args:
            job: what to run.
            in_turn: whether it computes more than it waits, and so runs better after the others than beside them.
        """

    def mark(self, step: Step | None = None) -> None:
        """Called by the job at the beginning of a step; without one, of the step that the lane is named after."""

    def close(self) -> None:
        """Take no more jobs."""


LaneMaker = Callable[[str], Lane]


def lacking_threads(lanes: Iterable[Lane], now: float) -> str | None:
    """Which lanes have lacked a thread for a while, as a sentence; None if none has."""
    lasting = {lane.step.collector for lane in lanes if overdue(lane.refused_since, now, _WITHOUT_THREAD_SECONDS)}
    if not lasting:
        return None
    names = ", ".join(sorted(lasting))
    return f"no thread can be started to read {names}; raise pids.max (TasksMax in the systemd unit)"


class Turns:
    """Lets jobs of several threads run one after another, in the order they came.

    Python computes in one thread at a time. Threads that all have something to compute take the interpreter from each
    other hundreds of times a second, which costs more than a tenth of all the time. So a thread gets its job
    only when the previous one is done, and is woken once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()
        self._holder: object | None = None

    def line_up(self, job: Job, put: Callable[[Job], None]) -> None:
        """Pass `job` to `put` when its turn comes: at once if nobody has the turn. The turn ends when the job has run.

        Args:
            job: what to run.
            put: hands it to the thread that runs it; must not wait.
        """
        turn = object()

        def in_turn() -> None:
            try:
                job()
            finally:
                self._end(turn)

        with self._lock:
            self._waiting.append((turn, partial(put, in_turn)))
            if self._holder is None:
                self._next()

    def let_all_go(self) -> None:
        """Start every waiting job now: the one that has the turn may hang."""
        with self._lock:
            while self._waiting:
                self._next()
            self._holder = None

    def _next(self) -> None:
        self._holder = None
        if self._waiting:
            self._holder, start = self._waiting.popleft()
            start()

    def _end(self, turn: object) -> None:
        with self._lock:
            # One that was overtaken has no turn to pass on.
            if turn is self._holder:
                self._next()


class ThreadLane:
    """A lane with a thread of its own, started with its first job and replaced should it end."""

    def __init__(self, name: str, clock: Clock, on_idle: Callable[[], None], turns: Turns | None = None) -> None:
        self.step = self._own_step = Step(name)
        self._name = f"lane-{name}"
        self._clock = clock
        self._on_idle = on_idle
        self._turns = turns or Turns()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._busy_since: float | None = None
        self._thread: threading.Thread | None = None
        self.refused_since: float | None = None

    @property
    def busy_since(self) -> float | None:
        """As Lane."""
        since = self._busy_since
        # A thread that ended with a job in hand finishes it no more.
        return since if since is not None and self._alive() else None

    def ready(self) -> bool:
        """As Lane."""
        return self.busy_since is None and (self._alive() or self._start())

    def submit(self, job: Job, *, in_turn: bool = False) -> None:
        """As Lane."""
        self.mark()
        if in_turn:
            self._turns.line_up(job, self._jobs.put)
        else:
            self._jobs.put(job)

    def mark(self, step: Step | None = None) -> None:
        """As Lane."""
        self.step = step or self._own_step
        self._busy_since = self._clock.now().monotonic

    def close(self) -> None:
        """As Lane; the thread ends after its present job."""
        self._jobs.put(None)

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> bool:
        """Start a thread; says whether there is one now."""
        self._jobs, self._busy_since = SimpleQueue(), None
        # A thread stuck in the kernel cannot be ended; as a daemon it does not hold up the exit either.
        thread = threading.Thread(target=self._run, args=(self._jobs,), name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            # pids.max, RLIMIT_NPROC or memory: it may be over in a moment.
            if self.refused_since is None:
                self.refused_since = self._clock.now().monotonic
            return False
        self._thread, self.refused_since = thread, None
        return True

    def _run(self, jobs: SimpleQueue[Job | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
            finally:
                self._busy_since = None
                self._on_idle()


class InlineLane:
    """A lane on a virtual clock: a job runs at once, and one that would hang keeps it busy until it would return."""

    refused_since: float | None = None

    def __init__(self, clock: Clock, name: str = "") -> None:
        self.step = self._own_step = Step(name)
        self._clock = clock
        self._since = 0.0
        self._until: float | None = None

    @property
    def busy_since(self) -> float | None:
        """As Lane."""
        if self._until is not None and self._clock.now().monotonic >= self._until:
            self._until = None
        return None if self._until is None else self._since

    def ready(self) -> bool:
        """As Lane."""
        return self.busy_since is None

    def submit(self, job: Job, *, in_turn: bool = False) -> None:  # noqa: ARG002 - one after another they run anyway
        """As Lane."""
        self.mark()
        try:
            job()
        except Blocked as blocked:
            self._until = blocked.until

    def mark(self, step: Step | None = None) -> None:
        """As Lane."""
        self.step = step or self._own_step
        self._since = self._clock.now().monotonic

    def close(self) -> None:
        """As Lane."""
