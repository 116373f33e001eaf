"""GPU capacity review: days to months, from recorded series only, so that a month of a large fleet loads quickly.

Time series panels use series that the rules aggregate for the fleet; values per host or GPU are tables of the last day.
"""

from dashboards.board import Board, Row
from dashboards.panels import PanelBuilder, Query, Size, lines, tile
from dashboards.selectors import TARGET, by_gpu, cluster, gpu, host, only
from dashboards.tables import CLUSTER, GPU, HOST, Column, table_of
from dashboards.value_mappings import CLASS

TILE = Size(6, 4)
STEP = "6h"
"""Windows of a day hardly change within this step."""
MOST_LISTED = 50
HOURS = "suffix: h"
"""Hours that stay hours: Grafana's own unit turns many of them into days and weeks."""
ENERGY = "kwatth"
JOULES = 3_600_000
"""In a kWh."""

_SHARES = gpu("instance_gpu_name:gpu_busy:last5m")
_BUSY = f"avg_over_time({_SHARES}[1d])"
_MEMORY = gpu("instance_gpu:gpu_memory_used:max5m")
_IDLE = f"sum_over_time({gpu('instance_gpu:gpu_allocated_idle:active')}[1d]) * 300"
_ENERGY = f"increase({gpu('instance_gpu:gpu_energy_joules:last5m')}[1d])"
_LOST = gpu("instance_gpu_class:gpu_bottleneck_seconds:increase1d")
_LOST_BY_HOST = host("instance_class:gpu_hours_lost:sum1d")
_SEEN = f"present_over_time({_SHARES}[1d])"


def board() -> Board:
    return Board(
        uid="gpu-triage-capacity",
        title="GPU capacity review",
        description="How much the GPUs worked, and what they lost to which bottleneck, over days to months: by "
        "cluster, model, workload and host.",
        since="30d",
        refresh="",
        marks=False,
        rows=(
            Row("", *_tiles()),
            Row(
                "By cluster",
                table_of(
                    "Clusters, last day",
                    "All selected hosts by the target label cluster; targets without the label count as one cluster. "
                    "Lost: to a bottleneck. Idle though held: in whole stretches of 5 minutes. No data: the rules "
                    "have not recorded a day.",
                    CLUSTER,
                    Column("GPUs", expr=f"count by (cluster) ({_SEEN})"),
                    Column("Busy", expr=f"avg by (cluster) ({_BUSY})", unit="percentunit", decimals=1),
                    Column(
                        "Lost",
                        expr=f"sum by (cluster) ({_LOST}) / 3600\nor 0 * sum by (cluster) ({_SEEN})",
                        unit=HOURS,
                        decimals=1,
                    ),
                    Column("Idle though held", expr=f"sum by (cluster) ({_IDLE}) / 3600", unit=HOURS, decimals=1),
                    Column("Energy", expr=f"sum by (cluster) ({_ENERGY}) / {JOULES}", unit=ENERGY, decimals=1),
                    sort="-GPUs",
                    size=Size(24, 5),
                ),
            ),
            _by_model(),
            _by_workload(),
            _by_owner(),
            _by_host(),
        ),
    )


def _by_model() -> Row:
    return Row(
        "By model",
        lines(
            "Busy share over a day, by model",
            "Mean over all GPUs of a model in a cluster, over the day before. Above 0.8 for weeks: buy more, or queue. "
            "Below 0.4: share GPUs, or return some. No data: the rules have not recorded a day.",
            Query(_mean_by("name"), "{{cluster}} {{name}}"),
            unit="percentunit",
            size=Size(12, 8),
            top=1,
            every=STEP,
        ),
        lines(
            "GPU hours lost per day, by bottleneck",
            "What limited the GPUs instead of their own work, all selected clusters. Spend time or money on the "
            "largest band first. No data: no time lost, or the rules have not recorded a day.",
            Query(f"sum by (class) ({cluster('name:gpu_hours_lost:sum1d')})", "{{class}}"),
            unit=HOURS,
            size=Size(12, 8),
            every=STEP,
            stacked=True,
            names={str(name): (text, color) for name, text, color in CLASS},
        ),
        lines(
            "GPU hours lost per day, by model",
            "The same hours, by model. No data: no time lost, or the rules have not recorded a day.",
            Query(f"sum by (cluster, name) ({cluster('name:gpu_hours_lost:sum1d')})", "{{cluster}} {{name}}"),
            unit=HOURS,
            size=Size(12, 7),
            every=STEP,
        ),
        lines(
            "Number of GPUs",
            "GPUs that the drivers of all hosts list. A step down: GPUs or hosts are gone. No data: the rules do not "
            "run.",
            Query(f"sum by (cluster) ({cluster('cluster:gpu_devices:sum')})", "{{cluster}} GPUs"),
            unit="none",
            size=Size(12, 7),
            every=STEP,
        ),
    )


def _by_workload() -> Row:
    return Row(
        "By workload",
        lines(
            "Busy share over a day, by workload",
            "By the target label workload, all hosts; targets without the label count as one. No data: the rules "
            "have not recorded a day.",
            Query(_mean_by("workload"), _WORKLOAD),
            unit="percentunit",
            top=1,
            every=STEP,
        ),
        lines(
            "GPU hours idle though held per day, by workload",
            "GPUs held and not used for 5 minutes at a time, usually by notebooks and forgotten sessions: a limit on "
            "their lifetime pays off. No data: the rules have not recorded a day.",
            Query(
                f"sum by (cluster, workload) ({cluster('workload:gpu_allocated_idle_seconds:sum1d')}) / 3600", _WORKLOAD
            ),
            unit=HOURS,
            every=STEP,
        ),
        lines(
            "Energy per day, by workload",
            "Consumption of the GPUs alone, without their hosts. No data: the rules have not recorded a day.",
            Query(f"sum by (cluster, workload) ({cluster('workload:gpu_energy_joules:sum1d')}) / {JOULES}", _WORKLOAD),
            unit=ENERGY,
            every=STEP,
        ),
    )


def _by_owner() -> Row:
    return Row(
        "By namespace, user and account",
        lines(
            "GPU hours allocated per day, by owner",
            "Hours for which each namespace, or user and account of Slurm, had a GPU: given by the scheduler, else "
            "held by its processes. No data: the exporters do not know who has GPUs.",
            Query(_owned("allocated"), _OWNER),
            unit=HOURS,
            size=Size(12, 8),
            every=STEP,
            stacked=True,
        ),
        lines(
            "GPU hours allocated but unused per day, by owner",
            "The part of these hours in which the GPU did nothing for them. Talk to the largest first. No data: the "
            "exporters do not know who has GPUs.",
            Query(f"{_owned('allocated')} - {_owned('busy')}", _OWNER),
            unit=HOURS,
            size=Size(12, 8),
            every=STEP,
            stacked=True,
        ),
        _owners(),
    )


def _least_used(expr: str) -> str:
    return only(expr, TARGET, f"bottomk({MOST_LISTED}, avg by ({TARGET}) ({_BUSY}))")


def _least_busy(expr: str) -> str:
    return only(by_gpu(expr), f"{TARGET}, gpu", f"bottomk({MOST_LISTED}, {by_gpu(_BUSY)})")


def _by_host() -> Row:
    return Row(
        "By host and GPU",
        table_of(
            "Least used hosts, last day",
            "Candidates to share or to return. Idle though held: in whole stretches of 5 minutes. No data: the rules "
            "have not recorded a day.",
            HOST,
            Column("Busy", expr=_least_used(f"avg by ({TARGET}) ({_BUSY})"), unit="percentunit", decimals=1),
            Column("Idle though held", expr=_least_used(f"sum by ({TARGET}) ({_IDLE}) / 3600"), unit=HOURS, decimals=1),
            Column("Energy", expr=_least_used(f"sum by ({TARGET}) ({_ENERGY}) / {JOULES}"), unit=ENERGY, decimals=1),
            sort="Busy",
            size=Size(12, 9),
        ),
        table_of(
            "Hours lost by host, last day",
            "Which hosts lost most, and to what; all GPUs of a host. No data: no time lost, or the rules have not "
            "recorded a day.",
            HOST,
            Column("Lost to", label="class", texts=CLASS),
            Column(
                "Hours", expr=f"topk({MOST_LISTED}, sum by ({TARGET}, class) ({_LOST_BY_HOST}))", unit=HOURS, decimals=1
            ),
            sort="-Hours",
            size=Size(12, 9),
        ),
        table_of(
            "Headroom of each GPU",
            "95th percentile of the busy share of 5 minutes, and highest memory use of the last day. Both low: a "
            "smaller GPU or a MIG instance would do. The least busy ones. No data: the rules have not recorded a day.",
            HOST,
            GPU,
            Column("Busy", expr=_least_busy(_BUSY), unit="percentunit", decimals=0),
            Column(
                "95th percentile",
                expr=_least_busy(f"quantile_over_time(0.95, {_SHARES}[1d])"),
                unit="percentunit",
                decimals=0,
            ),
            Column("Highest memory", expr=_least_busy(f"max_over_time({_MEMORY}[1d])"), unit="bytes"),
            sort="95th percentile",
            size=Size(12, 9),
        ),
        _throttled(),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        tile(
            "Busy share, last day",
            "Mean over all selected GPUs. No data: the rules have not recorded a day.",
            f"avg({_BUSY})",
            unit="percentunit",
            size=TILE,
            decimals=1,
        ),
        tile(
            "GPU hours lost, last day",
            "Hours in which something other than its own work limited a GPU, while it was not idle. No data: the "
            "rules have not recorded a day.",
            f"sum({_LOST}) / 3600 or 0 * sum({_SEEN})",
            unit=HOURS,
            size=TILE,
            decimals=1,
        ),
        tile(
            "GPU hours allocated but unused, last day",
            "Hours that namespaces, users and accounts had and in which the GPU did nothing for them: capacity paid "
            "for and wasted. Of it, hours in which a GPU did nothing at all are below, by cluster, workload and "
            "host. No data: the rules have not recorded a day, or the exporters do not know who has GPUs.",
            f"sum({_owned('allocated')} - {_owned('busy')})",
            unit=HOURS,
            size=TILE,
            decimals=1,
        ),
        tile(
            "Energy, last day",
            "What all selected GPUs consumed, without their hosts. No data: the rules have not recorded a day.",
            f"sum({_ENERGY}) / {JOULES}",
            unit=ENERGY,
            size=TILE,
            decimals=1,
        ),
    )


def _mean_by(what: str) -> str:
    """Busy share of a day; with sharded hosts, the mean over all servers weighted by their observed GPU time."""
    seen = cluster(f"{what}:gpu_observed_seconds:sum1d")
    busy = f"sum by (cluster, {what}) ({cluster(f'{what}:gpu_busy:avg1d')} * {seen})"
    return f"{busy}\n/\nsum by (cluster, {what}) ({seen})"


def _owners() -> PanelBuilder:
    had, used = _owned("allocated"), _owned("busy")
    return table_of(
        "GPU hours by owner, last day",
        "What each namespace, or user and account, had, used and left unused. A shared GPU counts by shares. No "
        "data: the exporters do not know who has GPUs.",
        CLUSTER,
        Column("Namespace", label="workload_namespace"),
        Column("User", label="user"),
        Column("Account", label="account"),
        Column("Had", expr=f"topk({MOST_LISTED}, {had})", unit=HOURS, decimals=1),
        Column("Used", expr=used, unit=HOURS, decimals=1),
        Column("Unused", expr=f"{had} - {used}", unit=HOURS, decimals=1),
        sort="-Unused",
        size=Size(24, 8),
    )


_OWNER = "{{cluster}} {{workload_namespace}} {{user}} {{account}}"
_WORKLOAD = "{{cluster}} workload {{workload}}"


def _owned(what: str) -> str:
    """GPU hours per owner and cluster, over all workloads and all Prometheus shards."""
    recorded = cluster(f"owner:gpu_{what}_hours:sum1d")
    return f"sum by (cluster, workload_namespace, user, account) ({recorded})"


def _throttled() -> PanelBuilder:
    reasons = 'reason=~"hw_thermal|sw_thermal|hw_power_brake|sw_power_cap"'
    held = gpu("instance_gpu_reason:gpu_throttle_seconds:increase1d", reasons)
    hours = f"sum by ({TARGET}, gpu, reason) ({held}) / 3600"
    return table_of(
        "Hours throttled, last day",
        "The GPUs throttled longest, by reason. Heat that returns every day is a problem of the room, not of the "
        "job. No data: no GPU was throttled, or the rules have not recorded a day.",
        HOST,
        GPU,
        Column("Reason", label="reason"),
        Column("Hours", expr=f"topk({MOST_LISTED}, {hours} > 0)", unit=HOURS, decimals=1),
        sort="-Hours",
        size=Size(12, 9),
    )
