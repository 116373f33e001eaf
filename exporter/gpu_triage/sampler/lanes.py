"""Lanes: each GPU, the driver and the host have theirs, with one job in flight, so that a hang stays where it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from gpu_triage.machine import Blocked, Clock

Job = Callable[[], None]
"""Work for a lane; it must not raise."""


class Lane(Protocol):
    """Runs one job at a time."""

    @property
    def busy_since(self) -> float | None:
        """Monotonic second since which the present step of the job has been running; None when idle."""

    def submit(self, job: Job) -> None:
        """Start a job; only on an idle lane."""

    def mark(self) -> None:
        """Called by the job between two steps: the deadline is for each step."""

    def close(self) -> None:
        """Take no more jobs."""


LaneMaker = Callable[[str], Lane]


class ThreadLane:
    """A lane with a thread of its own, started with its first job."""

    def __init__(self, name: str, clock: Clock, on_idle: Callable[[], None]) -> None:
        self._clock = clock
        self._on_idle = on_idle
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._busy_since: float | None = None
        # A thread stuck in the kernel cannot be ended; as a daemon it does not hold up the exit either.
        self._thread = threading.Thread(target=self._run, name=f"lane-{name}", daemon=True)

    @property
    def busy_since(self) -> float | None:
        """As Lane."""
        return self._busy_since

    def submit(self, job: Job) -> None:
        """As Lane."""
        self.mark()
        self._jobs.put(job)
        if not self._thread.is_alive():
            self._thread.start()

    def mark(self) -> None:
        """As Lane."""
        self._busy_since = self._clock.now().monotonic

    def close(self) -> None:
        """As Lane; the thread ends after its present job."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                self._busy_since = None
                self._on_idle()


class InlineLane:
    """A lane on a virtual clock: a job runs at once, and one that would hang keeps it busy until it would return."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = 0.0
        self._until: float | None = None

    @property
    def busy_since(self) -> float | None:
        """As Lane."""
        if self._until is not None and self._clock.now().monotonic >= self._until:
            self._until = None
        return None if self._until is None else self._since

    def submit(self, job: Job) -> None:
        """As Lane."""
        self.mark()
        try:
            job()
        except Blocked as blocked:
            self._until = blocked.until

    def mark(self) -> None:
        """As Lane."""
        self._since = self._clock.now().monotonic

    def close(self) -> None:
        """As Lane."""
