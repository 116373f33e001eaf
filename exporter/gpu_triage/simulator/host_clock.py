"""The clock of a simulated host whose wall clock is wrong at times."""

from __future__ import annotations

from collections.abc import Callable

from gpu_triage.machine import Clock, Moment, SteppedClock


class HostClock:
    """Another clock, whose wall clock is off by what `offset` says of a monotonic second."""

    def __init__(self, base: Clock, offset: Callable[[float], float]) -> None:
        self._base = base
        self._offset = offset

    def now(self) -> Moment:
        """As Clock."""
        moment = self._base.now()
        return Moment(moment.monotonic, moment.wall + self._offset(moment.monotonic))


class SteppedHostClock(HostClock):
    """The same of a clock that stands still until it is advanced."""

    def __init__(self, base: SteppedClock, offset: Callable[[float], float]) -> None:
        super().__init__(base, offset)
        self._stepped = base

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._stepped.advance(seconds)


def host_clock(base: Clock, offset: Callable[[float], float]) -> HostClock:
    """The clock of a host, on top of the one that its simulation runs by."""
    return SteppedHostClock(base, offset) if isinstance(base, SteppedClock) else HostClock(base, offset)
