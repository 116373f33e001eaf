"""Job: why is this job slow, and which GPU or host do all others wait for?

What is measured of a job's GPUs is cut to the job's own time, so that one that has ended shows what it did.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.owners import METRICS, OWNED_GPUS, OWNER_LABELS, owned
from dashboards.palette import BAD, GOOD, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, tile, timeline
from dashboards.selectors import (
    LEGEND,
    LOST,
    MOST_SERIES,
    OWNER,
    TARGET,
    bottleneck,
    by_gpu,
    cluster,
    gpu,
    host,
    host_legend,
    rate,
)
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import CHOSEN_HOST, CLUSTER, GPU, NARROW_HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, CLASS, FINDING, SEVERITY, by_severity
from gpu_triage.alerting.build import expression_macros
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK,
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_FINDING,
    GPU_HOST_FINDING,
)

OF_GPU: Final = f"{TARGET}, gpu"
STEP_SECONDS: Final = 60
"""The slowest scrape interval: averages and hours are counted in steps of it."""
OVER: Final = "[$__range:1m] @ end()"
LOADED: Final = 0.2
"""SM utilization from which clocks can be compared: an idle GPU lowers its clock."""
_WAITS: Final = GPU_BOTTLENECK.value_of("communication")
"""Classes before it have a cause on the GPU or its host; from it on, a GPU waits for others or for itself."""


def mine(expr: str) -> str:
    """Values of GPUs while the job has them."""
    return f"{expr}\nand on ({OF_GPU}) {owned()}"


def mean(expr: str) -> str:
    """Mean over the time range, for each GPU of the job."""
    return f"avg_over_time(({mine(by_gpu(expr))}){OVER})"


def clock() -> str:
    """The SM clock under load."""
    loaded = f"{gpu('gpu_sm_utilization_ratio')} > {LOADED}"
    return f"({gpu('gpu_clock_hertz', _SM)} and on ({OF_GPU}) {loaded})"


_SM: Final = 'clock="sm"'


def power() -> str:
    return gpu("gpu_power_watts")


def busy() -> str:
    return f"clamp_max({rate(gpu('gpu_busy_seconds_total'))} / {rate(gpu('gpu_observed_seconds_total'))}, 1)"


def caused() -> str:
    """Share of its time in which a GPU was held back by itself or its host, 0-1."""
    return mean(f"{bottleneck()} < bool {_WAITS}")


def of_median(expr: str) -> str:
    """The mean relative to the median of the job's GPUs of the same model, 1 for as much; of a pair, to the higher."""
    models = f"topk by ({OF_GPU}) (1, last_over_time({gpu('gpu_info')}[$__range] @ end()))"
    named = f"({mean(expr)} * on ({OF_GPU}) group_left (name) {models})"
    alike = "cluster, name"
    # Two GPUs have no median between them: each is compared with the faster one.
    usual = f"quantile by ({alike}) (0.5, {named}) and count by ({alike}) ({named}) > 2 or max by ({alike}) ({named})"
    return by_gpu(f"{named} / on ({alike}) group_left () ({usual})")


def behind() -> str:
    """How far each GPU is behind, 0-1: more of its time with a cause than usual, or a clock below the median.

    The larger of both. Usual is the lower quartile: up to half of the GPUs can be behind, and never all of them.
    """
    own = caused()
    more = f"{own} - on (cluster) group_left () quantile by (cluster) (0.25, {own})"
    by_reading = (("cause", more), ("clock", f"1 - {of_median(clock())}"))
    parts = " or ".join(f'label_replace({each}, "reading", "{name}", "", "")' for name, each in by_reading)
    return f"clamp_min({by_gpu(parts)}, 0)"


def worst_gpus(count: int) -> str:
    """Those that are furthest behind, in each cluster, chosen once for the whole picture."""
    return f"topk by (cluster) ({count}, {behind()})"


def classes_worst_first() -> str:
    """The class of each GPU. Servers sort by labels, and the first label is how far the GPU is behind.

    The label gets the same number of digits for all.
    """
    place = f'count_values by ({OF_GPU}) ("_place", round({_HIGHEST} - 100000 * {worst_gpus(MOST_SERIES)}))'
    return f"({mine(f'max by ({OF_GPU}) ({bottleneck()})')})\n* on ({OF_GPU}) group_left (_place)\n{place}"


_HIGHEST: Final = 999_999


def lost_now() -> str:
    """GPUs' worth of time that each class takes on each GPU."""
    spent = rate(gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST))
    return f"({mine(f'max by ({OF_GPU}, class) ({spent})')})"


def lost_hours() -> str:
    """GPU hours for which each class held the job's GPUs back, on each host."""
    return f"(sum by ({TARGET}, class) (sum_over_time({lost_now()}{OVER})) * {STEP_SECONDS} / 3600)"


def steps() -> str:
    """Steps a second of each rank: from the job's own files, else from those of its user on the same host.

    Not from the first minutes, which a rate covers only in part.
    """
    counter = host("gpu_job_steps_total")
    by = f"{TARGET}, job_name, owner"
    counted = f"{rate(counter)} and on ({by}) group by ({by}) ({counter} offset $__rate_interval)"
    of_jobs = (
        f'label_replace({_owners(_JOB)}, "owner", "$1", "slurm_job_id", "(.+)") or '
        f'label_join({_owners(_POD)}, "owner", "_", "workload_namespace", "workload_pod")'
    )
    of_users = f'label_replace({_owners(_USER)}, "owner", "$1", "user", "(.+)")'
    own, users = (f"{counted} and on ({TARGET}, owner) ({each})" for each in (of_jobs, of_users))
    return f"({own} or ({users} unless on ({TARGET}) ({own})))"


_JOB: Final = 'slurm_job_id!=""'
_POD: Final = 'workload_pod!=""'
_USER: Final = 'user!=""'


def _owners(matchers: str) -> str:
    # Of all GPUs of the job, whichever of them is selected: the pace is that of the job.
    given, processes = (host(metric, f"{OWNED_GPUS}, {OWNER}, {matchers}") for metric in METRICS)
    return f"({given} or {processes})"


def _jobs() -> str:
    """1 for each of the jobs, named as the rules name them, while they have GPUs."""
    slurm = f'label_replace({_owners(_JOB)}, "owner", "$1/", "slurm_job_id", "(.+)")'
    pods = f'label_join({_owners(_POD)}, "owner", "/", "workload_namespace", "workload_pod")'
    workloads = f'label_replace({pods}, "owner", "$1/$2", "owner", "([^/]+)/{expression_macros()["pod"]}")'
    return f"group by ({OF_JOB}) ({slurm} or {workloads})"


OF_JOB: Final = "cluster, job, owner"


def pace() -> str:
    """The pace of the jobs, as a share of their best hour."""
    return _recorded("min", "owner:gpu_job:pace")


def lost_gpus() -> str:
    """How many GPUs each of the jobs loses."""
    return _recorded("sum", _LOST)


_LOST: Final = "owner:gpu_job_lost:gpus"


def _recorded(of_servers: str, series: str) -> str:
    """Of servers that share the hosts of a job, each records it."""
    return f"({of_servers} by ({OF_JOB}) ({cluster(series, _SCRAPED)})\nand on ({OF_JOB}) {_jobs()})"


_SCRAPED: Final = 'job=~"$job"'


def at_the_end(expr: str) -> str:
    """What `pace` or `lost_gpus` is when the job was last seen; nothing if it was not known then."""
    return f"(last_over_time(({expr}\nor on ({OF_JOB}) -1 * {_jobs()}){OVER}) >= 0)"


def lost_of_held() -> str:
    """GPUs lost at the end, with the number of GPUs that were held then as a label."""
    held = f'count_values("held", last_over_time((count({owned()})){OVER}))'
    return f"sum({at_the_end(lost_gpus())})\n+ on () group_right () 0 * {held}"


def hours_lost_by_pace() -> str:
    return f"sum(sum_over_time({lost_gpus()}{OVER})) * {STEP_SECONDS} / 3600"


def _waited_for() -> str:
    """What the others wait for, with the reason; of a whole host, without a GPU."""
    found = host("instance_gpu_owner_why:gpu_job_waited_for:affected")
    return f"group by ({OF_GPU}, why, owner) ({found}\nand on ({OF_JOB}) {_jobs()})"


def hours_waited() -> str:
    """GPU hours that the jobs lost meanwhile."""
    lost = f"sum by ({OF_JOB}) ({cluster(_LOST, _SCRAPED)})"
    during = f"({_waited_for()} * on ({OF_JOB}) group_left () {lost})"
    return f"sum by ({OF_GPU}, why) (sum_over_time({during}{OVER})) * {STEP_SECONDS} / 3600"


def waited_until() -> str:
    return f"1000 * max by ({OF_GPU}, why) (max_over_time(({_waited_for()} * 0 + time()){OVER}))"


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
            GPU,
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


_BY = f"{TARGET}, gpu, code, action"
_OWNER = "slurm_job_id, workload_namespace, workload_pod, user"


def findings_while_it_ran(size: Size) -> PanelBuilder:
    """Findings on the job's GPUs and hosts, with the time for which they were there."""
    severity = by_severity(lambda matcher: f"group by ({_BY}) (max_over_time(({_found(matcher)}){OVER}))")
    began = f"min by ({_BY}) (min_over_time((({_found()}) * 0 + time()){OVER}))"
    return table_of(
        "Findings while it ran",
        "What the exporters found on the job's GPUs and hosts while it had them, the most severe first; what began "
        "first is often the cause of the rest. Rows without a GPU are about the host. No data: no finding, or no "
        "owner is chosen.",
        Column("Severity", expr=severity, texts=SEVERITY[:3], width=96),
        Column("Finding", label="code", link=("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=190),
        NARROW_HOST,
        GPU,
        Column("Action", label="action", width=140),
        Column("State", expr=f"max by ({_BY}) (max_over_time(({_found()}){OVER}))", texts=FINDING, width=100),
        Column("From", expr=f"1000 * {began}", unit="dateTimeAsLocal", min_width=150),
        Column(
            "For",
            expr=f"{STEP_SECONDS} * max by ({_BY}) (count_over_time(({_found()}){OVER}))",
            unit="s",
            decimals=0,
            width=90,
        ),
        sort=("Severity", "From"),
        size=size,
    )


def _found(matchers: str = "") -> str:
    mine = owned()
    return (
        f"{gpu(GPU_FINDING.name, matchers)} > 0 and on ({TARGET}, gpu) {mine} "
        f"or {host(GPU_HOST_FINDING.name, matchers)} > 0 and on ({TARGET}) {mine}"
    )


def whose_gpus(size: Size) -> PanelBuilder:
    seen = f"(({_owners_with_commands()}) * 0 + time())"
    return table_of(
        "Whose GPUs, and the same as text",
        "Who had GPUs in the time range, of what is chosen above: how many, from when and until when. The command "
        "says in words what the job waits for and what to do first; add --prometheus. No data: choose a Slurm job, "
        "namespace, pod or user above.",
        CLUSTER,
        Column("Slurm job", label="slurm_job_id", width=86),
        Column("Namespace", label="workload_namespace"),
        Column("Pod", label="workload_pod"),
        Column("User", label="user", width=74),
        Column(
            "GPUs",
            expr=f"count by (cluster, {_OWNER}, command) (count_over_time(({_owners_with_commands()}){OVER}))",
            width=60,
        ),
        Column("From", expr=f"1000 * {_of_all('min', seen)}", unit="dateTimeAsLocal"),
        Column("Until", expr=f"1000 * {_of_all('max', seen)}", unit="dateTimeAsLocal"),
        Column("As text", label="command", min_width=190),
        sort="-GPUs",
        size=size,
    )


def _of_all(choice: str, expr: str) -> str:
    return f"{choice} by (cluster, {_OWNER}, command) ({choice}_over_time({expr}{OVER}))"


def _owners_with_commands() -> str:
    """1 for each owner of a GPU, with the command about it. A user inside a pod is the container's."""
    given, processes = (gpu(metric, OWNER) for metric in METRICS)
    outside = f'label_replace({processes}, "user", "", "workload_pod", ".+")'
    # The scheduler's name of a user is better than the number that a process has.
    either = f"{given} > 0 or on ({TARGET}, gpu, slurm_job_id, workload_namespace, workload_pod) {outside}"
    owners = f"group by ({TARGET}, gpu, {_OWNER}) ({either})"
    named = f'label_replace({owners}, "command", "gpu-triage job $1", "user", "(.+)")'
    named = f'label_replace({named}, "command", "gpu-triage job $1", "slurm_job_id", "(.+)")'
    pods = f'label_join({named}, "pod", "/", "workload_namespace", "workload_pod")'
    return f'label_replace({pods}, "command", "gpu-triage job $1", "pod", "(.+/.+)")'
