"""How many steps the job makes, if it counts them: now, in its best stretch, and on each rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.client import Series
from gpu_triage.cli.fleet.view import HostKey, key_of
from gpu_triage.cli.job.facts import Facts, Window
from gpu_triage.cli.job.runs import Run

_STRAGGLER_SHARE: Final = 0.1
_STOPPED_SECONDS: Final = 300.0
"""A checkpoint or an evaluation takes less; a job that counted no step for longer has stopped."""


class Rank(NamedTuple):
    """One rank's counter of steps."""

    host: HostKey
    job_name: str
    rank: str  # "" if the job does not label it
    per_second: float  # mean over the window
    moved: float | None  # Unix seconds of its last step; None if it never made one

    @property
    def subject(self) -> str:
        """Display name: ``rank 5 on gpu-07:9836``."""
        return f"rank {self.rank} on {self.host}" if self.rank else str(self.host)


@dataclass(frozen=True, slots=True)
class Pace:
    """The job's steps.

    Attributes:
        recent: steps per second at the end of the window; None if too little was scraped.
        best: in the best stretch of `stretch_seconds`.
        ranks: by host and rank.
        stopped_seconds: for how long no rank made a step, at the end; 0 if it is no longer than a checkpoint.
    """

    recent: float | None
    best: float | None
    stretch_seconds: int
    ranks: tuple[Rank, ...]
    stopped_seconds: float

    @property
    def slowest(self) -> tuple[Rank, float] | None:
        """The rank with the lowest pace, and the median of all; None with fewer than two."""
        if len(self.ranks) < 2:  # noqa: PLR2004 - a pair
            return None
        return min(self.ranks, key=lambda each: each.per_second), median(each.per_second for each in self.ranks)

    @property
    def straggler(self) -> Rank | None:
        """The slowest rank, if it makes fewer steps than ranks of a synchronous job can differ by."""
        if self.slowest is None:
            return None
        rank, usual = self.slowest
        return rank if rank.per_second < (1 - _STRAGGLER_SHARE) * usual else None

    @property
    def below_best(self) -> float | None:
        """By which share it is slower now than in its best stretch, 0-1; None if not known."""
        if self.recent is None or not self.best:
            return None
        return max(0.0, 1 - self.recent / self.best)


def pace_of(facts: Facts, run: Run, window: Window, stretch_seconds: int) -> Pace | None:
    """The steps of a job; None if it counts none, or if the user's other jobs count theirs there as well."""
    own = [each for each in facts.paces if each.labels["owner"] not in run.users]
    paces = own or facts.paces
    if not paces or (not own and len({each.labels["job_name"] for each in paces}) > 1):
        return None
    owners = {each.labels["owner"] for each in paces}
    moved = {_key(each): each.value for each in facts.moved}
    ranks = [
        Rank(key_of(each), each.labels["job_name"], each.labels["rank"], each.value, moved.get(_key(each)))
        for each in paces
    ]
    last = max((each.moved for each in ranks if each.moved is not None), default=window.start)
    stopped = window.end - last
    return Pace(
        recent=_median(facts.recent, owners),
        best=_median(facts.best, owners),
        stretch_seconds=stretch_seconds,
        ranks=tuple(sorted(ranks, key=lambda each: (each.host, len(each.rank), each.rank))),
        stopped_seconds=stopped if stopped > _STOPPED_SECONDS else 0.0,
    )


def _median(found: Iterable[Series], owners: Iterable[str]) -> float | None:
    """The pace of the job: its ranks count the same steps."""
    values = [each.value for each in found if each.labels["owner"] in owners]
    return median(values) if values else None


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    # Reading a missing label adds an empty one.
    return tuple(sorted((name, value) for name, value in series.labels.items() if value))


def by_host(ranks: Iterable[Rank]) -> Mapping[HostKey, float]:
    """The mean pace of each host's ranks."""
    found: defaultdict[HostKey, list[float]] = defaultdict(list)
    for each in ranks:
        found[each.host].append(each.per_second)
    return {host: sum(paces) / len(paces) for host, paces in found.items()}
