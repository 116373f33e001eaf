"""GPU capacity review: whole days up to a quarter, from recorded series only, so that a large fleet loads quickly.

Tiles and tables add up the days of the period chosen by *Over*, with the queries of `gpu-triage report`: at the same
midnight, both show the same numbers. Lines show the time range of the dashboard.
"""

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.models.dashboard import VariableOption

from dashboards.board import Board, Row
from dashboards.capacity_forecast import forecast
from dashboards.panels import Cell, PanelBuilder, Query, Size, lines, shares, strip
from dashboards.selectors import CLUSTER as OF_CLUSTER
from dashboards.selectors import HOST, MOST_ROWS, TARGET, by_gpu, cluster, host, only
from dashboards.tables import CLUSTER, GPU, Column, owner_columns, table_of
from dashboards.tables import HOST as HOST_COLUMN
from dashboards.value_mappings import CLASS
from gpu_triage.alerting.macros import GPU_HOURS
from gpu_triage.cli.fleet.review import (
    SECTIONS,
    TOGETHER,
    day_sums,
    over,
    replaced_query,
    table_queries,
    total_queries,
    whole,
)
from gpu_triage.cli.fleet.review_page import AWAY, FACTS

TILE = Size(6, 5)
HALF = Size(12, 8)
STEP = "6h"
"""Windows of a day hardly change within this step."""
HOURS = "suffix: h"
"""Hours that stay hours: Grafana's own unit turns many of them into days and weeks."""
ENERGY = "kwatth"
PERIODS = (1, 7, 30, 90)
"""Days to choose from."""
_WHERE, _OVER = f"{{{HOST}}}", "${over}"
_TOTALS, _TABLES = total_queries(_WHERE, f"{{{OF_CLUSTER}}}"), table_queries(_WHERE, _OVER)
_OWNER = SECTIONS["owner"][0]
_BUSY = f"{host('instance_gpu_name:gpu_busy:last5m')}[$over]"
_NOT_RECORDED = "No data: the rules have not recorded a day."


def board() -> Board:
    return Board(
        uid="gpu-triage-capacity",
        title="GPU capacity review",
        description="How much the GPUs were allocated and worked, who left them idle, what was lost, broken and spent: "
        "by cluster, model, workload, owner and host. Tiles and tables cover the whole days (UTC) chosen by Over, to "
        "the end of the time range, as gpu-triage report does; before, as many days before them, if all were recorded. "
        "Inspect, Data in the menu of a table saves it as CSV.",
        since="30d",
        refresh="",
        marks=False,
        per_gpu=False,
        variables=_variables(),
        rows=(
            Row("", *_tiles()),
            Row("By cluster and model", _clusters(), _models(), *_trends()),
            Row("By namespace, user and account", _owners()),
            Row(
                "Per day, by owner and workload",
                *map(_owner_lines, ("allocated", "idle")),
                *_by_workload(),
                folded=True,
            ),
            Row("By host and GPU", *_by_host(), folded=True),
            Row("Queue, serving, GPUs replaced", *(_serving(), _queue(), _replaced(), _waiting()), folded=True),
        ),
    )


def _variables() -> tuple[sdk.CustomVariable | sdk.TextBoxVariable, ...]:
    options = [
        VariableOption(selected=days == PERIODS[1], text=f"{days} day{'s' if days > 1 else ''}", value=f"{days}d")
        for days in PERIODS
    ]
    query = ",".join(f"{each.text} : {each.value}" for each in options)
    over = sdk.CustomVariable("over").label("Over").values(query).options(options).current(options[1])
    typed = (("price", "Price of a GPU hour", "0"), ("kwh_price", "Price of a kWh", "0"), ("pue", "PUE", "1"))
    return over, *(sdk.TextBoxVariable(name).label(label).default_value(usual) for name, label, usual in typed)


def _total(name: str, before: str = "") -> str:
    if name == "replaced":
        found = f"sum({replaced_query(_WHERE, _OVER, before)})"
    else:
        found = over(_TOTALS[name], _OVER, TOGETHER.get(name, "sum"), before)
    return f"({found} and {whole(_WHERE, _OVER, before)})" if before else found


_BEFORE = f" offset {_OVER}"


def _compared(
    title: str, description: str, *cells: tuple[str, str, str], decimals: int = 0, size: Size = TILE
) -> PanelBuilder:
    """Headline numbers beside those of the period before: titles, names and units."""
    shown = [
        Cell(f"{title}{when}", _total(name, before), unit=unit, decimals=decimals)
        for title, name, unit in cells
        for when, before in (("", ""), (", before", _BEFORE))
    ]
    return strip(title, description, *shown, size=size)


def _shares(title: str, description: str, part: str, whole: str) -> PanelBuilder:
    now, earlier = (f"{_total(part, before)} / {_total(whole, before)}" for before in ("", _BEFORE))
    return strip(
        title,
        description,
        Cell("hours", _total(part), unit=HOURS, decimals=0),
        Cell("share", now, unit="percentunit", decimals=1),
        Cell("share, before", earlier, unit="percentunit", decimals=1),
        size=TILE,
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        _shares(
            "Allocated",
            f"{GPU_HOURS['allocated']} And as a share of the observed: near 1 while jobs wait, buy more. "
            f"{_NOT_RECORDED}",
            "allocated",
            "observed",
        ),
        _shares(
            "Used",
            f"{GPU_HOURS['used']} And as a share of the observed, where the activity is known. {_NOT_RECORDED}",
            "used",
            "active",
        ),
        _shares(
            "Idle while allocated",
            f"{GPU_HOURS['idle while allocated']} And as a share of the allocated: talk to the owners below. "
            f"{_NOT_RECORDED}",
            "idle",
            "allocated",
        ),
        _shares(
            "Lost",
            f"{GPU_HOURS['lost']} And as a share of the allocated. No data: no job had a known pace.",
            "lost",
            "allocated",
        ),
        _shares(
            "Unavailable",
            f"{GPU_HOURS['unavailable']} And as a share of the observed. {_NOT_RECORDED}",
            "unavailable",
            "observed",
        ),
        _compared(
            "GPUs at once",
            "The most that were allocated at one time, and the fewest that were free, by quarter hours. None free: the "
            "pool was full. No data: nothing tells who has a GPU.",
            ("most allocated", "peak", "none"),
            ("fewest free", "free", "none"),
            decimals=1,
        ),
        _compared(
            "Energy and outages",
            "What the GPUs consumed, without their hosts; and how many times one of them became unavailable. "
            f"{_NOT_RECORDED}",
            ("energy", "energy", ENERGY),
            ("outages", "outages", "none"),
        ),
        forecast(TILE),
        strip(
            "Cost",
            "Of GPU hours allocated, and of energy with that of cooling and losses: PUE is the energy of the data "
            "center per energy of its machines. No data: set the prices above.",
            _cost("allocated"),
            Cell("energy", _priced("energy", "($kwh_price + 0) * ($pue + 0)"), decimals=0),
            size=Size(8, 4),
        ),
        strip(
            "Cost of waste and trouble",
            "Of GPU hours idle while allocated, lost and unavailable. A lost hour may be an idle one. No data: set the "
            "price of a GPU hour above.",
            *map(_cost, ("idle", "lost", "unavailable")),
            size=Size(16, 4),
        ),
    )


def _serving() -> PanelBuilder:
    return _shares(
        "Idle while serving",
        'Of targets labeled workload="serving", apart from the waste: they wait for requests. And as a share of the '
        "allocated. No data: no target has the label.",
        "serving",
        "allocated",
    )


_NOT_SCRAPED = "No data: not scraped; kube-state-metrics, or Slurm or its exporter, needs the hosts' label cluster."


def _queue() -> PanelBuilder:
    return _compared(
        "Queue",
        "GPU hours that pending pods waited for, and hours of pending Slurm jobs, whatever they need; and the most at "
        f"once, by quarter hours. If GPUs were free meanwhile, look at quotas before you buy. {_NOT_SCRAPED}",
        ("pods", "pod wait", HOURS),
        ("GPUs for pods at once", "pod queue", "none"),
        ("Slurm jobs", "job wait", HOURS),
        ("Slurm jobs at once", "job queue", "none"),
        size=Size(12, 5),
    )


def _waiting() -> PanelBuilder:
    pods, jobs = cluster("cluster:gpu_pending_pods:gpus"), cluster("cluster:gpu_pending_jobs:count")
    return lines(
        "Queue: GPUs that pods wait for, and Slurm jobs",
        f"Of all hosts of the selected clusters. Every day while no GPU is free: buy more. {_NOT_SCRAPED}",
        Query(f"sum by (cluster) ({pods})", "{{cluster}} GPUs for pods"),
        Query(f"sum by (cluster) ({jobs})", "{{cluster}} Slurm jobs"),
        unit="none",
        size=Size(24, 7),
        every="1h",
    )


def _replaced() -> PanelBuilder:
    description = f"Boards that took the place of others, by UUID. {_NOT_RECORDED}"
    return _compared("GPUs replaced", description, ("replaced", "replaced", "none"))


_PRICE = "($price + 0)"
"""Also without a price, this can be parsed."""


def _priced(name: str, price: str) -> str:
    return f"{_total(name)} * {price} and on () vector({price}) > 0"


def _cost(name: str) -> Cell:
    return Cell(FACTS[name].words, _priced(name, _PRICE), decimals=0)


def _hours(title: str, expr: str) -> Column:
    return Column(title, expr=expr, unit=HOURS, decimals=0)


def _clusters() -> PanelBuilder:
    total = {name: over(query, _OVER) for name, query in day_sums(_WHERE, "cluster").items()}
    return table_of(
        "Clusters",
        "All selected hosts by the target label cluster; targets without the label count as one cluster. Observed: "
        f"{GPU_HOURS['observed']} {_NOT_RECORDED}",
        CLUSTER,
        _hours("Observed", total["observed"]),
        _hours("Allocated", total["allocated"]),
        Column("Used", expr=f"{total['used']} / {total['active']}", unit="percentunit", decimals=1),
        _hours("Idle while allocated", total["idle"]),
        _hours("Unavailable", total["unavailable"]),
        Column("Energy", expr=total["energy"], unit=ENERGY, decimals=0),
        sort="-Observed",
        size=Size(24, 6),
    )


def _models() -> PanelBuilder:
    total = _TABLES["model"]
    return table_of(
        "Models",
        "Of all selected clusters. Used above 0.8 for weeks: buy more, or queue. Below 0.4: share GPUs, or return "
        "some. Held back: in a bottleneck class other than compute and idle, so also while unavailable. "
        f"{_NOT_RECORDED}",
        Column("Model", label="name", no_label="unknown"),
        _hours("Observed", total["observed"]),
        Column("Used", expr=f"{total['used']} / {total['active']}", unit="percentunit", decimals=1),
        _hours("Unavailable", total["unavailable"]),
        _hours("Held back", total["held back"]),
        sort="-Observed",
        size=Size(24, 6),
    )


def _trends() -> tuple[PanelBuilder, ...]:
    available, allocated = host("instance_gpu_name:gpu_available:last5m"), host("instance_owner:gpu_allocated:sum")
    used = day_sums(_WHERE, "cluster, name")
    return (
        lines(
            "GPUs: available and allocated",
            "Of all selected hosts. Their distance is what is free. A step down of the available: GPUs or hosts are "
            "gone. No data: the rules do not run.",
            Query(f"sum by (cluster) ({available})", "{{cluster}} available"),
            Query(f"sum by (cluster) ({allocated})", "{{cluster}} allocated"),
            unit="none",
            size=HALF,
            every="1h",
        ),
        lines(
            "GPU hours held back per day, by bottleneck",
            "What limited the GPUs instead of their own work, however much. Spend time or money on the largest band "
            "first. No data: nothing held them back, or the rules have not recorded a day.",
            Query(day_sums(_WHERE, "class")["held back"], "{{class}}"),
            unit=HOURS,
            size=HALF,
            every=STEP,
            stacked=True,
            names={str(name): (text, color) for name, text, color in CLASS},
        ),
        shares(
            "Used share over a day, by model",
            f"Of the observed hours of the day before. {_NOT_RECORDED}",
            Query(f"{used['used']} / {used['active']}", "{{cluster}} {{name}}"),
            size=Size(24, 7),
            every=STEP,
        ),
    )


_WORKLOAD = "{{cluster}} workload {{workload}}"


def _by_workload() -> tuple[PanelBuilder, ...]:
    day = day_sums(_WHERE, "cluster, workload")
    idle = f"{day['idle']} or {day['serving']}"
    return (
        shares(
            "Used share over a day, by workload",
            f"By the target label workload; targets without the label count as one. {_NOT_RECORDED}",
            Query(f"{day['used']} / {day['active']}", _WORKLOAD),
            every=STEP,
        ),
        lines(
            "GPU hours idle while allocated per day, by workload",
            f"{GPU_HOURS['idle while allocated']} Usually notebooks and forgotten sessions: a limit on their lifetime "
            f"pays off. {_NOT_RECORDED}",
            Query(idle, _WORKLOAD),
            unit=HOURS,
            every=STEP,
        ),
        lines(
            "Energy per day, by workload",
            f"Consumption of the GPUs alone, without their hosts. {_NOT_RECORDED}",
            Query(day["energy"], _WORKLOAD),
            unit=ENERGY,
            every=STEP,
        ),
    )


_NO_OWNER = "No data: the exporters do not know who has GPUs."


def _owners() -> PanelBuilder:
    allocated, idle = (_TABLES["owner"][name] for name in ("allocated", "idle"))
    return table_of(
        "Owners",
        "What each namespace, or user and account, had and left idle, and its cost at the price above. Talk to the "
        f"first. A shared GPU counts by shares; a row without names is held by somebody unknown. {_NO_OWNER}",
        CLUSTER,
        *owner_columns("workload_namespace", "user", "account"),
        Column("Allocated", expr=f"{allocated} > 0", unit=HOURS, decimals=1),
        Column(
            "Idle while allocated",
            expr=f"topk({MOST_ROWS}, ({idle} or 0 * {allocated}) and {allocated} > 0)",
            unit=HOURS,
            decimals=1,
        ),
        Column("Share", expr=f"{idle} / ({allocated} > 0)", unit="percentunit", decimals=0),
        Column("Cost of idle", expr=f"{idle} * ({_PRICE} > bool 0) * {_PRICE} and {allocated} > 0", decimals=0),
        sort="-Idle while allocated",
        size=Size(24, 8),
        rows_of="Idle while allocated",
    )


def _owner_lines(name: str) -> PanelBuilder:
    word = {"allocated": "allocated", "idle": "idle while allocated"}[name]
    return lines(
        f"GPU hours {word} per day, by owner",
        f"{GPU_HOURS[word]} {_NO_OWNER}",
        Query(day_sums(_WHERE, _OWNER)[name], "{{cluster}} {{workload_namespace}} {{user}} {{account}}"),
        unit=HOURS,
        size=HALF,
        every=STEP,
        stacked=True,
    )


def _by_host() -> tuple[PanelBuilder, ...]:
    day = {name: over(query, _OVER) for name, query in day_sums(_WHERE, TARGET).items()}
    least = f"bottomk({MOST_ROWS}, {day['used']} / {day['active']})"
    host_hours = _TABLES["host"]
    hours = f"{host_hours['unobserved']} + {host_hours['unavailable']}"
    broke = f"({host_hours['outages']} > 0 or {host_hours['replaced']} > 0)"
    away = f"{hours} > {AWAY} * {host_hours['observed']} or ({hours} and {broke})"
    away = f"topk({MOST_ROWS}, {away})"
    worst = f"quantile_over_time(0.95, {_BUSY})"
    chosen = f"bottomk({MOST_ROWS}, {by_gpu(worst)})"
    return (
        table_of(
            "Least used hosts",
            f"Candidates to share or to return. {_NOT_RECORDED}",
            HOST_COLUMN,
            Column("Used", expr=least, unit="percentunit", decimals=1),
            *(
                Column(title, expr=only(day[name], TARGET, least), unit=unit, decimals=0)
                for title, name, unit in (("Idle while allocated", "idle", HOURS), ("Energy", "energy", ENERGY))
            ),
            sort="Used",
            size=HALF,
        ),
        table_of(
            "Hosts that were away",
            "Hosts with outages or other GPUs than before, or not observed or unavailable for more than 2 % of the "
            "time. Unavailable hours per outage are the time to repair. No data: all were "
            "there, or the rules have not recorded a day.",
            HOST_COLUMN,
            *(
                Column(title, expr=only(expr, TARGET, away), unit=unit, decimals=0, width=120)
                for title, expr, unit in (
                    ("Not observed", host_hours["unobserved"], HOURS),
                    ("Unavailable", host_hours["unavailable"], HOURS),
                    ("Of both in maintenance", host_hours["planned"], HOURS),
                    ("Outages", host_hours["outages"], "none"),
                    ("GPUs replaced", host_hours["replaced"], "none"),
                )
            ),
            sort="-Not observed",
            size=HALF,
        ),
        table_of(
            "Hours held back, by host",
            "Which hosts were held back most, and by what; all GPUs of a host. No data: nothing held them back, or the "
            "rules have not recorded a day.",
            HOST_COLUMN,
            Column("Held back by", label="class", texts=CLASS),
            Column("Hours", expr=_TABLES["host class"]["held back"], unit=HOURS, decimals=1),
            sort="-Hours",
            size=HALF,
        ),
        table_of(
            "Headroom of each GPU",
            "95th percentile of the used share of 5 minutes, and highest memory use. Both low: a smaller GPU or a MIG "
            f"instance would do. The lowest ones. {_NOT_RECORDED}",
            HOST_COLUMN,
            GPU,
            Column("95th percentile", expr=chosen, unit="percentunit", decimals=0),
            Column(
                "Highest memory",
                expr=only(
                    by_gpu(f"max_over_time({host('instance_gpu:gpu_memory_used:max5m')}[$over])"),
                    f"{TARGET}, gpu",
                    chosen,
                ),
                unit="bytes",
            ),
            sort="95th percentile",
            size=HALF,
        ),
        _throttled(),
    )


def _throttled() -> PanelBuilder:
    reasons = 'reason=~"hw_thermal|sw_thermal|hw_power_brake|sw_power_cap"'
    held = host("instance_gpu_reason:gpu_throttle_seconds:increase1d", reasons)
    hours = over(f"sum by ({TARGET}, gpu, reason) ({held}) / 3600", _OVER)
    return table_of(
        "Hours throttled",
        "The GPUs throttled longest, by reason. Heat that returns every day is a problem of the room, not of the "
        "job. No data: no GPU was throttled, or the rules have not recorded a day.",
        HOST_COLUMN,
        GPU,
        Column("Reason", label="reason"),
        Column("Hours", expr=f"topk({MOST_ROWS}, {hours} > 0)", unit=HOURS, decimals=1),
        sort="-Hours",
        size=Size(24, 8),
    )
