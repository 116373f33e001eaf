"""Steps 4 to 6 of the diagnosis: is it starved, is software in the way, and if neither, what can be tuned?"""

from collections.abc import Callable
from typing import Final

from dashboards.board import Row
from dashboards.host_resources import busiest_cpus, disk_busy, network_utilization, pressure
from dashboards.host_software import blocked_processes, kernel_log
from dashboards.palette import GOOD, GRAY, WATCH
from dashboards.panels import Query, Size, lines, shares, timeline
from dashboards.selectors import (
    MOST_ROWS,
    TARGET,
    bottleneck,
    bottleneck_in,
    by_gpu,
    gpu,
    host,
    legend,
    only,
    worst,
    worst_first,
)
from dashboards.steps import SOFTWARE, STARVED, TUNE, of_finding
from dashboards.tables import GPU, HOST, Column, owner_columns, table_of
from dashboards.value_mappings import BOTTLENECK, BOUND, Texts
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND

_WAITING: Final[Texts] = ((0, "not waiting", GRAY), *BOTTLENECK)
HALF = Size(12, 8)


def starved() -> Row:
    return Row(
        STARVED.row,
        timeline(
            STARVED.key_panel,
            "Which resource of the host each GPU waits for: a job holds the GPU and gets less than 0.7 of it, "
            "while that resource is scarce. The other panels of this row, and the dashboard GPU host, explain nothing "
            "unless a GPU waits. No data: no GPU is judged.",
            worst_first(by_gpu(f"{bottleneck_in(STARVED.classes)} or 0 * {bottleneck()}")),
            texts=_WAITING,
            size=HALF,
        ),
        disk_busy(HALF),
        pressure(),
        busiest_cpus(),
        network_utilization(),
        folded=True,
    )


def software() -> Row:
    return Row(
        SOFTWARE.row,
        table_of(
            SOFTWARE.key_panel,
            "Who is on each GPU. Two processes on one GPU and none on its neighbor: a wrong CUDA_VISIBLE_DEVICES. "
            "Memory held and no use for a long time: a hang, or a process left behind. No data: no process, or the "
            "exporter cannot see processes.",
            HOST,
            GPU,
            Column("Process", label="process"),
            Column("PID", label="pid", width=90),
            *owner_columns("user", "workload_namespace", "workload_pod", "slurm_job_id"),
            Column("Memory", expr=_largest(_with_owner("gpu_process_memory_bytes")), unit="bytes", width=90),
            Column(
                "SM use",
                expr=_largest(_with_owner("gpu_process_sm_utilization_ratio")),
                unit="percentunit",
                decimals=0,
                width=80,
            ),
            sort="-Memory",
            size=Size(16, 8),
        ),
        timeline(
            "GPUs idle while allocated",
            "Allocated, and used for less than 5 % of 5 minutes. For hours: free it, or find out what the job "
            "waits for. No data: the rules do not run, or nothing tells who has a GPU.",
            worst_first(gpu("instance_gpu:gpu_allocated_idle:active")),
            texts=((0, "no", GOOD), (1, "idle", WATCH)),
            size=Size(8, 8),
        ),
        lines(
            "SM clock of busy GPUs, against the median of their model",
            "Below 0.9: this GPU is slower than its peers and every synchronous step waits for it. See step 2 for "
            "what holds it back. No data: no GPU is busy.",
            worst(
                f"{_busy_clock(gpu)}\n/ on ({TARGET}, name) group_left ()\n"
                f"quantile by ({TARGET}, name) (0.5, {_busy_clock(host)})"
            ),
            unit="percentunit",
            floor=None,
            line_at=(1 - of_finding("clock.straggler", "drop"), WATCH),
            low_is_worse=True,
        ),
        kernel_log(Size(16, 7)),
        blocked_processes(),
        folded=True,
    )


def tune() -> Row:
    return Row(
        TUNE.row,
        shares(
            TUNE.key_panel,
            "Share of SMs with work, from GPM on Hopper and later. A busy GPU with little here runs small kernels "
            "or waits at barriers: use larger batches, fuse kernels, or look at the collectives. No data: these GPUs "
            "do not report it, or the driver has no GPM.",
            worst(gpu("gpu_sm_active_ratio")),
        ),
        shares(
            "Tensor core and memory activity",
            "Tensor cores low while SMs are active: mixed precision is off, or the shapes do not suit them. Memory "
            "above half, of about 0.8 that can be reached: memory bandwidth limits the job. Moving fewer bytes per "
            "step helps, more FLOPS do not. No data: these GPUs do not report it, or the driver has no GPM.",
            Query(worst(gpu("gpu_tensor_active_ratio")), legend("tensor")),
            Query(worst(gpu("gpu_dram_active_ratio")), legend("memory")),
        ),
        timeline(
            "Compute- or memory-bound",
            "What bounds the kernels of GPUs in class compute, where they report it: Hopper and later, or DCGM. "
            "Neither: small kernels, or gaps between them. No data: no GPU is in class compute and reports it.",
            worst_first(gpu(GPU_COMPUTE_BOUND.name)),
            texts=BOUND,
            size=Size(8, 7),
        ),
        folded=True,
    )


def _with_owner(metric: str) -> str:
    owner = "user, workload_namespace, workload_pod, slurm_job_id"
    return (
        f"sum by ({TARGET}, gpu, pid, process, {owner}) (\n"
        f"  {gpu(metric)}\n  * on ({TARGET}, gpu, uuid, pid) group_left ({owner})\n"
        f"  {gpu('gpu_process_info')}\n)"
    )


def _largest(expr: str) -> str:
    by = f"{TARGET}, gpu, pid"
    return only(expr, by, f"topk({MOST_ROWS}, max by ({by}) ({gpu('gpu_process_memory_bytes')}))")


def _busy_clock(select: Callable[..., str]) -> str:
    """Median SM clock of each busy GPU, with its model; the GPU may be at its idle clock a fifth of the time."""
    clock = select("gpu_clock_hertz", 'clock="sm"')
    return (
        f"(quantile_over_time(0.5, {clock}[5m])\n* on ({TARGET}, gpu, uuid) group_left (name) "
        f"group by ({TARGET}, gpu, uuid, name) ({select('gpu_info')})\nand on ({TARGET}, gpu, uuid) "
        f"rate({select('gpu_busy_seconds_total')}[$__rate_interval]) >= 0.8)"
    )
