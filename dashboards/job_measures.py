"""What is measured of a job's GPUs while it has them: means over the time range, and how far each is behind.

Everything is cut to the job's own time before it is averaged, so that a job that has ended shows what it did.
"""

from typing import Final

from dashboards.owners import METRICS, OWNED_GPUS, owned
from dashboards.selectors import LOST, MOST_SERIES, OWNER, TARGET, bottleneck, by_gpu, cluster, gpu, host, rate
from gpu_triage.alerting.build import expression_macros
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_BOTTLENECK_SECONDS_TOTAL

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
    return _recorded("sum", LOST_GPUS)


LOST_GPUS: Final = "owner:gpu_job_lost:gpus"
MEMBER: Final = "instance_gpu_owner:gpu_job:member"
WAITED_FOR: Final = "instance_gpu_owner_why:gpu_job_waited_for:affected"


def alerts_of_jobs(matchers: str) -> str:
    return cluster("ALERTS", f'{SCRAPED}, instance="", owner!="", alertstate="firing", {matchers}')


def _recorded(of_servers: str, series: str) -> str:
    """Of servers that share the hosts of a job, each records it."""
    return f"({of_servers} by ({OF_JOB}) ({cluster(series, SCRAPED)})\nand on ({OF_JOB}) {_jobs()})"


SCRAPED: Final = 'job=~"$job"'


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
    found = host(WAITED_FOR)
    return f"group by ({OF_GPU}, why, owner) ({found}\nand on ({OF_JOB}) {_jobs()})"


def hours_waited() -> str:
    """GPU hours that the jobs lost meanwhile."""
    lost = f"sum by ({OF_JOB}) ({cluster(LOST_GPUS, SCRAPED)})"
    during = f"({_waited_for()} * on ({OF_JOB}) group_left () {lost})"
    return f"sum by ({OF_GPU}, why) (sum_over_time({during}{OVER})) * {STEP_SECONDS} / 3600"


def waited_until() -> str:
    return f"1000 * max by ({OF_GPU}, why) (max_over_time(({_waited_for()} * 0 + time()){OVER}))"
