"""Job: why is this job slow, and which GPU or host do all others wait for?"""

from functools import partial

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.job_measures import (
    MINUTES_PER_HOUR,
    MOST_SLOW,
    OF_JOB,
    OVER,
    SLOW_HOSTS,
    SLOWEST,
    below_usual,
    busy,
    class_now,
    classes_worst_first,
    clock,
    hours_lost,
    in_class,
    lost_gpus_now,
    lost_pace,
    lost_pace_now,
    member,
    power,
    slower,
    slowest_over_time,
    steps,
    usual,
    variables,
)
from dashboards.job_resources import resources
from dashboards.job_tables import DIAGNOSIS, SLOW, findings_while_it_ran, whose_gpus, why_slow
from dashboards.palette import BAD, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, shares, tile, timeline
from dashboards.selectors import LEGEND, TARGET, by_gpu
from dashboards.steps import of_alert
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK
from gpu_triage.cli.job.advice import CLOCK_SHARE, PACE_SHARE

TILE = Size(4, 5)
THIRD = Size(8, 7)
HALF = Size(12, 9)
_BEHIND = limits((CLOCK_SHARE, WATCH), (PACE_SHARE, BAD))


def board() -> Board:
    return Board(
        uid="gpu-triage-job",
        title="GPU job",
        description="Why is this job slow? Choose a Slurm job, a namespace, a pod or a user above, and a time range "
        "that covers the job. If it has ended, now is its end. Read first how much slower it is, and what the others "
        "wait for. Nothing is shown until an owner is chosen. As text: gpu-triage job.",
        since="3h",
        owners=True,
        needs_owner=True,
        runbooks=True,
        variables=variables(),
        rows=(
            Row("", why_slow(Size(24, 6)), *_tiles(), _pace(), _classes(), _slowest_gpus()),
            Row("Slowest against usual", *_against_usual(), _slowest_hosts(), _steps()),
            Row("What held it back, and what was found", *_held_back(), findings_while_it_ran(Size(24, 9))),
            Row("Whose GPUs", whose_gpus(Size(24, 8)), folded=True),
            resources(),
        ),
    )


_NOT_KNOWN = (
    "No data: not known, without the rules, in its first half hour, without a scheduler, or while its work changes; or "
    "no owner is chosen."
)
_CHOOSE = "No data: choose a Slurm job, namespace, pod or user above."


def _tiles() -> tuple[PanelBuilder, ...]:
    jobs = f"count({lost_pace_now()})"
    number = f'label_replace(count_values("jobs", {jobs}), "of", "slowest of $1 jobs", "jobs", "(.+)")'
    of = f'label_replace({number}, "of", "than its best hour", "jobs", "1")'
    return (
        tile(
            "Slower now",
            "By how much the job is slower now, or was at its end: by its steps if it counts them, else by what its "
            "GPUs do. Of several jobs, the slowest. During a checkpoint or an evaluation, the value of before. "
            f"{_NOT_KNOWN}",
            f"0 * {of} + on () group_left () max({lost_pace_now()})",
            unit="percentunit",
            size=TILE,
            steps=SLOW,
            decimals=0,
            legend="{{of}}",
        ),
        tile(
            "GPUs lost",
            "How many of its GPUs the job loses, or lost at its end: the part of its pace that is missing, of all of "
            f"them. {_NOT_KNOWN}",
            lost_gpus_now(),
            unit="none",
            size=TILE,
            legend="of {{held}} GPUs",
            decimals=1,
        ),
        tile(
            "GPU hours lost",
            f"The same, over the time range, while the pace was known. {_NOT_KNOWN}",
            hours_lost(),
            unit="suffix: h",
            size=TILE,
            decimals=1,
        ),
    )


def _pace() -> PanelBuilder:
    return shares(
        "Slower than in its best hour",
        "See which GPU changes color below just before it rises. A short peak at regular times is a checkpoint or "
        f"an evaluation. The limit is that of the alert. {_NOT_KNOWN}",
        Query(lost_pace(), "{{cluster}} {{owner}}"),
        size=Size(12, 5),
        line_at=(1 - of_alert("GpuJobSlow", "share"), WATCH),
    )


def _classes() -> PanelBuilder:
    return timeline(
        f"Class of each GPU, the {MOST_SLOW} slowest",
        "What limited each GPU while the job had it; the GPU that is slowest now is the first row. One row with a "
        "cause above rows of communication: the others wait for that one. All alike: not one GPU, but what they share. "
        f"{_CHOOSE}",
        classes_worst_first(),
        texts=BOTTLENECK,
        size=Size(11, 11),
        show_value=VisibilityMode.AUTO,
    )


def _slowest_gpus() -> PanelBuilder:
    def below(of: str) -> str:
        return by_gpu(below_usual(of, SLOWEST))

    share = partial(Column, unit="percentunit", decimals=0, width=80)
    return table_of(
        f"GPUs, the {MOST_SLOW} slowest now",
        "By how much each GPU is slower than the usual one of its model in the job, now or at the job's end: the most "
        "of a lower clock, less time with a kernel, and what the others wait for. Then by how much its SM clock under "
        "load, power and busy share are below the median; of two GPUs, below the higher one. A low clock: the GPU is "
        "slow. Low power or busy share at the same clock: it works less, and waits. Click a GPU for its details. "
        f"{_CHOOSE}",
        HOST,
        GPU,
        share("Slower", expr=by_gpu(slower(SLOWEST)), steps=_BEHIND),
        Column("Class", expr=class_now(), texts=BOTTLENECK, width=122),
        share("Clock", expr=below("clock")),
        share("Power", expr=below("power")),
        share("Busy", expr=below("busy")),
        sort=("-Slower", "Host", "GPU"),
        size=Size(13, 11),
        filterable=False,
    )


def _against_usual() -> tuple[PanelBuilder, ...]:
    drawn = (
        ("SM clock", "clock", clock, "hertz", "Only the slowest is low: heat, power, a limit, or the chip itself."),
        (
            "Power",
            "power",
            power,
            "watt",
            "The others draw less than before: they wait. The slowest does: it is held back.",
        ),
        ("Busy share", "busy", busy, "percentunit", "Only the slowest is low: it waits for its host, and all for it."),
    )
    return tuple(
        lines(
            f"{name}: slowest and median",
            f"The GPU that is slowest now, beside the median of the job. {decide} {_CHOOSE}",
            Query(slowest_over_time(reading), LEGEND),
            Query(usual(of), "{{cluster}} {{owner}} {{name}} median"),
            unit=unit,
            size=THIRD,
            low_is_worse=True,
        )
        for name, of, reading, unit, decide in drawn
    )


def _slowest_hosts() -> PanelBuilder:
    def of_hosts(function: str, expr: str) -> str:
        return f"{function} by ({TARGET}) ({expr})"

    share = partial(Column, unit="percentunit", decimals=0)
    return table_of(
        f"Hosts, the {MOST_SLOW} slowest now",
        "By how much even the best GPU of each host is slower, now or at the job's end, and by how much the clock "
        "and busy share of its GPUs are below the median of the job. A whole host that is slow: storage, CPU, network, "
        f"clocks or power. Click it for its diagnosis. {_CHOOSE}",
        Column("Host", label="instance", link=DIAGNOSIS, min_width=HOST.min_width),
        share("Slower", expr=of_hosts("min", slower(SLOW_HOSTS)), steps=_BEHIND, width=90),
        share("Clock", expr=of_hosts("avg", below_usual("clock", SLOW_HOSTS))),
        share("Busy", expr=of_hosts("avg", below_usual("busy", SLOW_HOSTS))),
        Column("GPUs", expr=of_hosts("count", member(SLOW_HOSTS)), width=80),
        sort=("-Slower", "Host"),
        size=HALF,
    )


def _steps() -> PanelBuilder:
    return lines(
        "Steps a second of the slowest rank, over 3 minutes",
        "As it counts them. Ranks of a synchronous job keep pace with the slowest: the cause of a drop is in the "
        "panels of GPUs. No data: the job does not count its steps, or the rules do not run.",
        Query(steps(), "{{cluster}} {{owner}}"),
        unit="ops",
        size=HALF,
        low_is_worse=True,
    )


def _held_back() -> tuple[PanelBuilder, ...]:
    names = {str(value): (text, color) for value, text, color in BOTTLENECK}
    hours = f"sum by ({OF_JOB}, bottleneck) (sum_over_time({in_class()}{OVER})) / {MINUTES_PER_HOUR}"
    return (
        lines(
            "GPUs held back, by class",
            "How many GPUs are in each class at each moment, however much it slows them. Communication that begins "
            "together with another class: the others wait for GPUs in that class. No data: nothing held them back, the "
            "rules do not run, or no owner is chosen.",
            Query(f"sum by (bottleneck) ({in_class()})", "{{bottleneck}}"),
            unit="none",
            size=HALF,
            stacked=True,
            names=names,
        ),
        table_of(
            "GPU hours held back, by job and class",
            "Hours of its GPUs in classes other than compute and idle, in the time range. What the job lost by that is "
            "above. No data: nothing held them back, the rules do not run, or no owner is chosen.",
            Column("Job", label="owner"),
            Column(
                "Class",
                label="bottleneck",
                texts=tuple((str(value), text, color) for value, text, color in BOTTLENECK),
                width=140,
            ),
            Column("GPU hours", expr=hours, unit="suffix: h", decimals=2),
            sort="-GPU hours",
            size=HALF,
        ),
    )
