"""Capacity review: what a fleet's GPUs did on each of the last days, from the series recorded by the rules.

Days are UTC: the value of a recorded series at midnight covers the preceding day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.client import PrometheusClient, Series
from gpu_triage.cli.fleet.query import Selection
from gpu_triage.cli.fleet.review_queries import daily_queries, host_query, offender_query
from gpu_triage.cli.fleet.view import HostKey, RepeatOffender, key_of, offender_of
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.identity import GPU_INFO

DAY_SECONDS: Final = 86_400

ByDay = tuple[float | None, ...]
"""One value per day; None for a day without data."""


class Owner(NamedTuple):
    """A Kubernetes namespace, or a Slurm user and account, in a cluster; "" for what doesn't apply."""

    cluster: str
    namespace: str
    user: str
    account: str

    def __str__(self) -> str:
        """Display name: ``namespace east/vision``, ``east/ada (physics)``."""
        cluster = f"{self.cluster}/" if self.cluster else ""
        if self.namespace:
            return f"namespace {cluster}{self.namespace}"
        if self.user or self.account:
            return f"{cluster}{self.user or 'unknown user'}{self.account and f' ({self.account})'}"
        return f"{cluster}unknown"


class OwnerHours(NamedTuple):
    """GPU hours of one owner."""

    owner: Owner
    allocated: float
    busy: float

    @property
    def unused(self) -> float:
        """Hours in which the allocated GPUs did no work."""
        return max(0.0, self.allocated - self.busy)


class ModelHours(NamedTuple):
    """GPU hours of one model; None for what wasn't recorded."""

    name: str
    observed: float  # GPU hours, like the next two
    busy: float
    lost: float
    p95: float | None  # 95th percentile of a GPU's utilization in a day, averaged over GPUs and days


class HostHours(NamedTuple):
    """GPU hours that one host lost to one bottleneck class."""

    key: HostKey
    name: str
    hours: float


@dataclass(frozen=True, slots=True)
class Review:
    """The review; hours are GPU hours.

    Attributes:
        end: Unix seconds of the midnight after the last day.
        gpus: number of GPUs seen.
        observed: hours with known GPU activity.
        busy: observed hours with work.
        idle: hours in which a GPU was allocated but unused.
        energy: in kWh.
        lost: hours by bottleneck class, in the playbook's order of severity.
        owners, models, hosts: largest loss first.
        offenders: boards with recurring incidents.
        warnings: warnings returned by the server.
        step_seconds: what each value covers: a day, or the whole period of a first look.
    """

    source: str
    selection: str
    end: float
    gpus: ByDay
    observed: ByDay
    busy: ByDay
    idle: ByDay
    energy: ByDay
    lost: Mapping[str, ByDay]
    owners: tuple[OwnerHours, ...]
    models: tuple[ModelHours, ...]
    hosts: tuple[HostHours, ...]
    offenders: tuple[RepeatOffender, ...]
    warnings: tuple[str, ...]
    step_seconds: float = DAY_SECONDS

    @property
    def first_look(self) -> bool:
        """Whether it is about the last hours, from raw series, instead of whole days."""
        return self.step_seconds != DAY_SECONDS

    @property
    def days(self) -> tuple[float, ...]:
        """Start of each day, in Unix seconds."""
        count = len(self.observed)
        return tuple(self.end - (count - place) * self.step_seconds for place in range(count))

    @property
    def lost_by_day(self) -> ByDay:
        """Lost hours over all classes; 0 on observed days without a series, because nothing was lost."""
        return tuple(
            None if seen is None else total(values[place] for values in self.lost.values()) or 0.0
            for place, seen in enumerate(self.observed)
        )

    @property
    def missing(self) -> tuple[float, ...]:
        """The days without data."""
        return tuple(day for day, value in zip(self.days, self.observed, strict=True) if value is None)


def total(values: Iterable[float | None]) -> float | None:
    """The sum over days with data, or None."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def last_midnight(seconds: float) -> float:
    """The latest UTC midnight at or before a Unix time."""
    return seconds // DAY_SECONDS * DAY_SECONDS


def review(client: PrometheusClient, selection: Selection, now: float, days: int) -> Review:
    """The review of the given number of whole days before this time.

    Raises:
        PrometheusUnavailable: the server doesn't respond, or has no recorded series for the period.
    """
    end = last_midnight(now)
    midnights = [end - place * DAY_SECONDS for place in reversed(range(days))]
    found = {
        name: client.over(query, midnights[0], end, DAY_SECONDS) for name, query in daily_queries(selection).items()
    }
    if not found["observed"]:
        raise _nothing_recorded(client, selection, now, days)
    hosts = client.at(host_query(selection, days), end)
    return assembled(client, selection, midnights, found, hosts=hosts, window=f"{days}d")


def _nothing_recorded(client: PrometheusClient, selection: Selection, now: float, days: int) -> PrometheusUnavailable:
    """The error for a period without recorded series, with the cause and what to do."""
    recorded = f"instance_gpu_name:gpu_busy:last5m{selection}"
    if client.at(f"count(count_over_time({recorded}[1d]))", now):
        return PrometheusUnavailable(
            f"{client.url} has recorded series of today only: the first day is complete at midnight UTC; "
            "for a first look, give --since 6h"
        )
    look = ", and give --since 6h for a first look" if client.at(f"count({GPU_INFO.name}{selection})", now) else ""
    return PrometheusUnavailable(
        f"{client.url} has no {recorded} in these {days} days; load rules/recording.yml, which records it{look}"
    )


def assembled(
    client: PrometheusClient,
    selection: Selection,
    midnights: Sequence[float],
    found: Mapping[str, list[Series]],
    *,
    hosts: Iterable[Series],
    window: str,
    step_seconds: float = DAY_SECONDS,
) -> Review:
    """The review from the answers to queries.

    Args:
        client: for the offenders.
        selection: of the hosts.
        midnights: end of each day, or of the only period.
        found: answers by the names of `daily_queries`.
        hosts: answer to `host_query`.
        window: the whole period in PromQL.
        step_seconds: length of a day, or of the only period.
    """
    end = midnights[-1]

    def one(name: str) -> ByDay:
        return _by_day(found[name][0], midnights) if found[name] else (None,) * len(midnights)

    lost = {each.labels["class"]: _by_day(each, midnights) for each in found["lost"]}
    return Review(
        source=client.url,
        selection=str(selection),
        end=end,
        gpus=one("gpus"),
        observed=one("observed"),
        busy=one("busy"),
        idle=one("idle"),
        energy=one("energy"),
        lost={name: lost[name] for name in BOTTLENECK_CLASSES if name in lost},
        owners=_owners(found["allocated by owner"], found["busy by owner"]),
        models=_models(*(found[f"{what} by model"] for what in ("observed", "busy", "lost", "p95"))),
        hosts=tuple(HostHours(key_of(each), each.labels["class"], each.value) for each in hosts if each.value > 0),
        offenders=_offenders(client, selection, end, window),
        warnings=tuple(client.warnings),
        step_seconds=step_seconds,
    )


def _by_day(series: Series, midnights: Sequence[float]) -> ByDay:
    values = {round(at): value for at, value in series.samples}
    return tuple(values.get(round(midnight)) for midnight in midnights)


def _sums(found: Iterable[Series], *labels: str) -> defaultdict[tuple[str, ...], float]:
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for each in found:
        sums[tuple(each.labels[name] for name in labels)] += sum(value for _, value in each.samples)
    return sums


def _owners(allocated: Iterable[Series], busy: Iterable[Series]) -> tuple[OwnerHours, ...]:
    labels = ("cluster", "workload_namespace", "user", "account")
    had, used = _sums(allocated, *labels), _sums(busy, *labels)
    found = (OwnerHours(Owner(*key), had[key], used[key]) for key in had)
    return tuple(sorted(found, key=lambda each: (-each.unused, each.owner)))


def _models(
    observed: Iterable[Series], busy: Iterable[Series], lost: Iterable[Series], p95: Iterable[Series]
) -> tuple[ModelHours, ...]:
    seen, used, missed = (_sums(each, "name") for each in (observed, busy, lost))
    means = {each.labels["name"]: sum(value for _, value in each.samples) / len(each.samples) for each in p95}
    found = (ModelHours(key[0], seen[key], used[key], missed[key], means.get(key[0])) for key in seen)
    return tuple(sorted(found, key=lambda each: (-each.observed, each.name)))


def _offenders(client: PrometheusClient, selection: Selection, end: float, window: str) -> tuple[RepeatOffender, ...]:
    found = client.at(offender_query(selection, window), end)
    uuids = "|".join(sorted({each.labels["uuid"] for each in found} - {""}))
    serials: dict[str, str] = {}
    if uuids:
        which = selection.with_matcher(f'uuid=~"{uuids}"')
        known = client.at(f"group by (uuid, serial) (last_over_time({GPU_INFO.name}{which}[{window}]))", end)
        serials = {each.labels["uuid"]: each.labels["serial"] for each in known}
    boards = (offender_of(each, serials.get(each.labels["uuid"], "")) for each in found)
    return tuple(sorted(boards, key=lambda each: (-each.times, each.key, each.gpu, each.kind)))
