"""Capacity review: what a fleet's GPUs did on each of the last days, from the series recorded by the rules.

Days are UTC: the value of a recorded series at midnight covers the preceding day. Before the rules have recorded a day,
the exporters' own series of the last hours replace it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

import yaml

from gpu_triage.alerting.files import rule_files
from gpu_triage.cli.fleet.fleet_view import HostKey, RepeatOffender, Selection, key_of, matcher_of_any, offender_of
from gpu_triage.cli.fleet.job_pace import JOB, JobName, job_name
from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENTS_RECENT

MOST_ROWS: Final = 20  # the most rows per table
HOUR_SECONDS: Final = 3600
JOULES_PER_KWH: Final = 3.6e6
OWNER_LABELS: Final = "cluster, workload_namespace, user, account"
HOST_LABELS: Final = "cluster, job, instance"
GPU_LABELS: Final = f"{HOST_LABELS}, gpu, uuid"


def day_sums(where: str, by: str = "") -> Mapping[str, str]:
    """PromQL of what the hosts selected by `where` did in a day, at its midnight, summed by these labels.

    Hours are GPU hours, energy is in kWh. The report and the capacity board ask for the same.
    """
    recorded = {
        "observed": "instance_name:gpu_observed_hours:sum1d",
        "allocated": "instance_owner:gpu_allocated_hours:sum1d",
        "used": "instance_name:gpu_used_hours:sum1d",
        "idle": "instance_owner:gpu_allocated_idle_hours:sum1d",
        "lost": "instance_owner:gpu_lost_hours:sum1d",
        "unavailable": "instance_name:gpu_unavailable_hours:sum1d",
        "outages": "instance_name:gpu_outages:sum1d",
        "held back": "instance_name_class:gpu_held_back_hours:sum1d",
    }
    found = {name: f"sum by ({by}) ({series}{where})" for name, series in recorded.items()}
    # What use is a share of: without hosts and models whose activity is not known.
    active = f"{recorded['observed']}{where} and {recorded['used']}{where}"
    energy = f"sum by ({by}) (instance:gpu_energy_joules:sum1d{where}) / {JOULES_PER_KWH:.0f}"
    return {**found, "active": f"sum by ({by}) ({active})", "energy": energy}


def peak_queries(where: str) -> Mapping[str, str]:
    """PromQL of a day's most GPUs that were allocated at once, and of the fewest that were free."""
    allocated, available = f"instance_owner:gpu_allocated:sum{where}", f"instance_gpu_name:gpu_available:last5m{where}"
    return {
        "peak": f"max_over_time(sum({allocated})[1d:15m])",
        "free": f"min_over_time((sum({available}) - sum({allocated}))[1d:15m])",
    }


def observed_fully(most: str) -> str:
    """PromQL of the GPUs of a host, from the most hours that it was observed in a day: 0.02 of a GPU is a restart."""
    return f"ceil({most} / 24 - {_ROUNDING})"


def daily_queries(selection: Selection) -> Mapping[str, str]:
    """The queries that return one value per day, by name."""
    where = str(selection)
    totals = {name: query for name, query in day_sums(where).items() if name != "held back"}
    owned, models = day_sums(where, OWNER_LABELS), day_sums(where, "name")
    hosts = day_sums(where, HOST_LABELS)
    shares = f"instance_gpu_name:gpu_busy:last5m{where}[1d]"
    return {
        "gpus": f"count(count_over_time(instance_gpu_name:gpu_available:last5m{where}[1d]))",
        **totals,
        **peak_queries(where),
        "held back": day_sums(where, "class")["held back"],
        **{f"{name} by owner": query for name, query in owned.items() if name in _OF_OWNERS},
        "lost by job": day_sums(where, JOB)["lost"],
        **{f"{name} by model": query for name, query in models.items() if name in _OF_MODELS},
        "p95 by model": f"avg by (name) (quantile_over_time(0.95, {shares}))",
        **{f"{name} by host": query for name, query in hosts.items() if name in _OF_HOSTS},
    }


_OF_OWNERS: Final = frozenset({"allocated", "idle"})
_OF_MODELS: Final = frozenset({"observed", "active", "used", "unavailable", "held back"})
_OF_HOSTS: Final = frozenset({"observed", "unavailable", "outages"})


def host_query(selection: Selection, days: int) -> str:
    """The hosts that were held back for the most hours by a class over the whole period."""
    # Subqueries align to midnight; a range one hour short of the period excludes the midnight before it.
    window = f"[{days * 24 - 1}h:1d]"
    recorded = f"instance_name_class:gpu_held_back_hours:sum1d{selection}"
    return f"topk({MOST_ROWS}, sum by ({HOST_LABELS}, class) (sum_over_time({recorded}{window})))"


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
    idle: float  # while allocated


class ModelHours(NamedTuple):
    """GPU hours of one model."""

    name: str  # "" if it was never read
    observed: float
    active: float  # observed hours whose activity is known
    used: float
    unavailable: float
    held_back: float
    p95: float | None  # 95th percentile of a GPU's utilization in a day, averaged over GPUs and days


class HostHours(NamedTuple):
    key: HostKey
    name: str
    hours: float


class HostPresence(NamedTuple):
    """How much of its GPUs' time a host was observed and available; hours are GPU hours."""

    key: HostKey
    observed: float
    unobserved: float  # of the days with data, by the most GPU hours of one of them
    unavailable: float
    outages: float

    @property
    def hours_to_repair(self) -> float | None:
        """Mean of the unavailable hours per outage."""
        return self.unavailable / self.outages if self.outages else None


class Prices(NamedTuple):
    """In any currency; None for what has no price."""

    gpu_hour: float | None = None
    kwh: float | None = None
    pue: float = 1.0  # energy of the data center per energy of its machines


@dataclass(frozen=True, slots=True)
class Review:
    """The review; hours are GPU hours."""

    source: str
    selection: str
    end: float  # Unix seconds of the midnight after the last day
    gpus: ByDay  # number of GPUs seen
    totals: Mapping[str, ByDay]  # by the names of `day_sums` and `peak_queries`
    before: Mapping[str, float | None]  # the same as sums, or most or fewest, of the period before
    held_back: Mapping[str, ByDay]  # hours by bottleneck class, in the playbook's order of severity
    owners: tuple[OwnerHours, ...]  # the one with the most idle hours first
    jobs: Mapping[JobName, float]  # hours that each lost, likewise; empty if none was recorded
    models: tuple[ModelHours, ...]  # the most observed first
    hosts: tuple[HostHours, ...]  # the most held back first
    presence: tuple[HostPresence, ...]  # hosts that were not observed or available throughout, the worst first
    offenders: tuple[RepeatOffender, ...]  # boards with recurring incidents
    warnings: tuple[str, ...]  # warnings returned by the server
    prices: Prices = field(default_factory=Prices)
    step_seconds: float = DAY_SECONDS  # what each value covers: a day, or the whole period of a first look

    @property
    def first_look(self) -> bool:
        """Whether it is about the last hours, from raw series, instead of whole days."""
        return self.step_seconds != DAY_SECONDS

    @property
    def observed(self) -> ByDay:
        return self.totals["observed"]

    @property
    def days(self) -> tuple[float, ...]:
        """Start of each day, in Unix seconds."""
        count = len(self.observed)
        return tuple(self.end - (count - place) * self.step_seconds for place in range(count))

    @property
    def missing(self) -> tuple[float, ...]:
        return tuple(day for day, value in zip(self.days, self.observed, strict=True) if value is None)

    def total(self, name: str) -> float | None:
        return whole_period(name, self.totals[name])


def total(values: Iterable[float | None]) -> float | None:
    """The sum over days with data, or None."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole_period(name: str, values: Iterable[float | None]) -> float | None:
    """The sum over days with data; of a peak the highest, and of what was free the lowest."""
    known = [value for value in values if value is not None]
    return {"peak": max, "free": min}.get(name, sum)(known) if known else None


def review(client: PrometheusClient, selection: Selection, now: float, days: int) -> Review:
    """The review of so many whole days before this time; raises PrometheusUnavailable if none of them was recorded."""
    end = now // DAY_SECONDS * DAY_SECONDS
    midnights = [end - place * DAY_SECONDS for place in reversed(range(days))]
    queries = daily_queries(selection)
    found = {name: client.over(query, midnights[0], end, DAY_SECONDS) for name, query in queries.items()}
    if not found["observed"]:
        raise _nothing_recorded(client, selection, now, days)
    found["hosts"] = client.at(host_query(selection, days), end)
    length = days * DAY_SECONDS
    earlier = {name: client.over(queries[name], midnights[0] - length, end - length, DAY_SECONDS) for name in TOTALS}
    sampled = {name: [value for _, value in each[0].samples] for name, each in earlier.items() if each}
    before = {name: whole_period(name, values) for name, values in sampled.items()}
    return _assembled(client, selection, midnights, found, window=f"{days}d", before=before)


TOTALS: Final = (
    *("observed", "active", "allocated", "used", "idle", "lost", "unavailable", "outages"),
    *("energy", "peak", "free"),
)
"""What is compared with the period before."""


def _nothing_recorded(client: PrometheusClient, selection: Selection, now: float, days: int) -> PrometheusUnavailable:
    """The error for a period without recorded series, with the cause and what to do."""
    recorded = f"instance_gpu_name:gpu_available:last5m{selection}"
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
    before: Mapping[str, float | None] = MappingProxyType({}),
    step_seconds: float = DAY_SECONDS,
) -> Review:
    """From the answers to `daily_queries` and `host_query`; `midnights`: the ends of days, `window`: all, in PromQL."""
    end = midnights[-1]

    observed = {round(at) for each in found["observed"] for at, _ in each.samples}

    def one(name: str) -> ByDay:
        """Nothing of a day that was not observed: its peak would be of a minute that looks back on the day before."""
        days = _by_day(found[name][0], midnights) if found.get(name) else (None,) * len(midnights)
        return tuple(value if round(at) in observed else None for at, value in zip(midnights, days, strict=True))

    held = {each.labels["class"]: _by_day(each, midnights) for each in found["held back"]}
    return Review(
        source=client.url,
        selection=str(selection),
        end=end,
        gpus=one("gpus"),
        totals={name: one(name) for name in TOTALS},
        before=before,
        held_back={name: held[name] for name in BOTTLENECK_CLASSES if name in held},
        owners=_owners(found),
        jobs=_jobs(found.get("lost by job", ())),
        models=_models(found),
        hosts=tuple(HostHours(key_of(each), each.labels["class"], each.value) for each in found["hosts"] if each.value),
        presence=_presence(found, step_seconds),
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
    had, idle = (_sums(found[f"{what} by owner"], *labels) for what in ("allocated", "idle"))
    owners = (OwnerHours(Owner(*key), hours, idle[key]) for key, hours in had.items() if hours)
    return tuple(sorted(owners, key=lambda each: (-each.idle, each.owner)))


def _jobs(found: Iterable[Series]) -> Mapping[JobName, float]:
    hours: defaultdict[JobName, float] = defaultdict(float)
    for each in found:
        hours[job_name(each)] += sum(value for _, value in each.samples)
    return dict(sorted(hours.items(), key=lambda each: (-each[1], each[0])))


def _models(found: Mapping[str, list[Series]]) -> tuple[ModelHours, ...]:
    sums = {name: _sums(found.get(f"{name} by model", ()), "name") for name in sorted(_OF_MODELS)}
    p95 = found["p95 by model"]
    means = {each.labels["name"]: sum(value for _, value in each.samples) / len(each.samples) for each in p95}
    models = (
        ModelHours(
            name=key[0],
            observed=sums["observed"][key],
            active=sums["active"][key],
            used=sums["used"][key],
            unavailable=sums["unavailable"][key],
            held_back=sums["held back"][key],
            p95=means.get(key[0]),
        )
        for key in {*sums["observed"], *sums["held back"]}
    )
    return tuple(sorted(models, key=lambda each: (-each.observed, each.name)))


def _presence(found: Mapping[str, list[Series]], step_seconds: float) -> tuple[HostPresence, ...]:
    """Hosts with a day that was not observed or a GPU that was not available; a day is missing only to some hosts."""
    days = {at for each in found["observed"] for at, _ in each.samples}
    labels = HOST_LABELS.split(", ")
    unavailable, outages = (_sums(found.get(f"{name} by host", ()), *labels) for name in ("unavailable", "outages"))
    hosts = []
    for each in found.get("observed by host", ()):
        hours = [value for _, value in each.samples]
        # A GPU whose day was seen in part is a GPU all the same.
        gpus = math.ceil(max(hours) * HOUR_SECONDS / step_seconds - _ROUNDING)
        seen, possible = sum(hours), gpus * len(days) * step_seconds / HOUR_SECONDS
        key = tuple(each.labels[name] for name in labels)
        hosts.append(HostPresence(key_of(each), seen, max(0.0, possible - seen), unavailable[key], outages[key]))
    missed = (each for each in hosts if each.unobserved + each.unavailable > _ROUNDING * each.observed)
    return tuple(sorted(missed, key=lambda each: (-each.unobserved - each.unavailable, each.key)))


_ROUNDING: Final = 0.02
"""Of a GPU's time: what a restart of the exporter, or of the server, takes of a day."""


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
    idle = rules[_IDLE].replace(f"last_over_time({_BUSY}[2m])", f"({rules[_BUSY]})")
    idle = idle.replace(_SHARE, f"({rules[_SHARE]})")
    # One series for each GPU: its model, or "" if it was never read.
    up = f"last_over_time({GPU_UP.name}{where}[5m]){window}"
    seen = f"{_STEP} * max by ({GPU_LABELS}) (count_over_time({up}))"
    down = f"({seen}) - {_STEP} * max by ({GPU_LABELS}) (sum_over_time({up}))"
    worked = f"{_STEP} * max by ({GPU_LABELS}) (sum_over_time({busy}{window}))"
    own = selection.with_matcher('class!~"compute|idle"')
    lost = f"increase(gpu_bottleneck_seconds_total{own}[{seconds}s])"
    model = f"last_over_time({GPU_INFO.name}{where}[{seconds}s])"
    known = f"last_over_time({GPU_UP.name}{where}[{seconds}s])"
    names = f"topk by ({GPU_LABELS}) (1, {model}) or on ({GPU_LABELS}) group by ({GPU_LABELS}) ({known})"
    named = f"* on ({GPU_LABELS}) group_left (name) ({names})"
    hours = f"* {_STEP} / {HOUR_SECONDS}"
    wasted = f"{share} * on ({GPU_LABELS}) group_left () max by ({GPU_LABELS}) ({idle})"
    most = f"max by ({GPU_LABELS}) (quantile_over_time(0.95, {busy}{window}))"
    # Of GPUs that worked or were unavailable, the activity is known.
    active = f"({seen} and ({worked} or {down} > 0))"
    by_model = {"observed": f"({seen})", "active": active, "used": f"({worked})", "unavailable": f"({down})"}
    return {
        "gpus": f"count({seen})",
        "observed": f"sum({seen}) / {HOUR_SECONDS}",
        "active": f"sum({active}) / {HOUR_SECONDS}",
        "used": f"sum({worked}) / {HOUR_SECONDS}",
        "unavailable": f"sum({down}) / {HOUR_SECONDS}",
        "allocated": f"sum(sum_over_time({share}{window})) {hours}",
        "idle": f"sum(sum_over_time(({wasted}){window})) {hours}",
        "energy": f"sum(increase(gpu_energy_joules_total{where}[{seconds}s])) / {JOULES_PER_KWH:.0f}",
        "held back": f"sum by (class) ({lost}) / {HOUR_SECONDS}",
        "allocated by owner": f"sum by ({OWNER_LABELS}) (sum_over_time({share}{window})) {hours}",
        "idle by owner": f"sum by ({OWNER_LABELS}) (sum_over_time(({wasted}){window})) {hours}",
        **{f"{name} by model": f"sum by (name) ({each} {named}) / {HOUR_SECONDS}" for name, each in by_model.items()},
        "held back by model": f"sum by (name) ({lost} {named}) / {HOUR_SECONDS}",
        "p95 by model": f"avg by (name) ({most} {named})",
        "hosts": f"topk({MOST_ROWS}, sum by ({HOST_LABELS}, class) ({lost}) / {HOUR_SECONDS})",
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
