"""Drives a sampler in real time, on a thread of its own."""

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from gpu_triage.machine import Clock
from gpu_triage.sampler.lanes import Lane, ThreadLane, Turn
from gpu_triage.sampler.sampler import Sampler

log = logging.getLogger(__name__)

_ANSWERS_WITHIN_SECONDS: Final = 0.25
"""How long a publication waits for its round; later results go into the next one."""

_STOP_SECONDS: Final = 2.0
"""From the request to stop to the end of sampling. The process as a whole exits within 3 s, even on a busy host.

Incidents are written first. On a disk that takes half a second for each file, they are done after a second at most: the
file that is being written when the request comes, then theirs. The rest is for a busy host.
"""

_CLOSE_WITHIN_SECONDS: Final = 0.5
"""Part of that time: for the driver to respond, and again for NVML to shut down."""

_LAST_WORDS_SECONDS: Final = 0.2
"""Extra time after that, to log what could not be done."""

_DEAD_AFTER_SECONDS: Final = 30.0


class Runner:
    """Steps a sampler once per interval of real time and publishes, on a thread that its lanes (`lane`) wake."""

    def __init__(self, clock: Clock, interval_seconds: float) -> None:
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._published_at: float | None = None
        self._woken = threading.Condition()
        self._stopping = threading.Event()
        self._stop_by = math.inf
        self._turn = Turn()  # of the lanes
        self._sampler: Sampler | None = None
        self._after_publish: Callable[[], None] = lambda: None
        self._on_fatal: Callable[[str], None] = lambda _cause: None
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def lane(self, name: str) -> Lane:
        """A lane with a thread, for the sampler this runner will drive."""
        return ThreadLane(name, self._clock, self._wake, self._turn)

    def start(self, sampler: Sampler, after_publish: Callable[[], None], on_fatal: Callable[[str], None]) -> None:
        """Start driving `sampler`; `after_publish` runs on its thread, `on_fatal` once, when the process must exit."""
        self._sampler, self._after_publish, self._on_fatal = sampler, after_publish, on_fatal
        self._thread.start()

    def alive(self) -> str | None:
        """None while the sampler publishes; else what is wrong."""
        if not self._thread.is_alive():
            return "the sampler has ended"
        silence = 0.0 if self._published_at is None else time.monotonic() - self._published_at
        if silence > _DEAD_AFTER_SECONDS + self._interval_seconds:
            return f"the sampler has published nothing for {silence:.0f} s"
        return self._sampler.trouble if self._sampler else None

    @property
    def seconds_left(self) -> float:
        """Seconds until sampling must have ended; infinite before a stop is requested, 0 when they have passed."""
        return max(0.0, self._stop_by - time.monotonic())

    def request_stop(self) -> None:
        """Run one last round and end; from any thread or signal handler."""
        if not self._stopping.is_set():
            self._stop_by = time.monotonic() + _STOP_SECONDS
            self._stopping.set()

    def stop(self) -> None:
        """End sampling, save the state and shut NVML down, as far as the disk and the driver respond in time."""
        self.request_stop()
        self._thread.join(self.seconds_left + _LAST_WORDS_SECONDS)
        if self._thread.is_alive():
            log.warning("sampling did not end in time; the last incidents may not be on disk")

    def _wake(self) -> None:
        # Every lane calls this when done, but only the last one ends the wait: a thread switch costs more than checking
        # all lanes.
        if self._sampler is None or self._stopping.is_set() or self._sampler.idle():
            with self._woken:
                self._woken.notify_all()

    def _wait_for(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._woken:
            return self._woken.wait_for(condition, timeout_seconds)

    def _run(self) -> None:
        sampler = self._sampler
        assert sampler is not None  # noqa: S101 - start() set it

        def wait() -> None:
            self._wait_for(sampler.idle, min(_ANSWERS_WITHIN_SECONDS, self._interval_seconds / 2))

        def publish() -> None:
            sampler.publish()
            self._published_at = time.monotonic()

        next_at = time.monotonic()
        while not self._stopping.is_set():
            self._attempt(sampler.step, wait, publish, self._after_publish)
            if sampler.fatal is not None:
                self.request_stop()
                self._on_fatal(sampler.fatal)
            # Skip missed intervals, but stay in phase.
            next_at += self._interval_seconds
            late = time.monotonic() - next_at
            if late > 0:
                next_at += late - late % self._interval_seconds
            self._stopping.wait(max(0.0, next_at - time.monotonic()))
        if sampler.fatal is None:
            # Read and judge whatever has happened since the last round.
            self._attempt(sampler.step, wait, sampler.save_incidents, sampler.publish, self._after_publish)
        self._attempt(
            lambda: sampler.close(lambda closed: self._wait_for(closed, min(_CLOSE_WITHIN_SECONDS, self.seconds_left))),
            lambda: sampler.save(lambda saved: self._wait_for(saved, self.seconds_left)),
        )

    def _attempt(self, *parts: Callable[[], object]) -> None:
        # Separately, so that results are published even if a step fails.
        for part in parts:
            try:
                part()
            except Exception:
                # An exception must not end sampling; it is logged, and stale values show their age.
                log.exception("sampling failed")
