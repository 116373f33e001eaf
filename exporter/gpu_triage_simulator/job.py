"""A synchronous job: one clock that couples all of its GPUs, on whatever hosts they are.

In each step a rank waits for its data, computes, and exchanges results with all others: who is ready early spins in the
collective until the last one arrives. What the ranks do is a function of the time and of how fast each one is, so that
the hosts of a job can be simulated one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Final, NamedTuple

FORWARD: Final = 1.0


class Rank(NamedTuple):
    """One GPU of a job."""

    host: str
    gpu: int  # index on its host
    compute_seconds: float  # of a step, at full speed: stages of a pipeline and parameter servers have their own
    feed_seconds: float = 0.0  # in which its host prepares the data of a step, ahead of it: less is never waited for


class Trouble(Enum):
    """What happens to ranks of a job; some kinds have a factor as their measure."""

    SLOW = "slow"  # computing takes 1 / factor times as long, whatever its clock is
    STARVED = "starved"  # its host has data for no more than the factor of the steps of the job without trouble
    LATE = "late"  # the rank is not there yet; the others wait for it to start, without a kernel
    EXITED = "exited"  # its process has ended, and the others spin
    HUNG = "hung"  # its process exists and does nothing, and the others spin
    ALONE = "alone"  # the rank computes alone, as in an evaluation on rank 0, and the others spin
    PAUSED = "paused"  # the ranks run no kernel, as in a checkpoint, and all others spin
    EXCHANGE = "exchange"  # the exchange takes 1 / factor times as long: the network of a host is slow
    CHANGED = "changed"  # there is 1 / factor times as much to compute: the job does something else


@dataclass(frozen=True, slots=True)
class Episode:
    """Trouble of some ranks between two times, in seconds of the job."""

    trouble: Trouble
    at: float
    until: float
    ranks: frozenset[int]  # their numbers
    factor: float = FORWARD


class Shares(NamedTuple):
    """What a rank spends its time with, as shares of a second that sum up to 1, and what it gets done in that time."""

    computing: float = 0.0
    exchanging: float = 0.0
    spinning: float = 0.0
    starving: float = 0.0  # no kernel runs
    absent: bool = False  # whether its process is gone
    steps: float = 0.0  # a second
    # work, traffic: seconds of computing at full speed and of exchanging without trouble that a second gets done; what
    # a step moves through memory and links is constant
    work: float = 0.0
    traffic: float = 0.0

    def second(self, begins: float) -> Shares:
        """The shares of one second, for a rank that has done `begins` steps before it.

        In each step it starves, computes, spins and exchanges data, in this order.
        """
        if not self.steps:
            return self
        order = (self.starving, self.computing, self.spinning, self.exchanging)
        ends = begins + self.steps
        starving, computing, spinning, exchanging = (
            (_done(ends, start, share) - _done(begins, start, share)) / self.steps
            for start, share in zip(accumulate((0.0, *order[:-1])), order, strict=True)
        )
        return self._replace(
            computing=computing,
            exchanging=exchanging,
            spinning=spinning,
            starving=starving,
            work=self.work * computing / self.computing if self.computing else self.work,
            traffic=self.traffic * exchanging / self.exchanging if self.exchanging else self.traffic,
        )


def _done(steps: float, start: float, share: float) -> float:
    """How much of a part of each step is done after so many of them, in steps."""
    whole, begun = divmod(steps, 1.0)
    return whole * share + min(max(begun - start, 0.0), share)


GONE: Final = Shares(starving=1.0, absent=True)
IDLE: Final = Shares(starving=1.0)
SPINS: Final = Shares(spinning=1.0)
_STOPS: Final = frozenset({Trouble.LATE, Trouble.EXITED, Trouble.HUNG, Trouble.ALONE, Trouble.PAUSED})


@dataclass(frozen=True, slots=True)
class Job:
    """A job of several ranks; a rank's number is its place."""

    ranks: tuple[Rank, ...]
    exchange_seconds: float  # of a step
    episodes: tuple[Episode, ...] = ()

    @property
    def step_seconds(self) -> float:
        """A step without trouble, of ranks that all have their model's full speed."""
        return max(rank.compute_seconds for rank in self.ranks) + self.exchange_seconds

    def shares(self, seconds: float, speeds: Sequence[float] | None = None) -> tuple[Shares, ...]:
        """What each rank does at a time, if it computes at a speed: 1 for the speed of its model without trouble.

        A rank without any speed, as on a GPU that is lost, hangs.
        """
        paces = speeds or (FORWARD,) * len(self.ranks)
        now = [each for each in self.episodes if each.at <= seconds < each.until]
        dead = frozenset(number for number, pace in enumerate(paces) if not pace)
        stopped = [each for each in now if each.trouble in _STOPS]
        if stopped or dead:
            lost = Episode(Trouble.HUNG, seconds, math.inf, dead)
            return tuple(_stopped(number, pace, [*stopped, lost]) for number, pace in enumerate(paces))
        work = [rank.compute_seconds / _factor(now, Trouble.CHANGED, number) for number, rank in enumerate(self.ranks)]
        slow = [_factor(now, Trouble.SLOW, number) for number in range(len(self.ranks))]
        compute = [each / pace / factor for each, pace, factor in zip(work, paces, slow, strict=True)]
        exchange = max(
            self.exchange_seconds / _factor(now, Trouble.EXCHANGE, number) for number in range(len(self.ranks))
        )
        feed = [
            max(
                rank.feed_seconds,
                self.step_seconds / factor if (factor := _factor(now, Trouble.STARVED, number)) < 1 else 0.0,
            )
            for number, rank in enumerate(self.ranks)
        ]
        step = max(max(compute) + exchange, *feed)
        return tuple(
            # Data is prepared while a rank spins, too: only who has the slowest host waits for data.
            _in_step(own, step, exchange, starves=fed >= step)._replace(
                work=done / step, traffic=self.exchange_seconds / step
            )
            for own, fed, done in zip(compute, feed, work, strict=True)
        )


def _factor(now: Sequence[Episode], trouble: Trouble, number: int) -> float:
    return math.prod(each.factor for each in now if each.trouble is trouble and number in each.ranks)


def _in_step(compute: float, step: float, exchange: float, *, starves: bool) -> Shares:
    rest = max(0.0, step - compute - exchange) / step
    return Shares(compute / step, exchange / step, 0.0 if starves else rest, rest if starves else 0.0, steps=1 / step)


def _stopped(number: int, pace: float, stopped: Sequence[Episode]) -> Shares:
    """While a rank stops them, all others wait for it: in the rendezvous of a start, or in their next collective."""
    own = {each.trouble for each in stopped if number in each.ranks}
    if own & {Trouble.EXITED, Trouble.LATE}:
        return GONE
    if own & {Trouble.HUNG, Trouble.PAUSED} or any(each.trouble is Trouble.LATE for each in stopped):
        return IDLE
    return Shares(computing=1.0, work=pace) if Trouble.ALONE in own else SPINS
