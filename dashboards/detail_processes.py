"""GPU detail: who uses the GPU, and its MIG instances."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import Query, Size, lines
from dashboards.selectors import gpu, legend
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of


def processes() -> Row:
    """Processes and pods on it."""
    per_process = "{{process}} {{pid}} on {{instance}} GPU {{gpu}}"
    return Row(
        "Who uses it",
        (
            table_of(
                "Processes and pods",
                "Who holds the GPU, with user, container, pod and Slurm job where known. N/A: the driver does not "
                "report it.",
                (
                    HOST,
                    GPU_COLUMN,
                    *(Column(title, label=label) for label, title in _OWNER.items()),
                    Column(
                        "Known", expr=f"max by (job, instance, gpu, {', '.join(_OWNER)}) ({gpu('gpu_process_info')})"
                    ),
                    Column("Memory", expr=_of_process("gpu_process_memory_bytes"), unit="bytes"),
                    Column("SM use", expr=_of_process("gpu_process_sm_utilization_ratio"), unit="percentunit"),
                    Column("CPUs on its node", expr=_of_process("gpu_process_numa_local")),
                    Column(
                        "Memory on its node",
                        expr=_of_process("gpu_process_numa_memory_local_ratio"),
                        unit="percentunit",
                    ),
                ),
                size=Size(24, 7),
            ),
            lines(
                "Memory of each process",
                "A process that keeps growing leaks.",
                [Query(gpu("gpu_process_memory_bytes"), per_process)],
                unit="bytes",
            ),
            lines(
                "SM use of each process",
                "Which of several processes uses the GPU.",
                [Query(gpu("gpu_process_sm_utilization_ratio"), per_process)],
                unit="percentunit",
            ),
            lines(
                "Number of processes",
                "By type. Mismatched: all CPUs on the wrong NUMA node; unpinned: not bound to a node; left out: more "
                "processes than the exporter lists.",
                [
                    Query(gpu("gpu_processes"), legend("{{type}}")),
                    Query(gpu("gpu_numa_mismatched_processes"), legend("mismatched")),
                    Query(gpu("gpu_numa_unpinned_processes"), legend("unpinned")),
                    Query(gpu("gpu_processes_truncated"), legend("left out")),
                ],
                unit="short",
            ),
        ),
    )


_OWNER = {
    "process": "Process",
    "pid": "PID",
    "user": "User",
    "container_id": "Container",
    "pod_uid": "Pod UID",
    "workload_namespace": "Namespace",
    "workload_pod": "Pod",
    "workload_container": "Pod's container",
    "slurm_job_id": "Slurm job",
}


def _of_process(metric: str) -> str:
    return f"max by (job, instance, gpu, pid, process) ({gpu(metric)})"


def instances() -> Row:
    """Its MIG instances."""
    of_instance = legend("{{mig_uuid}}")
    return Row(
        "MIG instances",
        (
            table_of(
                "MIG instances now",
                "Instances of the GPU, with profile, memory and activity. No data: it is not split by MIG.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Profile", label="profile"),
                    Column("GPU instance", label="gi"),
                    Column("Compute instance", label="ci"),
                    Column("MIG UUID", label="mig_uuid"),
                    Column(
                        "Known", expr=f"max by (job, instance, gpu, mig_uuid, profile, gi, ci) ({gpu('gpu_mig_info')})"
                    ),
                    Column("Memory used", expr=_of_instance("gpu_mig_memory_used_bytes"), unit="bytes"),
                    Column("Memory", expr=_of_instance("gpu_mig_memory_total_bytes"), unit="bytes"),
                    Column("SM active", expr=_of_instance("gpu_mig_sm_active_ratio"), unit="percentunit"),
                    Column("Tensor", expr=_of_instance("gpu_mig_tensor_active_ratio"), unit="percentunit"),
                    Column("Memory active", expr=_of_instance("gpu_mig_dram_active_ratio"), unit="percentunit"),
                ),
                size=Size(16, 7),
            ),
            lines(
                "SM activity of each instance",
                "Share of the instance's own SMs with work. One idle and another full: choose other profiles, or move "
                "a job.",
                [Query(gpu("gpu_mig_sm_active_ratio"), of_instance)],
                unit="percentunit",
                top=1,
            ),
        ),
    )


def _of_instance(metric: str) -> str:
    return f"max by (job, instance, gpu, mig_uuid) ({gpu(metric)})"
