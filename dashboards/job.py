"""Job: why is this job slow, and which GPU or host do all others wait for?"""

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.job_measures import (
    OF_GPU,
    at_the_end,
    behind,
    busy,
    caused,
    classes_worst_first,
    clock,
    hours_lost_by_pace,
    hours_waited,
    lost_hours,
    lost_now,
    lost_of_held,
    mean,
    mine,
    of_median,
    pace,
    power,
    steps,
    waited_until,
    worst_gpus,
)
from dashboards.job_tables import findings_while_it_ran, whose_gpus
from dashboards.owners import OWNER_LABELS
from dashboards.palette import BAD, GOOD, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, tile, timeline
from dashboards.selectors import LEGEND, MOST_SERIES, TARGET, bottleneck, by_gpu, host_legend
from dashboards.tables import CHOSEN_HOST, GPU, GPU_OR_HOST, NARROW_HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, CLASS

TILE = Size(4, 5)
THIRD = Size(8, 7)
HALF = Size(12, 9)
_REMARKABLE = 0.07
"""GPUs of one model differ by up to 5 % at their power limit."""
_BEHIND = limits((_REMARKABLE, WATCH), (0.2, BAD))
CHOSEN_OWNER = "&".join(f"${{{name}:queryparam}}" for name in OWNER_LABELS)
DIAGNOSIS = ("Diagnose this host", f"/d/gpu-triage-diagnosis?{CHOSEN_HOST}&{CHOSEN_OWNER}&${{__url_time_range}}")


def board() -> Board:
    return Board(
        uid="gpu-triage-job",
        title="GPU job",
        description="Why is this job slow? Choose a Slurm job, a namespace, a pod or a user above, and a time range "
        "that covers the job; it may have ended. Read first what it loses, and what the others wait for. "
        "Nothing is shown until an owner is chosen. As text: gpu-triage job.",
        since="3h",
        owners=True,
        needs_owner=True,
        runbooks=True,
        rows=(
            Row("", *_tiles(), _classes(), _slowest_gpus(), *_pace()),
            Row("Slowest against median", *_against_median(), _slowest_hosts(), whose_gpus(HALF)),
            Row("What held it back, and what was found", *_lost(), findings_while_it_ran(Size(24, 9))),
        ),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        tile(
            "Pace",
            "How fast the job goes, or went at its end, relative to its best hour: by its steps if it counts them, "
            f"otherwise by what its GPUs do. Of several jobs, the slowest. {_NOT_KNOWN}",
            f"min({at_the_end(pace())})",
            unit="percentunit",
            size=TILE,
            steps=limits((0.8, WATCH), (0.9, GOOD), base=BAD),
            decimals=0,
        ),
        tile(
            "GPUs lost",
            "How many of its GPUs the job loses, or lost at its end: the part of its pace that is missing, of all of "
            f"them. {_NOT_KNOWN}",
            lost_of_held(),
            unit="none",
            size=TILE,
            legend="of {{held}} GPUs",
            decimals=1,
        ),
        tile(
            "GPU hours lost",
            f"The same, over the time range, while the pace was known. {_NOT_KNOWN}",
            hours_lost_by_pace(),
            unit="suffix: h",
            size=TILE,
            decimals=1,
        ),
        table_of(
            "What the others wait for",
            "The GPUs and hosts that the rest of the job waits for, the latest first. computing: takes longer for its "
            "work, or has more. starving: its host does not feed it. clock: its SM clock is low. network: its host's "
            "network fails or sends again. Hours are what the job lost meanwhile. No data: nothing is waited for, the "
            "pace is not known, or no owner is chosen.",
            NARROW_HOST,
            GPU_OR_HOST,
            Column("Why", label="why", width=100),
            Column("GPU hours", expr=hours_waited(), unit="suffix: h", decimals=1, width=100),
            Column("Until", expr=waited_until(), unit="dateTimeAsLocal", min_width=150),
            sort=("-Until", "-GPU hours"),
            size=Size(12, 5),
        ),
    )


_NOT_KNOWN = (
    "No data: not known, without the rules, in its first half hour, without a scheduler, or while its work changes; or "
    "no owner is chosen."
)
_CHOOSE = "No data: choose a Slurm job, namespace, pod or user above."


def _classes() -> PanelBuilder:
    return timeline(
        "Class of each GPU, the worst first",
        "What limited each GPU while the job had it; the GPU that is furthest behind is the first row. One row with a "
        "cause above rows of communication: the others wait for that one. All alike: not one GPU, but what they share. "
        f"With more than {MOST_SERIES} GPUs: the worst. {_CHOOSE}",
        classes_worst_first(),
        texts=BOTTLENECK,
        size=Size(12, 11),
        show_value=VisibilityMode.AUTO,
    )


def _slowest_gpus() -> PanelBuilder:
    relative = limits((0.8, WATCH), (0.93, GOOD), base=BAD)
    return table_of(
        "GPUs, the slowest first, relative to the median",
        "SM clock under load, power and busy share, each a mean while the job had the GPU, relative to the median of "
        "its GPUs of the same model; of a pair, to the higher one. A low clock: the GPU is slow. Low power or busy "
        "share at the same clock: it works less, and waits. Click a GPU for its details. "
        f"{_CHOOSE}",
        Column("Host", label="instance", min_width=130),
        GPU,
        Column("Behind", expr=behind(), unit="percentunit", steps=_BEHIND, decimals=0, width=90),
        Column("Worst class", expr=_worst_class(), texts=BOTTLENECK, width=122),
        Column("Clock", expr=of_median(clock()), unit="percentunit", steps=relative, decimals=0, width=82),
        Column("Power", expr=of_median(power()), unit="percentunit", decimals=0, width=86),
        Column("Busy", expr=of_median(busy()), unit="percentunit", decimals=0, width=80),
        sort="-Behind",
        size=Size(12, 11),
    )


def _worst_class() -> str:
    return f"min_over_time(({mine(f'max by ({OF_GPU}) ({bottleneck()})')})[$__range:1m] @ end())"


def _pace() -> tuple[PanelBuilder, ...]:
    return (
        lines(
            "Pace relative to its best hour",
            "See which GPU changes color above just before it drops. A short drop at regular times is a checkpoint or "
            f"an evaluation. {_NOT_KNOWN}",
            Query(pace(), "{{cluster}} {{owner}}"),
            unit="percentunit",
            size=HALF,
            line_at=(0.9, WATCH),
            low_is_worse=True,
        ),
        lines(
            "Steps of each rank",
            "Steps a second, as each rank counts them. Ranks of a synchronous job keep pace with the slowest: all "
            "lines drop together, and the cause is in the panels of GPUs. No data: the job does not count its steps.",
            Query(steps(), host_legend("{{job_name}} {{owner}} {{rank}}")),
            unit="ops",
            size=HALF,
            low_is_worse=True,
        ),
    )


def _against_median() -> tuple[PanelBuilder, ...]:
    drawn = (
        ("SM clock", clock(), "hertz", "Only the slowest is low: heat, power, a limit, or the chip itself."),
        ("Power", power(), "watt", "The others draw less than before: they wait. The slowest does: it is held back."),
        ("Busy share", busy(), "percentunit", "Only the slowest is low: it waits for its host, and the others for it."),
    )
    return tuple(
        lines(
            f"{name}: slowest and median",
            f"The GPU that is furthest behind in the time range, beside the median of the job. {decide} {_CHOOSE}",
            Query(f"{mine(by_gpu(expr))}\nand on ({OF_GPU}) {worst_gpus(1)}", LEGEND),
            Query(f"quantile by (cluster) (0.5, {mine(by_gpu(expr))})", "{{cluster}} median"),
            unit=unit,
            size=THIRD,
            low_is_worse=True,
        )
        for name, expr, unit, decide in drawn
    )


def _slowest_hosts() -> PanelBuilder:
    def average(expr: str) -> str:
        return f"avg by ({TARGET}) ({expr})"

    return table_of(
        "Hosts, the slowest first",
        "By how much even the best GPU of each host is behind, and means of its GPUs: share of time with a cause on "
        "the GPU or its host, clock relative to the median of the job, busy share. A whole host that is behind: "
        f"storage, CPU, network, clocks or power. Click it for its diagnosis. {_CHOOSE}",
        Column("Host", label="instance", link=DIAGNOSIS, min_width=120),
        Column(
            "Behind", expr=f"min by ({TARGET}) ({behind()})", unit="percentunit", steps=_BEHIND, decimals=0, width=90
        ),
        Column("With a cause", expr=average(caused()), unit="percentunit", decimals=0, width=122),
        Column("Clock of median", expr=average(of_median(clock())), unit="percentunit", decimals=0),
        Column("Busy", expr=average(mean(busy())), unit="percentunit", decimals=0, width=80),
        Column("GPUs", expr=f"count by ({TARGET}) ({mean(power())})", width=80),
        sort="-Behind",
        size=HALF,
    )


def _lost() -> tuple[PanelBuilder, ...]:
    return (
        lines(
            "GPUs held back, by class",
            "How many GPUs' worth of time each class takes at each moment, however much it slows them. Communication "
            "that begins together with another class: the others wait for GPUs in that class. No data: nothing held "
            "them back, or no owner is chosen.",
            Query(f"sum by (class) ({lost_now()})", "{{class}}"),
            unit="none",
            size=HALF,
            stacked=True,
            names={str(name): (text, color) for name, text, color in CLASS},
        ),
        table_of(
            "GPU hours held back, by host and class",
            "Hours of its GPUs in classes other than compute and idle, in the time range. What the job lost by that is "
            "above. No data: nothing held them back, or no owner is chosen.",
            NARROW_HOST,
            Column("Class", label="class", texts=CLASS, width=140),
            Column("GPU hours", expr=f"topk({MOST_SERIES}, {lost_hours()} > 0)", unit="suffix: h", decimals=2),
            sort="-GPU hours",
            size=HALF,
        ),
    )
