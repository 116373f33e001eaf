"""Time that moves only when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_triage.machine import Moment

START_OF_TIME: Final = 1_768_435_200.0
"""2026-01-15T00:00:00Z, where a virtual clock starts, in seconds since the Unix epoch."""

TEN_DAYS: Final = 864_000.0
"""How long a simulated host has been up when its virtual clock starts."""


class VirtualClock:
    """A clock that stands still between calls of `advance`; both of its faces move together."""

    def __init__(self, wall: float = START_OF_TIME, monotonic: float = TEN_DAYS) -> None:
        self._start = Moment(monotonic, wall)
        self._elapsed = 0.0
        self._now = self._start
        self._hooks: list[Callable[[Moment], None]] = []

    def now(self) -> Moment:
        """The present instant."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`, then call every hook with the new instant.

        Raises:
            ValueError: `seconds` is negative; time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._stand_at(self._elapsed + seconds)
        moment = self.now()
        for hook in tuple(self._hooks):
            hook(moment)

    def _stand_at(self, elapsed: float) -> None:
        # The instant is kept: a simulated second asks for it thousands of times.
        self._elapsed = elapsed
        self._now = Moment(self._start.monotonic + elapsed, self._start.wall + elapsed)

    def on_advance(self, hook: Callable[[Moment], None]) -> Callable[[], None]:
        """Call `hook` after every advance, until the function returned here is called."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)
