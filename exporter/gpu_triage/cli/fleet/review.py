"""Capacity review: what a fleet's GPUs did on each of the last days, from the series recorded by the rules.

Days are UTC: the value of a recorded series at midnight covers the preceding day. Before the rules have recorded a day,
the exporters' own series of the last hours replace it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.alerting.build import built
from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.cli.fleet.fleet_view import (
    GPU_LABELS,
    HOST_LABELS,
    RepeatOffender,
    Selection,
    gpu_key,
    matcher_of_any,
    narrowed,
    offender_query,
    repeat_offenders,
)
from gpu_triage.cli.fleet.prometheus import PrometheusClient, Series
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES, GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.incidents.incident_metrics import GPU_REPAIRED_TIMESTAMP_SECONDS

MOST_ROWS: Final = 20  # the most rows per table
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86_400
JOULES_PER_KWH: Final = 3.6e6


def day_sums(where: str, by: str = "") -> Mapping[str, str]:
    """PromQL of what the hosts selected by `where` did in a day, at its midnight, summed by these labels.

    Hours are GPU hours, energy is in kWh. The report and the capacity board ask for the same.
    """
    recorded = {
        "observed": "instance_name:gpu_observed_hours:sum1d",
        "allocated": "instance_owner:gpu_allocated_hours:sum1d",
        "active": "instance_name:gpu_activity_known_hours:sum1d",
        "used": "instance_name:gpu_used_hours:sum1d",
        "lost": "instance_owner:gpu_lost_hours:sum1d",
        "unavailable": "instance_name:gpu_unavailable_hours:sum1d",
        "planned": "instance:gpu_planned_hours:sum1d",
        "outages": "instance_name:gpu_outages:sum1d",
        "held back": "instance_name_class:gpu_held_back_hours:sum1d",
    }
    found = {name: f"sum by ({by}) ({series}{where})" for name, series in recorded.items()}
    for name, matcher in (("idle", 'workload!="serving"'), ("serving", 'workload="serving"')):
        idle = f"instance_owner:gpu_allocated_idle_hours:sum1d{narrowed(where, matcher)}"
        found[name] = f"sum by ({by}) ({idle})"
    energy = f"sum by ({by}) (instance:gpu_energy_joules:sum1d{where}) / {JOULES_PER_KWH:.0f}"
    return {**found, "energy": energy}


def over(daily: str, window: str, how: str = "sum", before: str = "") -> str:
    """PromQL of what the days of a window have together: a subquery takes midnights, with the values of a day.

    At a midnight, the window is an hour short of the period: otherwise, the midnight before the period would count.
    """
    return f"{how}_over_time(({daily})[{window}:1d]{before})"


def whole(where: str, window: str, before: str) -> str:
    """PromQL with a value if each day of the window was recorded: the sums of fewer days cannot be compared."""
    recorded, days = (over(each, window, "count", before) for each in (day_sums(where)["observed"], "vector(0)"))
    return f"{recorded} == {days}"


PENDING: Final = MappingProxyType(
    {"pod queue": "cluster:gpu_pending_pods:gpus", "job queue": "cluster:gpu_pending_jobs:count"}
)
"""GPUs that pending pods request, and pending Slurm jobs, of the selected clusters, whichever of their hosts."""


def total_queries(where: str, cluster: str) -> Mapping[str, str]:
    """PromQL of the headline numbers of a day; `cluster` selects series without hosts."""
    allocated, available = f"instance_owner:gpu_allocated:sum{where}", f"instance_gpu_name:gpu_available:last5m{where}"
    return {
        **{name: query for name, query in day_sums(where).items() if name != "held back"},
        "peak": f"max_over_time(sum({allocated})[1d:15m])",
        "free": f"min_over_time((sum({available}) - sum({allocated}))[1d:15m])",
        "pod wait": f"sum(cluster:gpu_pending_pod_hours:sum1d{cluster})",
        "job wait": f"sum(cluster:gpu_pending_job_hours:sum1d{cluster})",
        **{name: f"max_over_time(sum({series}{cluster})[1d:15m])" for name, series in PENDING.items()},
    }


TOGETHER: Final = MappingProxyType({"peak": "max", "free": "min", **dict.fromkeys(PENDING, "max")})
"""How these are put together over days, instead of summed up."""


def replaced_query(where: str, window: str, before: str = "") -> str:
    """PromQL of the GPUs that took the place of others, by host: all that it had, less the most at one midnight.

    Also at that before the first day: a GPU that left on it may have no successor. Not by index: that of a GPU
    changes when another one leaves.
    """
    gpus = "instance_gpu_name:gpu_available:last5m" + narrowed(where, 'uuid!=""')
    each = f"group by ({HOST_LABELS}, uuid)"
    all_of_them = over(f"{each} (last_over_time({gpus}[1d]))", window, "last", before)
    longer = f"{window}86400s"  # by a day, in a unit that may follow that of a window
    at_once = over(f"count by ({HOST_LABELS}) ({each} (last_over_time({gpus}[7m])))", longer, "max", before)
    return f"clamp_min(count by ({HOST_LABELS}) ({all_of_them}) - {at_once}, 0)"


SECTIONS: Final = MappingProxyType(
    {
        "owner": ("cluster, workload_namespace, user, account", ("allocated", "idle")),
        "job": ("cluster, owner", ("lost",)),
        "model": ("name", ("observed", "active", "used", "unavailable", "held back")),
        "host": (HOST_LABELS, ("observed", "unavailable", "outages", "planned")),
        "host class": (f"{HOST_LABELS}, class", ("held back",)),
    }
)
"""Labels by which each table of the review sums up, and what."""


def table_queries(where: str, window: str) -> Mapping[str, Mapping[str, str]]:
    """PromQL of a whole period, by table and column; the capacity board takes its tables from them."""
    found = {
        section: {name: over(day_sums(where, labels)[name], window) for name in names}
        for section, (labels, names) in SECTIONS.items()
    }
    p95 = f"avg by (name) (quantile_over_time(0.95, instance_gpu_name:gpu_busy:last5m{where}[1d]))"
    found["model"]["p95"] = over(p95, window, "avg")
    # The GPUs of a host are those of the day on which most of it was observed: a restart costs less than 0.02 of one.
    observed = day_sums(where, HOST_LABELS)["observed"]
    most, days = over(observed, window, "max"), over(day_sums(where)["observed"], window, "count")
    # It counts from its first day in this period or the one before: there was no such host until then.
    day = f"0 * {observed} + time()"
    first = f"({over(day, window, 'min', f' offset {window}')} or {over(day, window, 'min')})"
    own = f"clamp_max((time() - time() % {DAY_SECONDS} - {first}) / {DAY_SECONDS} + 1, scalar({days}))"
    possible = f"24 * ceil({most} / 24 - 0.02) * {own}"
    found["host"]["unobserved"] = f"clamp_min({possible} - {found['host']['observed']}, 0)"
    found["host"]["replaced"] = replaced_query(where, window)
    found["host class"]["held back"] = f"topk({MOST_ROWS}, {found['host class']['held back']})"
    return found


def daily_queries(selection: Selection) -> Mapping[str, str]:
    """The queries that return one value per day, or per day and class, by name."""
    where = str(selection)
    return {
        "gpus": f"max_over_time(count(instance_gpu_name:gpu_available:last5m{where})[1d:15m])",
        **total_queries(where, selection.cluster_alone),
        "held back": day_sums(where, "class")["held back"],
    }


ByDay = tuple[float | None, ...]  # one value per day; None for a day without data
Sums = Mapping[tuple[str, ...], Mapping[str, float]]  # numbers by their names, of each combination of labels


class Prices(NamedTuple):
    """In any currency; None for what has no price."""

    gpu_hour: float | None = None
    kwh: float | None = None
    pue: float = 1.0  # energy of the data center per energy of its machines


class Decision(NamedTuple):
    """An operator accepted a finding, or repaired a GPU."""

    gpu: str  # with its host
    what: str  # code of the finding, or ``repaired``
    at: float  # Unix seconds until when it is accepted, or of the repair
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class Review:
    """The review; hours are GPU hours."""

    source: str
    selection: str
    end: float  # Unix seconds of the midnight after the last day
    gpus: ByDay  # most GPUs seen at once
    totals: Mapping[str, ByDay]  # by the names of `total_queries`
    before: Mapping[str, float]  # the same of the period before; empty unless each of its days was recorded
    held_back: Mapping[str, ByDay]  # hours by bottleneck class, in the playbook's order of severity; 0 if only observed
    tables: Mapping[str, Sums]  # by the names of `SECTIONS`
    offenders: tuple[RepeatOffender, ...]  # boards with recurring incidents
    decisions: tuple[Decision, ...]  # of operators, the latest first
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
        if name == "replaced":  # which days do not add up to
            return total(each.get(name) for each in self.tables["host"].values())
        return total(self.totals[name], name)


def total(values: Iterable[float | None], name: str = "") -> float | None:
    """The sum over days with data, or None; of a peak the highest, and of what was free the lowest."""
    known = [value for value in values if value is not None]
    return {"max": max, "min": min}.get(TOGETHER.get(name, ""), sum)(known) if known else None


def review(client: PrometheusClient, selection: Selection, now: float, days: int) -> Review:
    """The review of so many whole days before this time; raises PrometheusUnavailable if none of them was recorded."""
    end = now // DAY_SECONDS * DAY_SECONDS
    midnights = [end - place * DAY_SECONDS for place in reversed(range(days))]
    where, window = str(selection), f"{days * 24 - 1}h"
    tables = table_queries(where, window)
    found = _reviewed(client, selection, midnights, daily_queries(selection), tables, window=f"{days}d")
    if total(found.observed) is None:
        raise _nothing_recorded(client, selection, now, days)
    earlier, daily = f" offset {days}d", total_queries(where, selection.cluster_alone)
    past = {name: over(query, window, TOGETHER.get(name, "sum"), earlier) for name, query in daily.items()}
    past["replaced"] = f"sum({replaced_query(where, window, earlier)})"
    known = past if client.at(whole(where, window, earlier), end) else {}
    before = {name: each.value for name in known for each in client.at(known[name], end)}
    return replace(found, before=before, warnings=tuple(client.warnings))


def _table(client: PrometheusClient, section: str, columns: Mapping[str, str], at: float) -> Sums:
    labels = SECTIONS[section][0].split(", ")
    rows: defaultdict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for name, query in columns.items():
        for each in client.at(query, at):
            rows[tuple(each.labels[label] for label in labels)][name] = each.value
    return rows


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


def _reviewed(
    client: PrometheusClient,
    selection: Selection,
    midnights: Sequence[float],
    daily: Mapping[str, str],
    tables: Mapping[str, Mapping[str, str]],
    *,
    window: str,
    step_seconds: float = DAY_SECONDS,
) -> Review:
    """What the server answers to the queries at the ends of days, and of tables over the `window` of all of them."""
    end = midnights[-1]
    found = {name: client.over(query, midnights[0], end, DAY_SECONDS) for name, query in daily.items()}
    observed = {round(at) for each in found["observed"] for at, _ in each.samples}

    def by_day(series: Sequence[Series], otherwise: float | None = None) -> ByDay:
        """Nothing of a day that was not observed: its peak would be of a minute that looks back on the day before."""
        values = {round(at): value for each in series for at, value in each.samples}
        return tuple(values.get(round(at), otherwise) if round(at) in observed else None for at in midnights)

    held = {each.labels["class"]: by_day([each], otherwise=0.0) for each in found["held back"]}
    return Review(
        source=client.url,
        selection=str(selection),
        end=end,
        gpus=by_day(found["gpus"]),
        totals={name: by_day(found.get(name, [])) for name in total_queries("", "")},
        before={},
        held_back={name: held[name] for name in BOTTLENECK_CLASSES if name in held},
        tables={name: _table(client, name, tables.get(name, {}), end) for name in SECTIONS},
        offenders=_offenders(client, selection, end, window),
        decisions=_decisions(client, selection, end, window),
        warnings=tuple(client.warnings),
        step_seconds=step_seconds,
    )


def _offenders(client: PrometheusClient, selection: Selection, end: float, window: str) -> tuple[RepeatOffender, ...]:
    found = client.at(f"topk({MOST_ROWS}, {offender_query(selection, window)})", end)
    which = selection.with_matcher(matcher_of_any("uuid", {each.labels["uuid"] for each in found}))
    gpus = f"group by (uuid, serial) (last_over_time({GPU_INFO.name}{which}[{window}]))"
    return repeat_offenders(found, client.at(gpus, end))


def _decisions(client: PrometheusClient, selection: Selection, end: float, window: str) -> tuple[Decision, ...]:
    found = []
    for spec, note in (
        (GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS, "reason"),
        (GPU_REPAIRED_TIMESTAMP_SECONDS, "note"),
    ):
        last = f"last_over_time({spec.name}{selection}[{window}])"
        for each in client.at(f"max by ({GPU_LABELS}, code, by, {note}) ({last})", end):
            (host, gpu, _), labels = gpu_key(each), each.labels
            words = (labels["code"] or "repaired", each.value, labels["by"], labels[note])
            found.append(Decision(f"{host} GPU {gpu}", *words))
    return tuple(sorted(found, key=lambda each: (-each.at, each)))[:MOST_ROWS]


_STEP: Final = 300  # resolution in seconds, as that of the recorded series
_BUSY: Final = "instance_gpu:gpu_busy:ratio5m"
_SHARE: Final = "instance_gpu_owner:gpu_allocated:share"
_IDLE: Final = "instance_gpu:gpu_allocated_idle:active"


@cache
def _recorded() -> Mapping[str, str]:
    (source,) = (each for each in shipped_sources() if each.path == "recording.yml")
    rules = (rule.fields for _, rules in built(source, DEFAULTS) for rule in rules)
    return {str(fields["record"]): str(fields["expr"]).strip() for fields in rules}


def first_look_queries(selection: Selection, seconds: int) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """As `daily_queries` and `table_queries`, over so many seconds of raw series."""
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
    by_gpu = {"observed": seen, "active": active, "used": worked, "unavailable": down, "held back": lost}
    serving = 'on (workload) label_replace(vector(1), "workload", "serving", "", "")'
    by_owner = {"allocated": share, "idle": f"({wasted} unless {serving})", "serving": f"({wasted} and {serving})"}
    found = {name: f"({each}) {named} / {HOUR_SECONDS}" for name, each in by_gpu.items()}
    found |= {name: f"(sum_over_time({each}{window})) {hours}" for name, each in by_owner.items()}
    here = f"and on (cluster) last_over_time({GPU_UP.name}{selection.cluster_alone}[{seconds}s])"
    queues = {name: f"sum(({rules[series]}) {here}){window}" for name, series in PENDING.items()}
    totals = {
        "gpus": f"count({seen})",
        **{name: f"sum({each})" for name, each in found.items()},
        "energy": f"sum(increase(gpu_energy_joules_total{where}[{seconds}s])) / {JOULES_PER_KWH:.0f}",
        **{name: f"max_over_time({queue})" for name, queue in queues.items()},
        "pod wait": f"sum_over_time({queues['pod queue']}) {hours}",
        "job wait": f"sum_over_time({queues['job queue']}) {hours}",
        "held back": f"sum by (class) ({found['held back']})",
    }
    tables = {
        section: {name: f"sum by ({labels}) ({found[name]})" for name in names if name in found}
        for section, (labels, names) in SECTIONS.items()
        if section != "host"
    }
    tables["model"]["p95"] = f"avg by (name) ({most} {named})"
    tables["host class"]["held back"] = f"topk({MOST_ROWS}, {tables['host class']['held back']})"
    return totals, tables


def first_look(client: PrometheusClient, selection: Selection, now: float, seconds: float) -> Review:
    """The review of the last seconds, to whole steps of 5 minutes; raises PrometheusUnavailable without any series."""
    end, length = now // _STEP * _STEP, int(seconds // _STEP * _STEP)
    totals, tables = first_look_queries(selection, length)
    found = _reviewed(client, selection, [end], totals, tables, window=f"{length}s", step_seconds=float(length))
    if total(found.observed) is None:
        raise PrometheusUnavailable(
            f"{client.url} has no GPU activity{f' of hosts {selection}' if str(selection) else ''} in this time; "
            "let it scrape the exporters for ten minutes first"
        )
    return found
