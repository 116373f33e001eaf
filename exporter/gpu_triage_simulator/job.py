"""A synchronous job: one clock that couples all of its GPUs, on whatever hosts they are.

In each step a rank waits for its data, computes, and exchanges results with all others: who is ready early spins in the
collective until the last one arrives. What the ranks do is a function of the time and of how fast each one is, so that
the hosts of a job can be simulated one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

FORWARD: Final = 1.0


class Rank(NamedTuple):
    """One GPU of a job."""

    host: str
    gpu: int  # index on its host
    compute_seconds: float  # of a step, at full speed: stages of a pipeline and parameter servers have their own
    feed_seconds: float = 0.0  # until its host has the data of a step ready; fetched while the step before computes


class Trouble(Enum):
    """What happens to ranks of a job, and the factor is how much of it."""

    SLOW = "slow"  # computing takes 1 / factor times as long, whatever its clock is
    STARVED = "starved"  # the GPU has data for no more than the factor of its full speed: its host is slow
    LATE = "late"  # the rank is not there yet; the others wait for it
    EXITED = "exited"  # its process has ended, and the others spin
    HUNG = "hung"  # its process exists and does nothing, and the others spin
    ALONE = "alone"  # the rank computes alone, as in an evaluation on rank 0, and the others spin
    PAUSED = "paused"  # no rank computes: a checkpoint is being written
    EXCHANGE = "exchange"  # the exchange takes 1 / factor times as long: the network of a host is slow
    CHANGED = "changed"  # all ranks compute 1 / factor times as long: the job does something else


@dataclass(frozen=True, slots=True)
class Episode:
    """Trouble of some ranks between two times, in seconds of the job."""

    trouble: Trouble
    at: float
    until: float
    ranks: frozenset[int]  # their numbers
    factor: float = FORWARD


class Shares(NamedTuple):
    """What a rank spends its time with; shares of a second that sum up to 1."""

    computing: float = 0.0
    exchanging: float = 0.0
    spinning: float = 0.0
    starving: float = 0.0  # no kernel runs
    absent: bool = False  # whether its process is gone
    steps: float = 0.0  # a second


GONE: Final = Shares(starving=1.0, absent=True)
IDLE: Final = Shares(starving=1.0)
SPINS: Final = Shares(spinning=1.0)
COMPUTES: Final = Shares(computing=1.0)
_STOPS: Final = frozenset({Trouble.LATE, Trouble.EXITED, Trouble.HUNG, Trouble.ALONE, Trouble.PAUSED})


@dataclass(frozen=True, slots=True)
class Job:
    """A job of several ranks; a rank's number is its place."""

    ranks: tuple[Rank, ...]
    exchange_seconds: float  # of a step
    episodes: tuple[Episode, ...] = ()

    def shares(self, seconds: float, speeds: Sequence[float] | None = None) -> tuple[Shares, ...]:
        """What each rank does at a time, if it computes at a speed: 1 for the speed of its model without trouble."""
        now = [each for each in self.episodes if each.at <= seconds < each.until]
        stopped = [each for each in now if each.trouble in _STOPS]
        if stopped:
            return tuple(_stopped(number, stopped) for number in range(len(self.ranks)))
        computing, ready = [], []
        for number, rank in enumerate(self.ranks):
            own = [each for each in now if number in each.ranks]
            compute = rank.compute_seconds / (speeds[number] if speeds else FORWARD)
            for each in own:
                compute /= each.factor if each.trouble in {Trouble.SLOW, Trouble.CHANGED} else FORWARD
            feeds = [rank.compute_seconds / each.factor for each in own if each.trouble is Trouble.STARVED]
            computing.append(compute)
            ready.append(max(compute, rank.feed_seconds, *feeds, 0.0))
        exchange = self.exchange_seconds
        for each in now:
            exchange /= each.factor if each.trouble is Trouble.EXCHANGE else FORWARD
        last = max(ready)
        step = last + exchange
        return tuple(
            Shares(compute / step, exchange / step, (last - own) / step, (own - compute) / step, steps=1 / step)
            for compute, own in zip(computing, ready, strict=True)
        )


def _stopped(number: int, stopped: Sequence[Episode]) -> Shares:
    """While a rank stops them, all others spin in their next collective."""
    own = {each.trouble for each in stopped if number in each.ranks}
    if own & {Trouble.EXITED, Trouble.LATE}:
        return GONE
    if own & {Trouble.HUNG, Trouble.PAUSED}:
        return IDLE
    return COMPUTES if Trouble.ALONE in own else SPINS
