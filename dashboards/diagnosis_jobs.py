"""What limits the jobs on GPUs: their cgroup limits, and what their threads wait for."""

from __future__ import annotations

from dashboards.palette import WATCH
from dashboards.panels import PanelBuilder, Query, lines
from dashboards.selectors import gpu, host, host_legend, legend, rate, worst

_CGROUP = host_legend("GPU {{gpu}} {{cgroup}}")
_THROTTLED = rate(host("gpu_cgroup_cpu_throttled_periods_total"))
_PERIODS = f"({rate(host('gpu_cgroup_cpu_periods_total'))} > 0)"


def job_panels() -> tuple[PanelBuilder, ...]:
    return (
        lines(
            "Threads of jobs that wait in the kernel",
            "How many threads of each GPU's job wait in state D, by kernel function: ptlrpc is Lustre, cxi GPFS, "
            "ceph CephFS, request_wait_answer FUSE, rpc NFS, and folio_wait any file system. No data: none does.",
            Query(worst(rate(gpu("gpu_blocked_thread_seconds_total"))), legend("{{wait_channel}}")),
            unit="short",
        ),
        lines(
            "Jobs stopped by their own CPU limit",
            "Share of the periods in which the CPU limit of a job's cgroup stopped it. Above a quarter while its "
            "GPU waits: raise the limit. The host has CPUs left. No data: no job has a limit.",
            Query(f"{_THROTTLED} / {_PERIODS}", _CGROUP),
            unit="percentunit",
            top=1,
            line_at=(0.25, WATCH),
        ),
        lines(
            "Jobs at their own memory limit",
            "How often in five minutes a job's cgroup came to its memory limits. It matters if the job stalls, and "
            "oom_kill always does. No data: none did.",
            Query(f"increase({host('gpu_cgroup_memory_events_total')}[5m]) > 0", f"{_CGROUP} {{{{event}}}}"),
            unit="short",
        ),
    )
