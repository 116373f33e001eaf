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
from gpu_triage.cli.fleet.view import HostKey, RepeatOffender, key_of, offender_of
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.incidents.metrics import GPU_INCIDENTS_RECENT

DAY_SECONDS: Final = 86_400
MOST_ROWS: Final = 20
"""The most rows per table."""
_HOURS: Final = 3600
_JOULES_PER_KWH: Final = 3.6e6
_OWNER: Final = "cluster, workload_namespace, user, account"
_GPU: Final = "cluster, job, instance, gpu, uuid"

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

    @property
    def days(self) -> tuple[float, ...]:
        """Start of each day, in Unix seconds."""
        count = len(self.observed)
        return tuple(self.end - (count - place) * DAY_SECONDS for place in range(count))

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


def daily_queries(selection: Selection) -> Mapping[str, str]:
    """The queries that return one value per day, by name."""
    where = str(selection)
    shares = f"instance_gpu_name:gpu_busy:last5m{where}[1d]"
    # Shares are recorded every 5 minutes, so each covers 300 s.
    seen, busy = f"300 * count_over_time({shares})", f"300 * sum_over_time({shares})"
    lost = f"instance_gpu_class:gpu_bottleneck_seconds:increase1d{where}"
    named = f"* on ({_GPU}) group_left (name) topk by ({_GPU}) (1, last_over_time({shares}) ^ 0)"
    owned = {f"{what} by owner": f"owner:gpu_{what}_hours:sum1d" for what in ("allocated", "busy")}
    if where:
        # Recorded without host labels, so a selection has to compute the sum itself.
        share = f"instance_gpu_owner:gpu_allocated:share{where}"
        used = f"{share} * on ({_GPU}) group_left () max by ({_GPU}) (instance_gpu:gpu_busy:ratio5m{where})"
        owned = {
            "allocated by owner": f"sum_over_time({share}[1d]) / 60",
            "busy by owner": f"sum_over_time(({used})[1d:1m]) / 60",
        }
    return {
        "gpus": f"count(group by ({_GPU}) ({seen}))",
        "observed": f"sum({seen}) / {_HOURS}",
        "busy": f"sum({busy}) / {_HOURS}",
        "idle": f"300 * sum(sum_over_time(instance_gpu:gpu_allocated_idle:active{where}[1d])) / {_HOURS}",
        "energy": f"sum(increase(instance_gpu:gpu_energy_joules:last5m{where}[1d])) / {_JOULES_PER_KWH:.0f}",
        "lost": f"sum by (class) ({lost}) / {_HOURS}",
        **{name: f"sum by ({_OWNER}) ({hours})" for name, hours in owned.items()},
        "observed by model": f"sum by (name) ({seen}) / {_HOURS}",
        "busy by model": f"sum by (name) ({busy}) / {_HOURS}",
        "lost by model": f"sum by (name) ({lost} {named}) / {_HOURS}",
        "p95 by model": f"avg by (name) (quantile_over_time(0.95, {shares}))",
    }


def host_query(selection: Selection, days: int) -> str:
    """The hosts that lost the most hours to a class over the whole period."""
    # Subqueries align to midnight; a range one hour short of the period excludes the midnight before it.
    window = f"[{days * 24 - 1}h:1d]"
    recorded = f"instance_class:gpu_hours_lost:sum1d{selection}"
    return f"topk({MOST_ROWS}, sum by (cluster, job, instance, class) (sum_over_time({recorded}{window})))"


def offender_query(selection: Selection, days: int) -> str:
    """The boards with recurring incidents of one kind within 30 or 7 days, at any time in the period."""

    def most(within: int) -> str:
        which = selection.with_matcher(f'by="board",days="{within}",kind!="reset"')
        return f"max by ({_GPU}, kind) (max_over_time({GPU_INCIDENTS_RECENT.name}{which}[{days}d]))"

    month, week = (f"{LIMITS['gpu.repeat_offender'][name].value:.0f}" for name in ("in_30_days", "in_7_days"))
    return f"topk({MOST_ROWS}, {most(30)} >= {month} or {most(30)} and {most(7)} >= {week})"


def review(client: PrometheusClient, selection: Selection, end: float, days: int) -> Review:
    """The review of the given number of days before a midnight.

    Raises:
        PrometheusUnavailable: the server doesn't respond, or has no recorded series for the period.
    """
    midnights = [end - place * DAY_SECONDS for place in reversed(range(days))]
    found = {
        name: client.over(query, midnights[0], end, DAY_SECONDS) for name, query in daily_queries(selection).items()
    }

    def one(name: str) -> ByDay:
        return _by_day(found[name][0], midnights) if found[name] else (None,) * days

    if not found["observed"]:
        raise PrometheusUnavailable(
            f"{client.url} has no instance_gpu_name:gpu_busy:last5m{selection} in these {days} days; load "
            "rules/recording.yml, which records it"
        )
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
        hosts=tuple(
            HostHours(key_of(each), each.labels["class"], each.value)
            for each in client.at(host_query(selection, days), end)
            if each.value > 0
        ),
        offenders=_offenders(client, selection, end, days),
        warnings=tuple(client.warnings),
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


def _offenders(client: PrometheusClient, selection: Selection, end: float, days: int) -> tuple[RepeatOffender, ...]:
    found = client.at(offender_query(selection, days), end)
    uuids = "|".join(sorted({each.labels["uuid"] for each in found} - {""}))
    serials: dict[str, str] = {}
    if uuids:
        which = selection.with_matcher(f'uuid=~"{uuids}"')
        known = client.at(f"group by (uuid, serial) (last_over_time({GPU_INFO.name}{which}[{days}d]))", end)
        serials = {each.labels["uuid"]: each.labels["serial"] for each in known}
    boards = (offender_of(each, serials.get(each.labels["uuid"], "")) for each in found)
    return tuple(sorted(boards, key=lambda each: (-each.times, each.key, each.gpu, each.kind)))
