"""Job: why it is slow in one line, the owners of its GPUs, and what was found on them while it ran."""

from collections.abc import Callable
from functools import partial
from typing import Final

from dashboards.job_measures import JOBS, NOW, OF_GPU, OF_JOB, OVER, WHILE_IT_RAN, lost_pace_now, member
from dashboards.owners import METRICS, OWNER_LABELS
from dashboards.palette import BAD, PLAIN, WATCH
from dashboards.panels import PanelBuilder, Size, limits
from dashboards.selectors import MOST_ROWS, OWNER, TARGET, gpu, host
from dashboards.steps import RUNBOOKS_URL, of_alert
from dashboards.tables import CHOSEN_HOST, CLUSTER, GPU_OR_HOST, HOST, Column, table_of
from dashboards.value_mappings import FINDING, SEVERITY, by_severity
from gpu_triage.cli.fleet.job_pace import PLACE, WAITED_FOR, lost_while_waiting, waiting_since
from gpu_triage.cli.job.advice import PACE_SHARE
from gpu_triage.judge.findings.table import Action
from gpu_triage.read.exporter.judgment import GPU_FINDING, GPU_HOST_FINDING

SLOW: Final = limits((1 - of_alert("GpuJobSlow", "share"), WATCH), (PACE_SHARE, BAD))
"""Colors of a job that is slower than its best hour."""
WHY: Final = (
    ("computing", "computes for longer", PLAIN),
    ("starving", "waits for its host", PLAIN),
    ("clock", "low SM clock", PLAIN),
    ("network", "network fails", PLAIN),
)
_CHOSEN_OWNER: Final = "&".join(f"${{{name}:queryparam}}" for name in OWNER_LABELS)
DIAGNOSIS: Final = (
    "Diagnose this host",
    f"/d/gpu-triage-diagnosis?{CHOSEN_HOST}&{_CHOSEN_OWNER}&${{__url_time_range}}",
)
_RUNBOOK: Final = ("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}")
_LOOK, _NOTHING = "look", "nothing"
_DO_FIRST: Final = (
    (Action.DRAIN.value, "take it out of use", PLAIN),
    (Action.RESET.value, "reset the GPU", PLAIN),
    (Action.INSPECT_HARDWARE.value, "inspect the hardware", PLAIN),
    (Action.FIX_HOST.value, "repair the host", PLAIN),
    (Action.FIX_JOB.value, "change the job", PLAIN),
    (Action.NONE.value, "nothing", PLAIN),
    (_LOOK, "look at what runs there (py-spy dump)", PLAIN),
    (_NOTHING, "nothing: profile the job", PLAIN),
)


def why_slow(size: Size) -> PanelBuilder:
    """One line for each job: what the command answers, by the same queries of what rules record."""
    lost = f"0 * {_row()} + on ({OF_JOB}) group_left () ({lost_pace_now()})"
    return table_of(
        "Why it is slow, and what to do first",
        "A line for each job that is chosen, the slowest first: by how much it is slower than in its best hour, now or "
        "at its end; the GPU or host that all others wait for, or else that of the worst finding; since when, and what "
        "to do first. Click a finding for its runbook. A checkpoint does not make a job slow. N/A: not known, in its "
        "first half hour or while its work changes. No data: no owner is chosen, the rules do not run, or there is no "
        "scheduler.",
        Column("Job", label="about", min_width=120),
        Column("Row", expr=_named(f"0 * {_row()}"), hidden=True),
        Column("Slower", expr=_named(lost), unit="percentunit", decimals=0, steps=SLOW, width=80),
        Column("Host", label="instance", link=DIAGNOSIS, min_width=HOST.min_width),
        GPU_OR_HOST,
        Column("Why", label="why", texts=WHY, width=150),
        Column("Finding", label="code", link=_RUNBOOK, width=240),
        Column("Since", expr=_named(f"1000 * ({_row()} > 0)"), unit="dateTimeAsLocal", width=190, absent="-"),
        Column("Do first", label="action", texts=_DO_FIRST, min_width=200),
        sort="-Slower",
        size=size,
    )


def _named(expr: str) -> str:
    plain = f'label_replace({expr}, "about", "jobs of $1", "owner", "/(.+)")'
    pods = f'label_replace({plain}, "about", "$1", "owner", "([^/]+/.+)")'
    return f'label_replace({pods}, "about", "Slurm job $1", "owner", "(.+)/")'


def _row() -> str:
    """One series for each job, labeled with what it waits for and the finding about that; else with the worst one.

    The value is since when, in Unix seconds. As the command chooses: what is waited for now, and longest. Findings that
    have lasted come before pending ones, and those that are no more than information last.
    """
    longest = f"{lost_while_waiting(JOBS, WHILE_IT_RAN)} > 0"
    now = f"last_over_time({WAITED_FOR}{JOBS}[5m] {NOW})"
    waited = f"topk by ({OF_JOB}) (1, {longest} and on ({PLACE}) {now} or on ({OF_JOB}) {longest})"
    since = f"{waiting_since(JOBS, WHILE_IT_RAN)} and on ({PLACE}) {waited}"
    culprit = f"max by ({OF_JOB}, instance, gpu, why) ({since})"
    gpus, hosts = (_weighed(partial(of, name)) for of, name in _FINDINGS)
    # Of each GPU, and of each host with its GPUs, which is not more than that of one of them.
    found = (
        f"(topk by ({OF_GPU}) (1, max by ({OF_GPU}, code, action) ({gpus}))\n"
        f"or topk by ({TARGET}) (1, max by ({TARGET}, code, action) ({gpus}\nor {hosts})) - 0.5)"
    )
    owners = " or ".join(f"topk by ({by}) (1, max by ({by}, owner) ({member()}))" for by in (OF_GPU, TARGET))
    worst = f"topk by ({OF_JOB}) (1, {found} * on ({OF_GPU}) group_left (owner) ({owners}) > {_SERIOUS})"
    began = f"(0 * {worst} + on ({TARGET}, code) group_left () {_first()})"
    jobs = f"0 * group by ({OF_JOB}) (owner_bottleneck:gpu_job:gpus{JOBS} {NOW})"
    return (
        f"({culprit} * on ({OF_GPU}) group_left (code, action) ({found} ^ 0)\n"
        f'or on ({OF_JOB}) label_replace({culprit}, "action", "{_LOOK}", "", "")\n'
        f'or on ({OF_JOB}) {began}\nor on ({OF_JOB}) label_replace({jobs}, "action", "{_NOTHING}", "", ""))'
    )


def _first() -> str:
    """When each finding was first seen on each host."""
    seen = "\nor ".join(_began(of(name, "")) for of, name in _FINDINGS)
    return f"min by ({TARGET}, code) ({seen})"


_SERIOUS: Final = 100


def _weighed(of: Callable[[str], str]) -> str:
    """Findings of the job's time, the larger the sooner to act on; `of` selects them by a matcher."""
    weights = {"critical": _SERIOUS + 3, "warning": _SERIOUS + 2, "info": 1}
    states = {_states(of(_SEVERITY_IS.format(name))): weight for name, weight in weights.items()}
    return "\nor ".join(f"(10 * ({state} > 0) + {weight})" for state, weight in states.items())


_SEVERITY_IS: Final = 'severity="{}"'
_BY: Final = f"{TARGET}, gpu, code, action"
_OWNER: Final = "slurm_job_id, workload_namespace, workload_pod, user"


def findings_while_it_ran(size: Size) -> PanelBuilder:
    """Findings on the job's GPUs and hosts, with the time for which they were there."""
    severity = _found("min", lambda of: by_severity(lambda matcher: f"({_states(of(matcher))} > 0) ^ 0"))
    severity = f"bottomk({MOST_ROWS}, {severity})"
    state = _found("max", lambda of: f"{_states(of(''))} > 0")
    lasted = _found("max", lambda of: f"60 * count_over_time(({of('')} > 0){WHILE_IT_RAN})")
    return table_of(
        "Findings while it ran",
        "What the exporters found on the job's GPUs and hosts while it ran, the most severe first; what began first is "
        "often the cause of the rest. Rows without a GPU are about the host. No data: no finding, or no owner is "
        "chosen.",
        Column("Severity", expr=severity, texts=SEVERITY[:3], width=96),
        Column("Finding", label="code", link=_RUNBOOK, width=240),
        HOST,
        GPU_OR_HOST,
        Column("Action", label="action", width=144),
        Column("State", expr=state, texts=FINDING, width=100),
        Column(
            "From", expr=_found("min", lambda of: f"1000 * {_began(of(''))}"), unit="dateTimeAsLocal", min_width=150
        ),
        Column("For", expr=lasted, unit="s", decimals=0, width=90),
        sort=("Severity", "From"),
        size=size,
        rows_of="Severity",
    )


def _states(selected: str) -> str:
    """The most advanced state of each finding."""
    return f"max_over_time({selected}[${{lasted}}s] {NOW})"


def _began(selected: str) -> str:
    """Unix seconds at which each finding was first seen."""
    return f"min_over_time((({selected} > 0) * 0 + time()){WHILE_IT_RAN})"


def _found(choice: str, value: Callable[[Callable[[str], str]], str]) -> str:
    """A value of the findings on GPUs that the chosen owner had, and on its hosts; it is made of their selector."""
    had = " or ".join(f"last_over_time({gpu(metric, OWNER)}[$__range] @ end())" for metric in METRICS)
    of_gpus, of_hosts = (value(partial(of, name)) for of, name in _FINDINGS)
    return f"{choice} by ({_BY}) (({of_gpus})\nand on ({OF_GPU}) ({had})\nor {of_hosts})"


_FINDINGS: Final = ((gpu, GPU_FINDING.name), (host, GPU_HOST_FINDING.name))


def whose_gpus(size: Size) -> PanelBuilder:
    first, last = (f"1000 * {each}_over_time(({_owners()} * 0 + time()){OVER})" for each in ("min", "max"))
    return table_of(
        "Whose GPUs, and the same as text",
        "Who had GPUs in the time range, of what is chosen above: how many at most, from when and until when. The "
        "command says in words what the job waits for and what to do first; add --prometheus. No data: choose a Slurm "
        "job, namespace, pod or user above.",
        CLUSTER,
        Column("Slurm job", label="slurm_job_id", width=86),
        Column("Namespace", label="workload_namespace"),
        Column("Pod", label="workload_pod"),
        Column("User", label="user", width=74),
        Column("GPUs", expr=_with_command(f"max_over_time({_owners()}{OVER})"), width=60),
        Column("From", expr=_with_command(first), unit="dateTimeAsLocal"),
        Column("Until", expr=_with_command(last), unit="dateTimeAsLocal"),
        Column("As text", label="command", min_width=190),
        sort="-GPUs",
        size=size,
    )


def _owners() -> str:
    """The number of GPUs of each owner. The scheduler's name of a user is better than the number that a process has."""
    given, processes = (f"count by (cluster, {_OWNER}) ({gpu(metric, OWNER)} > 0)" for metric in METRICS)
    # A user inside a pod is the container's.
    outside = f'sum by (cluster, {_OWNER}) (label_replace({processes}, "user", "", "workload_pod", ".+"))'
    return f"({given} or on (cluster, slurm_job_id, workload_namespace, workload_pod) {outside})"


def _with_command(owners: str) -> str:
    """With the command about each owner."""
    named = f'label_replace({owners}, "command", "gpu-triage job $1", "user", "(.+)")'
    named = f'label_replace({named}, "command", "gpu-triage job $1", "slurm_job_id", "(.+)")'
    pods = f'label_join({named}, "pod", "/", "workload_namespace", "workload_pod")'
    return f'label_replace({pods}, "command", "gpu-triage job $1", "pod", "(.+/.+)")'
