"""The clock of a simulated host with a wall clock that is sometimes wrong."""

from __future__ import annotations

from collections.abc import Callable

from gpu_triage.machine import Clock, Moment, SteppedClock


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
