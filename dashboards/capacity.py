"""GPU capacity review: days to months, from recorded series alone, so that a month of a large fleet opens at once.

Lines over time come from series that the rules have summed for the fleet; whatever is told by host or GPU is a table of
the last day.
"""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.panels import PanelBuilder, Query, Size, lines, tile
from dashboards.selectors import gpu
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.words import CLASSES

TILE = Size(6, 4)
STEP = "6h"
"""Day windows hardly change within it."""
MOST_ROWS = 50

_BUSY = gpu("instance_gpu:gpu_busy:avg1d")
_IDLE = gpu("instance_gpu:gpu_allocated_idle_seconds:increase1d")
_ENERGY = gpu("instance_gpu:gpu_energy_joules:increase1d")
_LOST = gpu("instance_gpu_class:gpu_hours_lost:sum1d")
_SEEN = gpu("instance_gpu:gpu_observed_seconds:increase1d")


def board() -> Board:
    """The dashboard."""
    return Board(
        uid="gpu-triage-capacity",
        title="GPU capacity review",
        description="What the GPUs were used for, and what they lost, over days to months: by model, workload, host.",
        since="30d",
        refresh="",
        marks=False,
        rows=(
            Row("", _tiles()),
            Row("By model", (_busy_by_model(), _lost_by_class(), _lost_by_model(), _devices())),
            Row("By workload", (_busy_by_workload(), _idle_by_workload(), _energy_by_workload())),
            Row("Who", (_least_busy(), _most_lost(), _headroom(), _throttled())),
        ),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        tile(
            "Busy share of the last day",
            "Mean of all chosen GPUs over the last day.",
            f"avg({_BUSY})",
            unit="percentunit",
            size=TILE,
            decimals=1,
        ),
        tile(
            "GPU hours lost in the last day",
            "Hours in which a GPU's bottleneck was anything but its own work, and it was not idle.",
            f"sum({_LOST}) or 0 * sum({_SEEN})",
            unit="h",
            size=TILE,
        ),
        tile(
            "GPU hours held and idle in the last day",
            "Hours in which a process held a GPU and hardly used it: capacity that is paid for and gone.",
            f"sum({_IDLE}) / 3600",
            unit="h",
            size=TILE,
        ),
        tile(
            "Energy of the last day",
            "Energy of all chosen GPUs.",
            f"sum({_ENERGY})",
            unit="joule",
            size=TILE,
        ),
    )


def _busy_by_model() -> PanelBuilder:
    return lines(
        "Busy share of the day before, by model",
        "Mean busy share of all GPUs of a model, all hosts. Above 0.8 for weeks: buy or queue. Under 0.4: share, or "
        "give back.",
        [Query("name:gpu_busy:avg1d", "{{name}}")],
        unit="percentunit",
        size=Size(12, 8),
        top=1,
        every=STEP,
    )


def _lost_by_class() -> PanelBuilder:
    return lines(
        "GPU hours lost in a day, by bottleneck",
        "What set the pace instead of the work, all hosts and models. The largest band is what to spend money or time "
        "on next.",
        [Query("sum by (class) (name:gpu_hours_lost:sum1d)", "{{class}}")],
        unit="h",
        size=Size(12, 8),
        every=STEP,
        stacked=True,
        names={name: (name, colour) for name, colour in CLASSES.items()},
    )


def _lost_by_model() -> PanelBuilder:
    return lines(
        "GPU hours lost in a day, by model",
        "The same, by model.",
        [Query("sum by (name) (name:gpu_hours_lost:sum1d)", "{{name}}")],
        unit="h",
        size=Size(12, 7),
        every=STEP,
    )


def _devices() -> PanelBuilder:
    return lines(
        "GPUs that drivers show",
        "How many GPUs there are, all hosts. A step down is GPUs or hosts that left.",
        [Query("cluster:gpu_devices:sum", "GPUs")],
        unit="none",
        size=Size(12, 7),
        every=STEP,
    )


def _busy_by_workload() -> PanelBuilder:
    return lines(
        "Busy share of the day before, by workload",
        "By the label workload of the targets, all hosts; those without it are one.",
        [Query("workload:gpu_busy:avg1d", "workload {{workload}}")],
        unit="percentunit",
        top=1,
        every=STEP,
    )


def _idle_by_workload() -> PanelBuilder:
    return lines(
        "GPU hours held and idle in a day, by workload",
        "Whose GPUs are held without use. Notebooks and left-over sessions, as a rule: a limit on their life pays.",
        [Query("workload:gpu_allocated_idle_seconds:sum1d / 3600", "workload {{workload}}")],
        unit="h",
        every=STEP,
    )


def _energy_by_workload() -> PanelBuilder:
    return lines(
        "Energy of a day, by workload",
        "What the GPUs alone took.",
        [Query("workload:gpu_energy_joules:sum1d", "workload {{workload}}")],
        unit="joule",
        every=STEP,
    )


def _least_busy() -> PanelBuilder:
    by = "job, instance"
    return table_of(
        "Hosts by use in the last day",
        "The least used first: candidates to share or to give back.",
        (
            HOST,
            Column("Busy", expr=f"bottomk({MOST_ROWS}, avg by ({by}) ({_BUSY}))", unit="percentunit", decimals=1),
            Column("Hours held and idle", expr=f"sum by ({by}) ({_IDLE}) / 3600", unit="h", decimals=1),
            Column("Energy", expr=f"sum by ({by}) ({_ENERGY})", unit="joule"),
        ),
        sort="Busy",
        size=Size(12, 9),
    )


def _most_lost() -> PanelBuilder:
    return table_of(
        "Hours lost by host in the last day",
        "Which hosts lost most, and to what.",
        (
            HOST,
            Column("Lost to", label="class"),
            Column(
                "Hours",
                expr=f"topk({MOST_ROWS}, sum by (job, instance, class) ({_LOST}))",
                unit="h",
                decimals=1,
            ),
        ),
        sort="Hours",
        descending=True,
        size=Size(12, 9),
    )


def _headroom() -> PanelBuilder:
    return table_of(
        "Headroom of each GPU",
        "The 95th percentile of utilisation and the highest memory use of the last day, and the power now as a share "
        "of its limit. Little of all three: a smaller GPU, or an instance of one, would do.",
        (
            HOST,
            GPU,
            Column("Busy", expr=f"max by (job, instance, gpu) (bottomk({MOST_ROWS}, {_BUSY}))", unit="percentunit"),
            Column("95th percentile", expr=_each("instance_gpu:gpu_utilization:p95_1d"), unit="percentunit"),
            Column("Highest memory", expr=_each("instance_gpu:gpu_memory_used:max1d"), unit="bytes"),
            Column("Power of limit", expr=_each("instance_gpu:gpu_power:ratio_to_limit"), unit="percentunit"),
        ),
        sort="95th percentile",
        size=Size(12, 9),
    )


def _throttled() -> PanelBuilder:
    reasons = 'reason=~"hw_thermal|sw_thermal|hw_power_brake|sw_power_cap"'
    held = gpu("instance_gpu_reason:gpu_throttle_seconds:increase1d", reasons)
    return table_of(
        "Hours held back in the last day",
        "GPUs that were throttled longest, by reason. Heat that returns daily is a matter of the room, not of the job.",
        (
            HOST,
            GPU,
            Column("Reason", label="reason"),
            Column(
                "Hours",
                expr=f"topk({MOST_ROWS}, sum by (job, instance, gpu, reason) ({held}) / 3600 > 0)",
                unit="h",
                decimals=1,
            ),
        ),
        sort="Hours",
        descending=True,
        size=Size(12, 9),
    )


def _each(metric: str) -> str:
    return f"max by (job, instance, gpu) ({gpu(metric)})"
