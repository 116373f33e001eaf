"""Job: the owners of its GPUs, and what was found on them while it ran."""

from dashboards.job_measures import OVER, STEP_SECONDS
from dashboards.owners import METRICS, owned
from dashboards.panels import PanelBuilder, Size
from dashboards.selectors import OWNER, TARGET, gpu, host
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import CLUSTER, GPU_OR_HOST, NARROW_HOST, Column, table_of
from dashboards.value_mappings import FINDING, SEVERITY, by_severity
from gpu_triage.read.exporter.judgment import GPU_FINDING, GPU_HOST_FINDING

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
        GPU_OR_HOST,
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
    seen = f"(({_owners()}) * 0 + time())"
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
        Column("GPUs", expr=f"count by (cluster, {_OWNER}, command) (count_over_time(({_owners()}){OVER}))", width=60),
        Column("From", expr=f"1000 * {_of_all('min', seen)}", unit="dateTimeAsLocal"),
        Column("Until", expr=f"1000 * {_of_all('max', seen)}", unit="dateTimeAsLocal"),
        Column("As text", label="command", min_width=190),
        sort="-GPUs",
        size=size,
    )


def _of_all(choice: str, expr: str) -> str:
    return f"{choice} by (cluster, {_OWNER}, command) ({choice}_over_time({expr}{OVER}))"


def _owners() -> str:
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
