"""Capacity review: what a fleet's GPUs did on each of the last days, from the series recorded by the rules.

Days are UTC: the value of a recorded series at midnight covers the preceding day. Before the rules have recorded a day,
the exporters' own series of the last hours replace it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import yaml

from gpu_triage.alerting.files import rule_files
from gpu_triage.cli.fleet.fleet_view import HostKey, RepeatOffender, Selection, key_of, matcher_of_any, offender_of
from gpu_triage.cli.fleet.job_pace import RECORDED_SECONDS, JobName, job_name, lost_by_job
from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENTS_RECENT

MOST_ROWS: Final = 20  # the most rows per table
HOUR_SECONDS: Final = 3600
JOULES_PER_KWH: Final = 3.6e6
OWNER_LABELS: Final = "cluster, workload_namespace, user, account"
GPU_LABELS: Final = "cluster, job, instance, gpu, uuid"


def daily_queries(selection: Selection) -> Mapping[str, str]:
    """The queries that return one value per day, by name."""
    where = str(selection)
    shares = f"instance_gpu_name:gpu_busy:last5m{where}[1d]"
    # Shares are recorded every 5 minutes, so each covers 300 s.
    seen, busy = f"300 * count_over_time({shares})", f"300 * sum_over_time({shares})"
    lost = f"instance_gpu_class:gpu_bottleneck_seconds:increase1d{where}"
    named = f"* on ({GPU_LABELS}) group_left (name) topk by ({GPU_LABELS}) (1, last_over_time({shares}) ^ 0)"
    owned = {f"{what} by owner": f"owner:gpu_{what}_hours:sum1d" for what in ("allocated", "busy")}
    if where:
        # Recorded without host labels, so a selection has to compute the sum itself.
        share = f"instance_gpu_owner:gpu_allocated:share{where}"
        used = f"{share} * on ({GPU_LABELS}) group_left () max by ({GPU_LABELS}) (instance_gpu:gpu_busy:ratio5m{where})"
        owned = {
            "allocated by owner": f"sum_over_time({share}[1d]) / 60",
            "busy by owner": f"sum_over_time(({used})[1d:1m]) / 60",
        }
    return {
        "gpus": f"count(group by ({GPU_LABELS}) ({seen}))",
        "observed": f"sum({seen}) / {HOUR_SECONDS}",
        "busy": f"sum({busy}) / {HOUR_SECONDS}",
        "idle": f"300 * sum(sum_over_time(instance_gpu:gpu_allocated_idle:active{where}[1d])) / {HOUR_SECONDS}",
        "energy": f"sum(increase(instance_gpu:gpu_energy_joules:last5m{where}[1d])) / {JOULES_PER_KWH:.0f}",
        "lost": f"sum by (class) ({lost}) / {HOUR_SECONDS}",
        **{name: f"sum by ({OWNER_LABELS}) ({hours})" for name, hours in owned.items()},
        "lost by job": f"{RECORDED_SECONDS} * sum_over_time(({lost_by_job(selection)})[1d:1m]) / {HOUR_SECONDS}",
        "observed by model": f"sum by (name) ({seen}) / {HOUR_SECONDS}",
        "busy by model": f"sum by (name) ({busy}) / {HOUR_SECONDS}",
        "lost by model": f"sum by (name) ({lost} {named}) / {HOUR_SECONDS}",
        "p95 by model": f"avg by (name) (quantile_over_time(0.95, {shares}))",
    }


def host_query(selection: Selection, days: int) -> str:
    """The hosts that lost the most hours to a class over the whole period."""
    # Subqueries align to midnight; a range one hour short of the period excludes the midnight before it.
    window = f"[{days * 24 - 1}h:1d]"
    recorded = f"instance_class:gpu_hours_lost:sum1d{selection}"
    return f"topk({MOST_ROWS}, sum by (cluster, job, instance, class) (sum_over_time({recorded}{window})))"


def offender_query(selection: Selection, window: str) -> str:
    """The boards with recurring incidents of one kind within 30 or 7 days, at any time in the window, such as 30d."""

    def most(within: int) -> str:
        which = selection.with_matcher(f'by="board",days="{within}",kind!="reset"')
        return f"max by ({GPU_LABELS}, kind) (max_over_time({GPU_INCIDENTS_RECENT.name}{which}[{window}]))"

    month, week = (f"{LIMITS['gpu.repeat_offender'][name].value:.0f}" for name in ("in_30_days", "in_7_days"))
    return f"topk({MOST_ROWS}, {most(30)} >= {month} or {most(30)} and {most(7)} >= {week})"


DAY_SECONDS: Final = 86_400

ByDay = tuple[float | None, ...]  # one value per day; None for a day without data


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
    key: HostKey
    name: str
    hours: float


@dataclass(frozen=True, slots=True)
class Review:
    """The review; hours are GPU hours."""

    source: str
    selection: str
    end: float  # Unix seconds of the midnight after the last day
    gpus: ByDay  # number of GPUs seen
    observed: ByDay  # hours with known GPU activity
    busy: ByDay  # observed hours with work
    idle: ByDay  # hours in which a GPU was allocated but unused
    energy: ByDay  # in kWh
    lost: Mapping[str, ByDay]  # hours by bottleneck class, in the playbook's order of severity
    owners: tuple[OwnerHours, ...]  # largest loss first
    jobs: Mapping[JobName, float]  # hours that each lost by its pace, likewise; empty if none was recorded
    models: tuple[ModelHours, ...]  # likewise
    hosts: tuple[HostHours, ...]  # likewise
    offenders: tuple[RepeatOffender, ...]  # boards with recurring incidents
    warnings: tuple[str, ...]  # warnings returned by the server
    gpu_hour_price: float | None = None  # in any currency
    step_seconds: float = DAY_SECONDS  # what each value covers: a day, or the whole period of a first look

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
        return tuple(day for day, value in zip(self.days, self.observed, strict=True) if value is None)


def total(values: Iterable[float | None]) -> float | None:
    """The sum over days with data, or None."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def review(client: PrometheusClient, selection: Selection, now: float, days: int) -> Review:
    """The review of so many whole days before this time; raises PrometheusUnavailable if none of them was recorded."""
    end = now // DAY_SECONDS * DAY_SECONDS
    midnights = [end - place * DAY_SECONDS for place in reversed(range(days))]
    queries = daily_queries(selection)
    found = {name: client.over(query, midnights[0], end, DAY_SECONDS) for name, query in queries.items()}
    if not found["observed"]:
        raise _nothing_recorded(client, selection, now, days)
    found["hosts"] = client.at(host_query(selection, days), end)
    return _assembled(client, selection, midnights, found, window=f"{days}d")


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


def _assembled(
    client: PrometheusClient,
    selection: Selection,
    midnights: Sequence[float],
    found: Mapping[str, list[Series]],
    *,
    window: str,
    step_seconds: float = DAY_SECONDS,
) -> Review:
    """From the answers to `daily_queries` and `host_query`; `midnights`: the ends of days, `window`: all, in PromQL."""
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
        owners=_owners(found),
        jobs=_jobs(found.get("lost by job", ())),
        models=_models(found),
        hosts=tuple(HostHours(key_of(each), each.labels["class"], each.value) for each in found["hosts"] if each.value),
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


def _owners(found: Mapping[str, list[Series]]) -> tuple[OwnerHours, ...]:
    labels = ("cluster", "workload_namespace", "user", "account")
    had, used = (_sums(found[f"{what} by owner"], *labels) for what in ("allocated", "busy"))
    owners = (OwnerHours(Owner(*key), had[key], used[key]) for key in had)
    return tuple(sorted(owners, key=lambda each: (-each.unused, each.owner)))


def _jobs(found: Iterable[Series]) -> Mapping[JobName, float]:
    hours: defaultdict[JobName, float] = defaultdict(float)
    for each in found:
        hours[job_name(each)] += sum(value for _, value in each.samples)
    return dict(sorted(hours.items(), key=lambda each: (-each[1], each[0])))


def _models(found: Mapping[str, list[Series]]) -> tuple[ModelHours, ...]:
    seen, used, missed = (_sums(found[f"{what} by model"], "name") for what in ("observed", "busy", "lost"))
    p95 = found["p95 by model"]
    means = {each.labels["name"]: sum(value for _, value in each.samples) / len(each.samples) for each in p95}
    models = (ModelHours(key[0], seen[key], used[key], missed[key], means.get(key[0])) for key in seen)
    return tuple(sorted(models, key=lambda each: (-each.observed, each.name)))


def _offenders(client: PrometheusClient, selection: Selection, end: float, window: str) -> tuple[RepeatOffender, ...]:
    found = client.at(offender_query(selection, window), end)
    uuids = {each.labels["uuid"] for each in found} - {""}
    serials: dict[str, str] = {}
    if uuids:
        which = selection.with_matcher(matcher_of_any("uuid", uuids))
        known = client.at(f"group by (uuid, serial) (last_over_time({GPU_INFO.name}{which}[{window}]))", end)
        serials = {each.labels["uuid"]: each.labels["serial"] for each in known}
    boards = (offender_of(each, serials.get(each.labels["uuid"], "")) for each in found)
    return tuple(sorted(boards, key=lambda each: (-each.times, each.key, each.gpu, each.kind)))


_STEP: Final = 300  # resolution in seconds, as that of the recorded series
_BUSY: Final = "instance_gpu:gpu_busy:ratio5m"
_SHARE: Final = "instance_gpu_owner:gpu_allocated:share"
_IDLE: Final = "instance_gpu:gpu_allocated_idle:active"


@cache
def _recorded() -> Mapping[str, str]:
    groups = yaml.safe_load(rule_files()["recording.yml"])["groups"]
    return {rule["record"]: str(rule["expr"]).strip() for group in groups for rule in group["rules"]}


def first_look_queries(selection: Selection, seconds: int) -> Mapping[str, str]:
    """As `daily_queries`, but what jobs lost, over so many seconds of raw series; ``hosts`` is as `host_query`."""
    where = str(selection)
    rules = _recorded()
    # A second less: a window of whole steps would have one more, in Prometheus 2.
    window = f"[{seconds - 1}s:{_STEP}s]"
    only = f" and on ({GPU_LABELS}) last_over_time({GPU_INFO.name}{where}[10m])" if where else ""
    busy = f"(({rules[_BUSY]}){only})"
    share = f"(({rules[_SHARE]}){only})"
    idle = f"(({rules[_IDLE].replace(f'last_over_time({_BUSY}[2m])', f'({rules[_BUSY]})')}){only})"
    # One series for each GPU: its model, or "" if it was never read.
    seen = f"{_STEP} * max by ({GPU_LABELS}) (count_over_time({busy}{window}))"
    worked = f"{_STEP} * max by ({GPU_LABELS}) (sum_over_time({busy}{window}))"
    own = selection.with_matcher('class!~"compute|idle"')
    lost = f"increase(gpu_bottleneck_seconds_total{own}[{seconds}s])"
    model = f"last_over_time({GPU_INFO.name}{where}[{seconds}s])"
    named = f"* on ({GPU_LABELS}) group_left (name) topk by ({GPU_LABELS}) (1, {model})"
    used = f"{share} * on ({GPU_LABELS}) group_left () max by ({GPU_LABELS}) ({busy})"
    hours = f"* {_STEP} / {HOUR_SECONDS}"
    most = f"max by ({GPU_LABELS}) (quantile_over_time(0.95, {busy}{window}))"
    return {
        "gpus": f"count({seen})",
        "observed": f"sum({seen}) / {HOUR_SECONDS}",
        "busy": f"sum({worked}) / {HOUR_SECONDS}",
        "idle": f"{_STEP} * sum(sum_over_time({idle}{window})) / {HOUR_SECONDS}",
        "energy": f"sum(increase(gpu_energy_joules_total{where}[{seconds}s])) / {JOULES_PER_KWH:.0f}",
        "lost": f"sum by (class) ({lost}) / {HOUR_SECONDS}",
        "allocated by owner": f"sum by ({OWNER_LABELS}) (sum_over_time({share}{window})) {hours}",
        "busy by owner": f"sum by ({OWNER_LABELS}) (sum_over_time(({used}){window})) {hours}",
        "observed by model": f"sum by (name) (({seen}) {named}) / {HOUR_SECONDS}",
        "busy by model": f"sum by (name) (({worked}) {named}) / {HOUR_SECONDS}",
        "lost by model": f"sum by (name) ({lost} {named}) / {HOUR_SECONDS}",
        "p95 by model": f"avg by (name) ({most} {named})",
        "hosts": f"topk({MOST_ROWS}, sum by (cluster, job, instance, class) ({lost}) / {HOUR_SECONDS})",
    }


def first_look(client: PrometheusClient, selection: Selection, now: float, seconds: float) -> Review:
    """The review of the last seconds, to whole steps of 5 minutes; raises PrometheusUnavailable without any series."""
    end, length = now // _STEP * _STEP, int(seconds // _STEP * _STEP)
    found = {name: client.over(query, end, end, _STEP) for name, query in first_look_queries(selection, length).items()}
    if not found["observed"]:
        raise PrometheusUnavailable(
            f"{client.url} has no GPU activity{f' of hosts {selection}' if str(selection) else ''} in this time; "
            "let it scrape the exporters for ten minutes first"
        )
    return _assembled(client, selection, [end], found, window=f"{length}s", step_seconds=float(length))
