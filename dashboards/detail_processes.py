"""GPU detail: processes on the GPU, and its MIG instances."""

from dashboards.board import Row
from dashboards.palette import PLAIN
from dashboards.panels import Query, Size, lines
from dashboards.selectors import TARGET, by_gpu, gpu, legend, when
from dashboards.tables import Column, ago, owner_columns, table_of
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_WAITS_FOR


def processes() -> Row:
    return Row(
        "Workloads",
        table_of(
            "Processes and pods",
            "Who holds the GPU, with user, container, pod and Slurm job where known. The distance to its CPUs is "
            "that of the nearest, shown if none is near: 10 is the GPU's own node. N/A: the driver or the kernel "
            "does not report it, or it does not apply. No data: no process, or the exporter cannot see processes.",
            Column("Process", label="process"),
            Column("PID", label="pid"),
            *owner_columns("user"),
            Column("Container", label="container_id"),
            Column("Pod UID", label="pod_uid"),
            *owner_columns(*_HOLDER[:4]),
            Column("Known", expr=f"max by ({TARGET}, gpu, {_OWNER}) ({gpu('gpu_process_info')})", hidden=True),
            Column("Memory", expr=_of_process("gpu_process_memory_bytes"), unit="bytes"),
            Column("SM use", expr=_of_process("gpu_process_sm_utilization_ratio"), unit="percentunit", decimals=0),
            ago("Started", expr=when(_of_process("gpu_process_start_timestamp_seconds"))),
            ago("Hangs since", expr=when(_of_process("gpu_process_blocked_since_timestamp_seconds"))),
            Column("Waits for", expr=_of_process("gpu_process_waits_for"), texts=_WAITS_FOR),
            Column("CPUs on its node", expr=_of_process("gpu_process_numa_local")),
            Column("Distance to its CPUs", expr=_of_process("gpu_process_numa_distance")),
            Column("Memory on its node", expr=_of_process("gpu_process_numa_memory_local_ratio"), unit="percentunit"),
            size=Size(24, 7),
        ),
        table_of(
            "Allocations",
            "Pods and Slurm jobs that the GPU, or a MIG device of it, is allocated to, whether or not they use it. No "
            "data: allocations are unknown; docs/jobs.md of the exporter says how they become known.",
            *owner_columns(*_HOLDER),
            Column(
                "State",
                expr=f"max by ({TARGET}, gpu, {', '.join(_HOLDER)}) ({gpu('gpu_allocated')})",
                texts=((0, "free", PLAIN), (1, "allocated", PLAIN)),
            ),
            size=Size(24, 5),
        ),
        lines(
            "Memory of each process",
            "A process that keeps growing leaks. No data: no process, or the exporter cannot see processes.",
            Query(gpu("gpu_process_memory_bytes"), legend("{{process}} {{pid}}")),
            unit="bytes",
            size=Size(12, 7),
        ),
        lines(
            "Number of processes",
            "By type. Mismatched: all CPUs on the wrong NUMA node; unpinned: not bound to a node; left out: more "
            "processes than the exporter lists. No data: the exporter cannot see processes.",
            Query(gpu("gpu_processes"), legend("{{type}}")),
            Query(gpu("gpu_numa_mismatched_processes"), legend("mismatched")),
            Query(gpu("gpu_numa_unpinned_processes"), legend("unpinned")),
            Query(gpu("gpu_processes_truncated"), legend("left out")),
            unit="short",
            size=Size(12, 7),
        ),
        folded=True,
    )


_WAITS_FOR = tuple((state, word, PLAIN) for state, word in GPU_PROCESS_WAITS_FOR.states.items())


_OWNER = "process, pid, user, container_id, pod_uid, workload_namespace, workload_pod, workload_container, slurm_job_id"
_HOLDER = ("workload_namespace", "workload_pod", "workload_container", "slurm_job_id", "user", "account")


def _of_process(metric: str) -> str:
    return f"max by ({TARGET}, gpu, pid, process) ({gpu(metric)})"


def instances() -> Row:
    return Row(
        "MIG instances",
        table_of(
            "MIG instances now",
            "Instances of the GPU, with profile, memory and activity. SM active: share of the instance's own SMs with "
            "work; one idle and another full: choose other profiles, or move a job. No data: it is not split by MIG.",
            Column("Profile", label="profile"),
            Column("GPU instance", label="gi"),
            Column("Compute instance", label="ci"),
            Column("MIG UUID", label="mig_uuid"),
            Column("Known", expr=by_gpu(gpu("gpu_mig_info"), "mig_uuid", "profile", "gi", "ci"), hidden=True),
            Column("Memory used", expr=_of_instance("gpu_mig_memory_used_bytes"), unit="bytes"),
            Column("Memory", expr=_of_instance("gpu_mig_memory_total_bytes"), unit="bytes"),
            Column("SM active", expr=_of_instance("gpu_mig_sm_active_ratio"), unit="percentunit"),
            Column("Tensor", expr=_of_instance("gpu_mig_tensor_active_ratio"), unit="percentunit"),
            Column("Memory active", expr=_of_instance("gpu_mig_dram_active_ratio"), unit="percentunit"),
            size=Size(24, 7),
        ),
        folded=True,
    )


def _of_instance(metric: str) -> str:
    return f"max by ({TARGET}, gpu, mig_uuid) ({gpu(metric)})"
