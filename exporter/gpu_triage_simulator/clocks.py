"""Clocks of simulated hosts: one that only moves when advanced, a fast one, and one with a wrong wall time."""

from collections.abc import Callable
from typing import Final

from gpu_triage.machine import Clock, Moment, RealClock, SteppedClock

START_OF_TIME: Final = 1_768_435_200.0
"""2026-01-15T00:00:00Z in Unix seconds, where a virtual clock starts."""

TEN_DAYS: Final = 864_000.0
"""Uptime of a simulated host when its virtual clock starts, in seconds."""


class VirtualClock:
    """A clock that only moves when `advance` is called; wall and monotonic time move together."""

    def __init__(self, wall: float = START_OF_TIME, monotonic: float = TEN_DAYS) -> None:
        self._start = Moment(monotonic, wall)
        self._elapsed = 0.0
        self._now = self._start
        self._hooks: list[Callable[[Moment], None]] = []

    def now(self) -> Moment:
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`, then call every hook with the new time. Raises ValueError: `seconds` is negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._stand_at(self._elapsed + seconds)
        moment = self.now()
        for hook in tuple(self._hooks):
            hook(moment)

    def _stand_at(self, elapsed: float) -> None:
        # Cached, because it is read thousands of times per simulated second.
        self._elapsed = elapsed
        self._now = Moment(self._start.monotonic + elapsed, self._start.wall + elapsed)

    def on_advance(self, hook: Callable[[Moment], None]) -> Callable[[], None]:
        """Call `hook` after every advance; returns a function that removes it."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)


class FastClock(RealClock):
    """The real clock, `pace` times as fast from now on; wall and monotonic time move together."""

    def __init__(self, pace: int) -> None:
        self.pace = pace
        self._start = super().now()

    def now(self) -> Moment:
        more = (super().now().monotonic - self._start.monotonic) * self.pace
        return Moment(self._start.monotonic + more, self._start.wall + more)


class HostClock:
    """Another clock with an error added to wall time; `offset` returns the error at a monotonic second."""

    def __init__(self, base: Clock, offset: Callable[[float], float]) -> None:
        self._base = base
        self._offset = offset

    def now(self) -> Moment:
        moment = self._base.now()
        return Moment(moment.monotonic, moment.wall + self._offset(moment.monotonic))


class SteppedHostClock(HostClock):
    """The same for a clock that only moves when advanced."""

    def __init__(self, base: SteppedClock, offset: Callable[[float], float]) -> None:
        super().__init__(base, offset)
        self._stepped = base

    def advance(self, seconds: float) -> None:
        self._stepped.advance(seconds)


def host_clock(base: Clock, offset: Callable[[float], float]) -> HostClock:
    """The clock of a host, on top of the clock that drives its simulation."""
    return SteppedHostClock(base, offset) if isinstance(base, SteppedClock) else HostClock(base, offset)
