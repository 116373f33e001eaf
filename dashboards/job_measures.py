"""What is measured of a job's GPUs: as it is now, or was at the end of a job that has ended, and over time.

A job may have hundreds of GPUs, and a refresh must take no longer than a second or two. Hidden variables hold its name
in the rules, the moment that counts as now, and the hosts of its slowest GPUs. Tables read that moment. Lines read what
the rules record for each job, or those few hosts.
"""

from collections.abc import Callable
from typing import Final

from grafana_foundation_sdk.builders.dashboard import QueryVariable

from dashboards.owners import METRICS, OWNED_HOSTS, all_of, had_jobs, hidden_variable, without_brackets
from dashboards.selectors import CLUSTER, OWNER, TARGET, by_gpu, cluster, gpu, host, placed, rate
from gpu_triage.cli.fleet import job_pace
from gpu_triage.cli.fleet.job_pace import PACE, pausing, steady
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK

OF_GPU: Final = f"{TARGET}, gpu"
OF_JOB: Final = job_pace.JOB
LOST_GPUS: Final = job_pace.LOST
WAITED_FOR: Final = job_pace.WAITED_FOR
NOW: Final = "@ ${ended}"
AT_END: Final = f" {NOW}"
WHILE_IT_RAN: Final = f"[${{lasted}}s:1m] {NOW}"
OVER: Final = "[$__range:1m] @ end()"
MINUTES_PER_HOUR: Final = 60
LOADED: Final = 0.2
"""SM utilization from which clocks can be compared: an idle GPU lowers its clock."""
MOST_SLOW: Final = 20
"""Rows of tables and of the timeline."""

SCRAPED: Final = 'job=~"$job"'
_OWNERS: Final = "owner=~`${owners:pipe}`"
JOBS: Final = f"{{{CLUSTER}, {SCRAPED}, {_OWNERS}}}"
SLOWEST: Final = "uuid=~`${slowest:pipe}`"
WORST: Final = 'uuid=~"${worst}"'
SLOW_HOSTS: Final = "instance=~`${slow_hosts:pipe}`"
MEMBER: Final = "instance_gpu_owner:gpu_job:member"
_USUAL: Final = "owner_of:gpu_job:usual"


def variables() -> tuple[QueryVariable, ...]:
    """The hidden variables; without an owner, now is the end of the time range, and nothing is selected."""
    names = "|".join(METRICS)
    held = f'group({{__name__=~"{names}", {CLUSTER}, {SCRAPED}, {OWNED_HOSTS}, {OWNER}}} > 0) * 0 + time()'
    first, last = (f"{which}_over_time(({held})[$__range:1m])" for which in ("min", "max"))
    hosts = f"topk({MOST_SLOW}, min by (instance) ({slower()}))"
    return (
        all_of(hidden_variable("owners", "owner", had_jobs(), r"[\w./-]+")),
        hidden_variable("ended", "ended", f'count_values("ended", {last} or on () vector(time()))'),
        hidden_variable("lasted", "lasted", f'count_values("lasted", ${{ended}} + 60 - {first} or on () vector(60))'),
        all_of(hidden_variable("slowest", "uuid", f"topk({MOST_SLOW}, {_rank()})")),
        hidden_variable("worst", "uuid", f"topk(1, {_rank(SLOWEST)})"),
        all_of(hidden_variable("slow_hosts", "instance", without_brackets(f"group by (instance) ({hosts})"))),
    )


def owned(matchers: str = "", at: str = "") -> str:
    """The selected GPUs while the chosen owner has them, to join with: a GPU may be there twice."""
    given, processes = (f"{gpu(metric, _also(OWNER, matchers))}{at}" for metric in METRICS)
    return f"({given} > 0 or {processes})"


def _also(*matchers: str) -> str:
    return ", ".join(filter(None, matchers))


def clock(matchers: str = "") -> str:
    """The SM clock under load."""
    loaded = f"{gpu('gpu_sm_utilization_ratio', matchers)} > {LOADED}"
    return f"({gpu('gpu_clock_hertz', _also(_SM, matchers))} and on ({OF_GPU}) {loaded})"


_SM: Final = 'clock="sm"'


def power(matchers: str = "") -> str:
    return gpu("gpu_power_watts", matchers)


def busy(matchers: str = "") -> str:
    worked, observed = (rate(gpu(f"gpu_{each}_seconds_total", matchers)) for each in ("busy", "observed"))
    return f"clamp_max({worked} / {observed}, 1)"


def below_usual(of: str, matchers: str = "") -> str:
    """By which share a reading of each GPU is now below the usual one of its job and model; negative above it."""

    def recently(metric: str, *more: str, function: str = "avg_over_time") -> str:
        return f"{function}({gpu(metric, _also(*more, matchers))}[$__rate_interval] {NOW})"

    worked, observed = (recently(f"gpu_{each}_seconds_total", function="rate") for each in ("busy", "observed"))
    loaded = f"{recently('gpu_sm_utilization_ratio')} > {LOADED}"
    own = {
        "clock": f"({recently('gpu_clock_hertz', _SM)} and on ({OF_GPU}) {loaded})",
        "power": recently("gpu_power_watts"),
        "busy": f"clamp_max({worked} / {observed}, 1)",
    }[of]
    usual_now = f"max by ({OF_JOB}, name) ({cluster(_USUAL, _of(of))} {NOW})"
    compared = f"{member(matchers)} * on ({OF_GPU}) group_left () {by_gpu(own)}"
    return f"1 - {compared} / on ({OF_JOB}, name) group_left () {usual_now}"


def _of(reading: str) -> str:
    return f'{SCRAPED}, {_OWNERS}, of="{reading}"'


def member(matchers: str = "") -> str:
    """1 for each GPU of the jobs now, with its model."""
    return f"max by ({OF_GPU}, uuid, owner, name) ({gpu(MEMBER, _also(matchers, _OWNERS))} {NOW})"


def slower(matchers: str = "") -> str:
    """By which share each GPU is now slower than usual in its job, or keeps the others waiting, 0-1.

    The largest of: a lower clock, less of its time with a kernel unless the job pauses, and what the others wait for.
    """
    mine = member(matchers)
    waits, of_host = (f"{host(WAITED_FOR, _also(_OWNERS, _SHARES, more))} {NOW}" for more in ("", 'gpu=""'))
    parts = (
        below_usual("clock", matchers),
        f"({below_usual('busy', matchers)}) unless on ({OF_JOB}) ({pausing(JOBS, AT_END)})",
        f"{mine} * on ({OF_GPU}, owner) group_left () max by ({OF_GPU}, owner) ({waits})",
        f"{mine} * on ({TARGET}, owner) group_left () max by ({TARGET}, owner) ({of_host})",
    )
    named = "\nor ".join(f'label_replace({each}, "reading", "{n}", "", "")' for n, each in enumerate(parts))
    return f"clamp_min(max by ({OF_GPU}, uuid) ({named}), 0)"


_SHARES: Final = 'why=~"computing|starving|clock"'
"""The reasons with a value that is a share of time or of the clock."""


def _rank(matchers: str = "") -> str:
    """What GPUs are chosen by; those that are not compared are last."""
    return f"({slower(matchers)}\nor 0 * max by ({OF_GPU}, uuid) {owned(matchers, AT_END)} - 1)"


def slowest_over_time(reading: Callable[[str], str]) -> str:
    """A reading of the slowest GPU while the job had it."""
    return f"{by_gpu(reading(WORST))}\nand on ({OF_GPU}) {owned(WORST)}"


def usual(of: str) -> str:
    """What is usual for a GPU of the job, over time."""
    return f"max by ({OF_JOB}, name) ({cluster(_USUAL, _of(of))})"


def class_now() -> str:
    now = f"max by ({OF_GPU}) ({gpu(GPU_BOTTLENECK.name, SLOWEST)} {NOW})"
    return f"{now}\nand on ({OF_GPU}) {owned(SLOWEST, AT_END)}"


def classes_worst_first() -> str:
    """The class of each of the slowest GPUs, the slowest first."""
    shown = f"max by ({OF_GPU}) ({gpu(GPU_BOTTLENECK.name, SLOWEST)})\nand on ({OF_GPU}) {owned(SLOWEST)}"
    return placed(shown, OF_GPU, f"round({_HIGHEST} - 100000 * {_rank(SLOWEST)})")


_HIGHEST: Final = 899_999


def in_class() -> str:
    """How many GPUs of the jobs are in each class but those in which nothing holds them back."""
    good = "|".join(str(GPU_BOTTLENECK.value_of(name)) for name in ("compute", "idle"))
    counted = cluster("owner_bottleneck:gpu_job:gpus", f'{SCRAPED}, {_OWNERS}, bottleneck!~"{good}"')
    return f"sum by ({OF_JOB}, bottleneck) ({counted})"


def steps() -> str:
    """Steps a second of the slowest rank of each job."""
    return f"min by ({OF_JOB}) ({cluster('owner:gpu_job_steps:slowest', f'{SCRAPED}, {_OWNERS}')})"


def alerts_of_jobs(matchers: str) -> str:
    return cluster("ALERTS", f'{SCRAPED}, instance="", owner!="", alertstate="firing", {matchers}')


def lost_pace() -> str:
    """By which share of its best hour each of the jobs is slower, over time."""
    return f"1 - min by ({OF_JOB}) ({PACE}{JOBS})"


def lost_pace_now() -> str:
    """The same now; nothing if it is not known."""
    return f"1 - min by ({OF_JOB}) ({steady(PACE, JOBS, AT_END)})"


def lost_gpus_now() -> str:
    """GPUs that the jobs lose now, with the number of those that they have as a label."""
    held = f'count_values("held", count({by_gpu(owned(at=AT_END))}))'
    lost = steady(LOST_GPUS, JOBS, AT_END)
    return f"sum(sum by ({OF_JOB}) ({lost}))\n+ on () group_right () 0 * {held}"


def hours_lost() -> str:
    return f"sum(sum_over_time({LOST_GPUS}{JOBS}{OVER})) / {MINUTES_PER_HOUR}"
