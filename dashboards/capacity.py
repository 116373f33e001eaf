"""GPU capacity review: days to months, from recorded series only, so that a month of a large fleet loads quickly.

Time series panels use series that the rules aggregate for the fleet; values per host or GPU are tables of the last day.
"""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.panels import PanelBuilder, Query, Size, lines, tile
from dashboards.selectors import TARGET, by_gpu, cluster, gpu, host
from dashboards.tables import CLUSTER, GPU, HOST, Column, table_of
from dashboards.value_mappings import CLASS

TILE = Size(6, 4)
STEP = "6h"
"""Windows of a day hardly change within this step."""
MOST_ROWS = 50

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
                    "All selected hosts by the target label cluster; targets without the label count as one cluster.",
                    CLUSTER,
                    Column("GPUs", expr=f"count by (cluster) ({_SEEN})"),
                    Column("Busy", expr=f"avg by (cluster) ({_BUSY})", unit="percentunit", decimals=1),
                    Column(
                        "Lost",
                        expr=f"sum by (cluster) ({_LOST}) / 3600\nor 0 * sum by (cluster) ({_SEEN})",
                        unit="h",
                        decimals=1,
                    ),
                    Column("Held and idle", expr=f"sum by (cluster) ({_IDLE}) / 3600", unit="h", decimals=1),
                    Column("Energy", expr=f"sum by (cluster) ({_ENERGY})", unit="joule"),
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
            "Below 0.4: share GPUs, or return some.",
            Query(_mean_by("name"), "{{cluster}} {{name}}"),
            unit="percentunit",
            size=Size(12, 8),
            top=1,
            every=STEP,
        ),
        lines(
            "GPU hours lost per day, by bottleneck",
            "What limited the GPUs instead of their own work, all selected clusters. Spend time or money on the "
            "largest band first.",
            Query(f"sum by (class) ({cluster('name:gpu_hours_lost:sum1d')})", "{{class}}"),
            unit="h",
            size=Size(12, 8),
            every=STEP,
            stacked=True,
            names={str(name): (text, color) for name, text, color in CLASS},
        ),
        lines(
            "GPU hours lost per day, by model",
            "The same hours, by model.",
            Query(f"sum by (cluster, name) ({cluster('name:gpu_hours_lost:sum1d')})", "{{cluster}} {{name}}"),
            unit="h",
            size=Size(12, 7),
            every=STEP,
        ),
        lines(
            "Number of GPUs",
            "GPUs that the drivers of all hosts list. A step down: GPUs or hosts are gone.",
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
            "By the target label workload, all hosts; targets without the label count as one.",
            Query(_mean_by("workload"), _WORKLOAD),
            unit="percentunit",
            top=1,
            every=STEP,
        ),
        lines(
            "GPU hours allocated but idle per day, by workload",
            "GPUs held without being used, usually by notebooks and forgotten sessions: a limit on their lifetime pays "
            "off.",
            Query(
                f"sum by (cluster, workload) ({cluster('workload:gpu_allocated_idle_seconds:sum1d')}) / 3600", _WORKLOAD
            ),
            unit="h",
            every=STEP,
        ),
        lines(
            "Energy per day, by workload",
            "Consumption of the GPUs alone, without their hosts.",
            Query(f"sum by (cluster, workload) ({cluster('workload:gpu_energy_joules:sum1d')})", _WORKLOAD),
            unit="joule",
            every=STEP,
        ),
    )


def _by_owner() -> Row:
    return Row(
        "By namespace, user and account",
        lines(
            "GPU hours allocated per day, by owner",
            "Hours for which each namespace, or user and account of Slurm, had a GPU: given by the scheduler, else "
            "held by its processes.",
            Query(_owned("allocated"), _OWNER),
            unit="h",
            size=Size(12, 8),
            every=STEP,
            stacked=True,
        ),
        lines(
            "GPU hours allocated but unused per day, by owner",
            "The part of these hours in which the GPU did nothing for them. Talk to the largest first.",
            Query(f"{_owned('allocated')} - {_owned('busy')}", _OWNER),
            unit="h",
            size=Size(12, 8),
            every=STEP,
            stacked=True,
        ),
        _owners(),
    )


def _by_host() -> Row:
    return Row(
        "By host and GPU",
        table_of(
            "Least used hosts, last day",
            "Candidates to share or to return.",
            HOST,
            Column("Busy", expr=f"bottomk({MOST_ROWS}, avg by ({TARGET}) ({_BUSY}))", unit="percentunit", decimals=1),
            Column("Hours held and idle", expr=f"sum by ({TARGET}) ({_IDLE}) / 3600", unit="h", decimals=1),
            Column("Energy", expr=f"sum by ({TARGET}) ({_ENERGY})", unit="joule"),
            sort="Busy",
            size=Size(12, 9),
        ),
        table_of(
            "Hours lost by host, last day",
            "Which hosts lost most, and to what; all GPUs of a host.",
            HOST,
            Column("Lost to", label="class", texts=CLASS),
            Column(
                "Hours", expr=f"topk({MOST_ROWS}, sum by ({TARGET}, class) ({_LOST_BY_HOST}))", unit="h", decimals=1
            ),
            sort="-Hours",
            size=Size(12, 9),
        ),
        table_of(
            "Headroom of each GPU",
            "95th percentile of the busy share of 5 minutes, and highest memory use of the last day. Both low: a "
            "smaller GPU or a MIG instance would do.",
            HOST,
            GPU,
            Column("Busy", expr=f"max by ({TARGET}, gpu) (bottomk({MOST_ROWS}, {_BUSY}))", unit="percentunit"),
            Column("95th percentile", expr=by_gpu(f"quantile_over_time(0.95, {_SHARES}[1d])"), unit="percentunit"),
            Column("Highest memory", expr=by_gpu(f"max_over_time({_MEMORY}[1d])"), unit="bytes"),
            sort="95th percentile",
            size=Size(12, 9),
        ),
        _throttled(),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        tile(
            "Busy share, last day",
            "Mean over all selected GPUs.",
            f"avg({_BUSY})",
            unit="percentunit",
            size=TILE,
            decimals=1,
        ),
        tile(
            "GPU hours lost, last day",
            "Hours in which something other than its own work limited a GPU, while it was not idle.",
            f"sum({_LOST}) / 3600 or 0 * sum({_SEEN})",
            unit="h",
            size=TILE,
        ),
        tile(
            "GPU hours allocated but idle, last day",
            "Hours in which a process held a GPU and hardly used it: capacity paid for and wasted.",
            f"sum({_IDLE}) / 3600",
            unit="h",
            size=TILE,
        ),
        tile("Energy, last day", "What all selected GPUs consumed.", f"sum({_ENERGY})", unit="joule", size=TILE),
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
        "What each namespace, or user and account, had, used and left unused. A shared GPU counts by shares.",
        CLUSTER,
        Column("Namespace", label="workload_namespace"),
        Column("User", label="user"),
        Column("Account", label="account"),
        Column("Had", expr=f"topk({MOST_ROWS}, {had})", unit="h", decimals=1),
        Column("Used", expr=used, unit="h", decimals=1),
        Column("Lost", expr=f"{had} - {used}", unit="h", decimals=1),
        sort="-Lost",
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
    return table_of(
        "Hours throttled, last day",
        "The GPUs throttled longest, by reason. Heat that returns every day is a problem of the room, not of the job.",
        HOST,
        GPU,
        Column("Reason", label="reason"),
        Column(
            "Hours", expr=f"topk({MOST_ROWS}, sum by ({TARGET}, gpu, reason) ({held}) / 3600 > 0)", unit="h", decimals=1
        ),
        sort="-Hours",
        size=Size(12, 9),
    )
