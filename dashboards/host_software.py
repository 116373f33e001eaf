"""Panels about processes and the kernel log of hosts: those of the diagnosis, and the rest for GPU host."""

from dashboards.board import Row
from dashboards.palette import WATCH
from dashboards.panels import PanelBuilder, Query, Size, lines, shares
from dashboards.selectors import MOST_ROWS, TARGET, age, gpu, host, host_legend, legend, most, rate, risen, when, worst
from dashboards.steps import of_finding
from dashboards.tables import HOST, Column, ago, table_of

_CGROUP = host_legend("GPU {{gpu}} {{cgroup}}")
_PER_PROCESS = host_legend("GPU {{gpu}} {{process}} {{pid}}")
_FULL_PROFILE = "No data: published only with --metrics.profile full, or no process is seen."


def kernel() -> Row:
    return Row(
        "Kernel log and blocked processes",
        kernel_log(Size(16, 7)),
        lines(
            "Kernel log events in 5 minutes",
            "By kind. One incident can be several messages. No data: the kernel log is clean, or cannot be read.",
            Query(most(f"increase({host('gpu_host_kernel_events_total')}[5m])"), host_legend("{{kind}}")),
            unit="short",
            size=Size(8, 7),
        ),
        blocked_processes(),
        lines(
            "Threads of jobs that wait in the kernel",
            "How many threads of each GPU's job wait in state D, by kernel function: ptlrpc is Lustre, cxi GPFS, "
            "ceph CephFS, request_wait_answer FUSE, rpc NFS, and folio_wait any file system. No data: no thread waits, "
            "or none is seen.",
            Query(worst(rate(gpu("gpu_blocked_thread_seconds_total"))), legend("{{wait_channel}}")),
            unit="short",
        ),
        table_of(
            "Xids of unlisted GPUs",
            "Xids of a PCI address that the driver does not list, often a GPU that fell off the bus. No data: no such "
            "Xid in the kernel log, or it is not read.",
            HOST,
            Column("PCI address", label="pci_bus_id"),
            Column("Xid", label="xid", width=60),
            ago("When", expr=when(_unassigned())),
            sort="-When",
            size=Size(8, 7),
        ),
        folded=True,
    )


def jobs() -> Row:
    throttled = rate(host("gpu_cgroup_cpu_throttled_periods_total"))
    periods = f"({rate(host('gpu_cgroup_cpu_periods_total'))} > 0)"
    return Row(
        "Jobs and processes",
        shares(
            "Jobs stopped by their own CPU limit",
            "Share of the periods in which the CPU limit of a job's cgroup stopped it. Above a quarter while its "
            "GPU waits: raise the limit. The host has CPUs left. No data: no job has a limit.",
            Query(most(f"{throttled} / {periods}"), _CGROUP),
            line_at=(of_finding("cpu.limited", "share"), WATCH),
        ),
        lines(
            "Jobs at their own memory limit",
            "How often in five minutes a job's cgroup came to its memory limits. It matters if the job stalls, and "
            "oom_kill always does. No data: no job has a cgroup that counts.",
            Query(most(risen(host("gpu_cgroup_memory_events_total"), "5m")), f"{_CGROUP} {{{{event}}}}"),
            unit="short",
        ),
        shares(
            "Pressure on each job",
            "Share of time in which tasks of a job were stalled on a resource. " + _FULL_PROFILE,
            Query(most(rate(gpu("gpu_cgroup_pressure_seconds_total"))), f"{_CGROUP} {{{{resource}}}} {{{{kind}}}}"),
        ),
        lines(
            "Threads and CPU limit of jobs",
            "How many threads run, how much of a CPU the busiest takes, each job's CPU limit, and on how many CPUs "
            "the limit stops it. Busiest near 1 while the GPU waits: the job waits for that one thread. Running and "
            "busiest threads are published only with --metrics.profile full. No data: no job has a limit or that "
            "profile.",
            Query(worst(rate(gpu("gpu_running_thread_seconds_total"))), legend("threads running")),
            Query(worst(gpu("gpu_busiest_thread_ratio")), legend("busiest thread: {{thread}} of {{pid}}")),
            Query(worst(gpu("gpu_cgroup_cpu_limit_cpus")), legend("CPU limit of {{cgroup}}"), limit=True),
            Query(worst(rate(gpu("gpu_cgroup_cpu_throttled_seconds_total"))), legend("CPUs stopped in {{cgroup}}")),
            unit="short",
        ),
        lines(
            "Compute processes on each GPU",
            "Usually the same for all GPUs of a job. A drop to 0 means that the process ended, on purpose or not. "
            "No data: the driver lists no processes to a container without the host's PID namespace.",
            worst(f"sum by ({TARGET}, gpu) ({gpu('gpu_processes', _COMPUTE)})"),
            unit="short",
        ),
        lines(
            "Processes on the wrong NUMA node",
            "Compute processes that may only run on CPUs of another node than their GPU's: every transfer crosses "
            "sockets. Pin them with numactl or the scheduler's CPU binding. No data: no process is seen, or the host "
            "has one node.",
            worst(gpu("gpu_numa_mismatched_processes")),
            unit="short",
        ),
        lines(
            "CPU use of each process",
            "How many CPUs' time it takes, all its threads. At 1 for long: a single thread does all the work. "
            f"{_FULL_PROFILE}",
            Query(most(rate(gpu("gpu_process_cpu_seconds_total"))), _PER_PROCESS),
            unit="short",
        ),
        lines(
            "Host memory of each process",
            f"What it has in RAM. One that keeps growing ends in the OOM killer. {_FULL_PROFILE}",
            Query(most(gpu("gpu_process_resident_memory_bytes")), _PER_PROCESS),
            unit="bytes",
        ),
        lines(
            "Threads of each process",
            f"One that keeps growing leaks threads. {_FULL_PROFILE}",
            Query(most(gpu("gpu_process_threads")), _PER_PROCESS),
            unit="short",
        ),
        folded=True,
    )


def kernel_log(size: Size) -> PanelBuilder:
    last = f"max by ({TARGET}, kind, subject) ({host('gpu_host_kernel_event_last_timestamp_seconds')})"
    return table_of(
        "Kernel log events",
        "Trouble that the kernel log tells of, within a day: killed and hung processes, storage that does not "
        "answer, hardware errors. The subject is what the message names. docs/kernel-events.md explains the "
        "kinds. No data: the kernel log is clean, or cannot be read.",
        HOST,
        Column("Kind", label="kind"),
        Column("Subject", label="subject"),
        ago("Last", expr=when(f"topk({MOST_ROWS}, {last})")),
        sort="-Last",
        size=size,
    )


def blocked_processes() -> PanelBuilder:
    since = gpu("gpu_process_blocked_since_timestamp_seconds")
    waiting = f"min by ({TARGET}, gpu, pid, process, wait_channel) ({since})"
    return lines(
        "Processes blocked in the kernel",
        "For how long a thread of the process has waited in the kernel without running once. It cannot be "
        "killed meanwhile. No data: no process is blocked, or none is seen.",
        Query(worst(age(waiting)), host_legend("GPU {{gpu}} {{process}} ({{pid}}) {{wait_channel}}")),
        unit="s",
        line_at=(of_finding("work.blocked", "stuck"), WATCH),
    )


_COMPUTE = 'type=~"compute|mps"'


def _unassigned() -> str:
    last = host("gpu_xid_unassigned_last_timestamp_seconds")
    return f"topk({MOST_ROWS}, max by ({TARGET}, pci_bus_id, xid) ({last}))"
