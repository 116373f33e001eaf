"""GPU fleet & topology: which jobs and users the GPUs are allocated to."""

from dashboards.board import POD_LABEL, Row
from dashboards.job_measures import LOST_GPUS, OF_JOB, SCRAPED, WAITED_FOR
from dashboards.job_tables import WHY
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import MOST_ROWS, OWNER, TARGET, bottleneck, by_gpu, cluster, gpu, host, only
from dashboards.tables import CLUSTER, GPU, GPU_OR_HOST, HOST, NO_LABEL, Column, ago, owner_columns, table_of
from dashboards.value_mappings import BOTTLENECK
from gpu_triage.cli.fleet.job_pace import PACE

_LABELS = ("workload_namespace", "workload_pod", "slurm_job_id", "user", "account")


def slow_jobs() -> PanelBuilder:
    lose_most = f"topk({MOST_ROWS}, {_alerted('sum', LOST_GPUS)} > 0)"
    waited = f"topk by ({OF_JOB}) (1, max by ({OF_JOB}, instance, gpu, why) ({host(WAITED_FOR)}))"
    began = f"1000 * min by ({OF_JOB}) ({cluster('ALERTS_FOR_STATE', f'{SCRAPED}, {_SLOW}')})"
    pace, waited, began = (only(each, OF_JOB, lose_most) for each in (_alerted("min", PACE), waited, began))
    return table_of(
        "Jobs that lose GPUs",
        "Jobs with an alert that they are slow or hang, the one that loses most first: GPUs times the missing part of "
        "its pace; the host or GPU that its others wait for most, why, and since when the alert's condition holds. "
        "Click a job for what to do. No data: no such alert fires, or the rules do not run.",
        CLUSTER,
        Column("Job", label="owner", min_width=110),
        Column("GPUs lost", expr=lose_most, decimals=1, width=96),
        Column("Pace", expr=pace, unit="percentunit", decimals=0, width=76),
        Column("Waited for", expr=waited, hidden=True),
        HOST,
        GPU_OR_HOST,
        Column("Why", label="why", texts=WHY, width=150),
        ago("Since", expr=began, absent=NO_LABEL, width=110),
        sort="-GPUs lost",
        size=Size(15, 7),
        rows_of="GPUs lost",
    )


def owners() -> Row:
    return Row(
        "GPU owners",
        table_of(
            "GPUs by pod, Slurm job and user",
            "Who was given each GPU, else whose processes are on it, for the namespaces, pods, jobs and users "
            "chosen above, the least busy first. Not busy for hours: ask the owner to free it. No data: nobody has a "
            "GPU, or the exporters do not know who.",
            HOST,
            GPU,
            *owner_columns(*_LABELS),
            Column("Has it", expr=_least_busy(_owners()), hidden=True),
            Column("Bottleneck", expr=_least_busy(_of_owners(bottleneck())), texts=BOTTLENECK),
            Column("Busy, 5 min", expr=_least_busy(_of_owners(_BUSY)), unit="percentunit", decimals=0),
            sort="Busy, 5 min",
            size=Size(24, 9),
        ),
        lines(
            "GPUs by label of pods",
            "GPUs that were given to pods, by the label named above, such as label_team. No data: no GPU is in a "
            "pod, or kube-state-metrics does not publish this label (--metric-labels-allowlist), or is not "
            "scraped with the cluster label of the exporters.",
            Query(_by_pod_label(), "{{pod_label}}"),
            unit="none",
            size=Size(24, 7),
            stacked=True,
        ),
    )


_SLOW = 'instance="", owner!="", alertname=~"GpuJobSlow|GpuJobHung"'


def _alerted(of_servers: str, recorded: str) -> str:
    alerts = cluster("ALERTS", f'{SCRAPED}, {_SLOW}, alertstate="firing"')
    return f"({of_servers} by ({OF_JOB}) ({cluster(recorded, SCRAPED)}) and on ({OF_JOB}) {alerts})"


_BUSY = gpu("instance_gpu:gpu_busy:ratio5m")


def _least_busy(expr: str) -> str:
    """Rows of the least busy GPUs, then of those without a busy share, as many as a table holds."""
    known = f"({by_gpu(_BUSY)} or on ({TARGET}, gpu) -1 * max by ({TARGET}, gpu) ({_owners()}))"
    return only(expr, f"{TARGET}, gpu", f"bottomk({MOST_ROWS}, {known} and on ({TARGET}, gpu) ({_owners()}))")


def _by_pod_label() -> str:
    """Number of GPUs by value of the selected pod label; kube-state-metrics uses the labels pod and namespace."""
    labels = "kube_pod_labels"
    for ours, theirs in (("pod_label", f"${POD_LABEL}"), ("workload_pod", "pod"), ("workload_namespace", "namespace")):
        labels = f'label_replace({labels}, "{ours}", "$1", "{theirs}", "(.+)")'
    pods = "cluster, workload_namespace, workload_pod"
    given = f"max by ({TARGET}, gpu, workload_namespace, workload_pod) ({gpu('gpu_allocated', OWNER)} > 0)"
    labeled = f"{given}\n* on ({pods}) group_left (pod_label)\nmax by ({pods}, pod_label) ({labels})"
    return f"count by (pod_label) (max by ({TARGET}, gpu, pod_label) ({labeled}))"


def _owners() -> str:
    """1 for each owner of a GPU. A user inside a pod is the container's, so it doesn't count as an owner."""
    by = ", ".join(_LABELS[:-1])
    given = f"max by ({TARGET}, gpu, {by}, account) ({gpu('gpu_allocated', OWNER)} > 0)"
    processes = f'label_replace({gpu("gpu_process_owner_info", OWNER)}, "user", "", "workload_pod", ".+")'
    known = f"max by ({TARGET}, gpu, {by}) ({processes})"
    return f"{given}\nor on ({TARGET}, gpu, {by})\n{known}"


def _of_owners(expr: str) -> str:
    """A GPU metric repeated for each of the GPU's owners."""
    return f"{by_gpu(expr)}\n* on ({TARGET}, gpu) group_right ()\n({_owners()})"
