"""GPU detail: processes on the GPU, and its MIG instances."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import Query, Size, lines
from dashboards.selectors import TARGET, gpu, legend, rate, when
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of


def processes() -> Row:
    return Row(
        "Workloads",
        table_of(
            "Processes and pods",
            "Who holds the GPU, with user, container, pod and Slurm job where known. The distance to its CPUs is "
            "that of the nearest, shown if none is near: 10 is the GPU's own node. N/A: the driver or the kernel "
            "does not report it, or it does not apply.",
            HOST,
            GPU_COLUMN,
            *(Column(title, label=label) for label, title in _OWNER.items()),
            Column("Known", expr=f"max by ({TARGET}, gpu, {', '.join(_OWNER)}) ({gpu('gpu_process_info')})"),
            Column("Memory", expr=_of_process("gpu_process_memory_bytes"), unit="bytes"),
            Column("SM use", expr=_of_process("gpu_process_sm_utilization_ratio"), unit="percentunit"),
            Column("Started", expr=when(_of_process("gpu_process_start_timestamp_seconds")), unit="dateTimeFromNow"),
            Column(
                "Hangs since",
                expr=when(_of_process("gpu_process_blocked_since_timestamp_seconds")),
                unit="dateTimeFromNow",
            ),
            Column("CPUs on its node", expr=_of_process("gpu_process_numa_local")),
            Column("Distance to its CPUs", expr=_of_process("gpu_process_numa_distance")),
            Column("Memory on its node", expr=_of_process("gpu_process_numa_memory_local_ratio"), unit="percentunit"),
            size=Size(24, 7),
        ),
        table_of(
            "Allocations",
            "Pods and Slurm jobs that the GPU, or a MIG device of it, is allocated to, whether or not they use it. "
            "0: it is free. No data: allocations are unknown, see docs/jobs.md of the exporter.",
            HOST,
            GPU_COLUMN,
            *(Column(title, label=label) for label, title in _HOLDER.items()),
            Column("Has it", expr=f"max by ({TARGET}, gpu, {', '.join(_HOLDER)}) ({gpu('gpu_allocated')})"),
            size=Size(24, 5),
        ),
        lines(
            "Memory of each process",
            "A process that keeps growing leaks.",
            Query(gpu("gpu_process_memory_bytes"), _PER_PROCESS),
            unit="bytes",
        ),
        lines(
            "SM use of each process",
            "Which of several processes uses the GPU.",
            Query(gpu("gpu_process_sm_utilization_ratio"), _PER_PROCESS),
            unit="percentunit",
        ),
        lines(
            "Number of processes",
            "By type. Mismatched: all CPUs on the wrong NUMA node; unpinned: not bound to a node; left out: more "
            "processes than the exporter lists.",
            Query(gpu("gpu_processes"), legend("{{type}}")),
            Query(gpu("gpu_numa_mismatched_processes"), legend("mismatched")),
            Query(gpu("gpu_numa_unpinned_processes"), legend("unpinned")),
            Query(gpu("gpu_processes_truncated"), legend("left out")),
            unit="short",
        ),
        lines(
            "Threads and CPU limit of its jobs",
            "How many threads run, how many wait in the kernel and in which function, how much of a CPU the "
            "busiest takes, each job's CPU limit, and on how many CPUs the limit stops it. Busiest near 1 while "
            "the GPU waits: the job waits for that one thread. Running and busiest threads are published only "
            "with --metrics.profile full.",
            Query(rate(gpu("gpu_running_thread_seconds_total")), legend("threads running")),
            Query(rate(gpu("gpu_blocked_thread_seconds_total")), legend("threads in {{wait_channel}}")),
            Query(gpu("gpu_busiest_thread_ratio"), legend("busiest thread: {{thread}} of {{pid}}")),
            Query(gpu("gpu_cgroup_cpu_limit_cpus"), legend("CPU limit of {{cgroup}}")),
            Query(rate(gpu("gpu_cgroup_cpu_throttled_seconds_total")), legend("CPUs stopped in {{cgroup}}")),
            unit="short",
            size=Size(24, 7),
        ),
    )


def process_profiles() -> Row:
    """Row for the processes' use of host resources, which are only exposed with ``--metrics.profile full``."""
    return Row(
        "Host use of each process, with --metrics.profile full",
        lines(
            "CPU use of each process",
            "How many CPUs' time it takes, all its threads. At 1 for long: a single thread does all the work.",
            Query(rate(gpu("gpu_process_cpu_seconds_total")), _PER_PROCESS),
            unit="short",
        ),
        lines(
            "Host memory of each process",
            "What it has in RAM. One that keeps growing ends in the OOM killer.",
            Query(gpu("gpu_process_resident_memory_bytes"), _PER_PROCESS),
            unit="bytes",
        ),
        lines(
            "Threads of each process",
            "One that keeps growing leaks threads.",
            Query(gpu("gpu_process_threads"), _PER_PROCESS),
            unit="short",
        ),
        folded=True,
    )


_PER_PROCESS = "{{process}} {{pid}} on {{cluster}} {{instance}} GPU {{gpu}}"

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


_HOLDER = {
    "workload_namespace": "Namespace",
    "workload_pod": "Pod",
    "workload_container": "Pod's container",
    "slurm_job_id": "Slurm job",
    "user": "User",
    "account": "Account",
}


def _of_process(metric: str) -> str:
    return f"max by ({TARGET}, gpu, pid, process) ({gpu(metric)})"


def instances() -> Row:
    of_instance = legend("{{mig_uuid}}")
    return Row(
        "MIG instances",
        table_of(
            "MIG instances now",
            "Instances of the GPU, with profile, memory and activity. No data: it is not split by MIG.",
            HOST,
            GPU_COLUMN,
            Column("Profile", label="profile"),
            Column("GPU instance", label="gi"),
            Column("Compute instance", label="ci"),
            Column("MIG UUID", label="mig_uuid"),
            Column("Known", expr=f"max by ({TARGET}, gpu, mig_uuid, profile, gi, ci) ({gpu('gpu_mig_info')})"),
            Column("Memory used", expr=_of_instance("gpu_mig_memory_used_bytes"), unit="bytes"),
            Column("Memory", expr=_of_instance("gpu_mig_memory_total_bytes"), unit="bytes"),
            Column("SM active", expr=_of_instance("gpu_mig_sm_active_ratio"), unit="percentunit"),
            Column("Tensor", expr=_of_instance("gpu_mig_tensor_active_ratio"), unit="percentunit"),
            Column("Memory active", expr=_of_instance("gpu_mig_dram_active_ratio"), unit="percentunit"),
            size=Size(16, 7),
        ),
        lines(
            "SM activity of each instance",
            "Share of the instance's own SMs with work. One idle and another full: choose other profiles, or move "
            "a job.",
            Query(gpu("gpu_mig_sm_active_ratio"), of_instance),
            unit="percentunit",
            top=1,
        ),
    )


def _of_instance(metric: str) -> str:
    return f"max by ({TARGET}, gpu, mig_uuid) ({gpu(metric)})"
