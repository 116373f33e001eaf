"""The slowest GPU and the slowest host of a job, against the median of the others.

A GPU or host is compared with the others only, so that the slower one of a pair can be named. GPUs of another model are
left out, because their clocks and power differ anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.view import HostKey
from gpu_triage.cli.job.view import WAITS, Job, JobGpu


class Readings(NamedTuple):
    """Means of one GPU, or of the GPUs of one host; None if not known."""

    clock: float | None  # hertz
    power: float | None  # watts
    busy: float | None  # 0-1
    caused: float | None  # share of its time in classes with a cause of its own, 0-1
    waiting: float | None  # share of its time in the class communication, 0-1


_PLACES: Final = range(len(Readings._fields))

CLOCK_SHARE: Final = 0.07
"""GPUs of one model differ by up to about 5 % at their power limit."""
BUSY_SHARE: Final = 0.2
CAUSED_SHARE: Final = 0.1
WAITING_SHARE: Final = 0.3
"""By how much of its time a GPU must wait less than the others: they wait for it."""
MOST_OF_A_HOST: Final = 0.75
"""If so many of its GPUs are outliers, the host is one."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a GPU or a host compares with the others of the job.

    Attributes:
        gpus: it, or all of the host.
        own, others: its readings, and the medians of the others.
        others_count: how many these are.
        reasons: readings that make it an outlier, the clearest first: names of `Readings`.
        score: the larger, the slower; from 1 on it is an outlier.
    """

    gpus: tuple[JobGpu, ...]
    own: Readings
    others: Readings
    others_count: int
    reasons: tuple[str, ...]
    score: float

    @property
    def host(self) -> HostKey:
        """Its host."""
        return self.gpus[0].host

    @property
    def stands_out(self) -> bool:
        """Whether it is slower than GPUs or hosts differ anyway."""
        return bool(self.reasons)


class Comparison(NamedTuple):
    """The slowest GPU and host; None if there is no other to compare with."""

    gpu: Standing | None
    host: Standing | None
    culprit: Standing | None  # what the job waits for, one of the two; None if neither is an outlier
    culprit_is_host: bool
    alike: int = 0  # how many others are outliers for the same reason


def compare(job: Job) -> Comparison:
    """Compare the GPUs of a job, and its hosts."""
    gpus = _standings([(gpu,) for gpu in job.gpus])
    by_host: defaultdict[HostKey, list[JobGpu]] = defaultdict(list)
    for gpu in job.gpus:
        by_host[gpu.host].append(gpu)
    hosts = _standings([tuple(each) for each in by_host.values()])
    slowest = max(gpus, key=lambda each: each.score, default=None)
    host = max(hosts, key=lambda each: each.score, default=None)
    if host is not None and host.stands_out and _is_whole(host, gpus):
        return Comparison(slowest, host, host, culprit_is_host=True, alike=_alike(host, hosts))
    culprit = slowest if slowest is not None and slowest.stands_out else None
    alike = 0 if culprit is None else _alike(culprit, gpus)
    return Comparison(slowest, host, culprit, culprit_is_host=False, alike=alike)


def _alike(one: Standing, standings: Iterable[Standing]) -> int:
    return sum(each.reasons[:1] == one.reasons[:1] for each in standings) - 1


def _is_whole(host: Standing, gpus: Iterable[Standing]) -> bool:
    """Whether nearly all GPUs of a host, and at least two, are outliers."""
    slow = sum(each.stands_out and each.host == host.host for each in gpus)
    return slow >= max(2, MOST_OF_A_HOST * len(host.gpus))


def _standings(groups: Sequence[tuple[JobGpu, ...]]) -> list[Standing]:
    by_models: defaultdict[tuple[str, ...], list[tuple[JobGpu, ...]]] = defaultdict(list)
    for group in groups:
        by_models[tuple(sorted({gpu.name for gpu in group}))].append(group)
    found = []
    for alike in by_models.values():
        readings = [_readings(group) for group in alike]
        ordered = [sorted(value for each in readings if (value := each[place]) is not None) for place in _PLACES]
        if len(alike) > 1:
            found += [_standing(group, own, ordered, len(alike)) for group, own in zip(alike, readings, strict=True)]
    return found


def _standing(group: tuple[JobGpu, ...], own: Readings, ordered: Sequence[Sequence[float]], count: int) -> Standing:
    others = Readings(*(_median_without(ordered[place], own[place]) for place in _PLACES))
    scores = _scores(own, others)
    reasons = tuple(sorted((name for name in scores if scores[name] >= 1), key=lambda name: -scores[name]))
    return Standing(group, own, others, count - 1, reasons, max(scores.values(), default=0.0))


def _median_without(ordered: Sequence[float], value: float | None) -> float | None:
    """The median of sorted values without one of them, if it is not None; None if nothing is left."""
    skipped = len(ordered) if value is None else bisect_left(ordered, value)
    count = len(ordered) - (value is not None)
    if count == 0:
        return None
    middle = ((count - 1) // 2, count // 2)
    return fmean(ordered[place + (place >= skipped)] for place in middle)


def _scores(own: Readings, others: Readings) -> dict[str, float]:
    """How far it is behind by each reading, in multiples of what is normal; missing if not known."""
    scores = {}
    if own.caused is not None and others.caused is not None:
        scores["caused"] = (own.caused - others.caused) / CAUSED_SHARE
    if own.clock is not None and others.clock:
        scores["clock"] = (1 - own.clock / others.clock) / CLOCK_SHARE
    if own.busy is not None and others.busy is not None:
        scores["busy"] = (others.busy - own.busy) / BUSY_SHARE
    if own.waiting is not None and others.waiting is not None:
        scores["waiting"] = (others.waiting - own.waiting) / WAITING_SHARE
    return scores


def _readings(gpus: Sequence[JobGpu]) -> Readings:
    seconds = sum(sum(gpu.seconds.values()) for gpu in gpus)
    return Readings(
        clock=_mean(gpu.clock for gpu in gpus),
        power=_mean(gpu.power for gpu in gpus),
        busy=_mean(gpu.busy for gpu in gpus),
        caused=sum(gpu.own_cause for gpu in gpus) / seconds if seconds else None,
        waiting=sum(gpu.seconds.get(WAITS, 0.0) for gpu in gpus) / seconds if seconds else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
