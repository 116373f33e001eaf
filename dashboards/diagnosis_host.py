"""Steps 4 to 6 of the diagnosis: is it starved, is software in the way, and if neither, what can be tuned?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dashboards.board import Row
from dashboards.diagnosis_jobs import job_panels
from dashboards.palette import GOOD, GRAY, WATCH
from dashboards.panels import PanelBuilder, Query, Size, lines, timeline
from dashboards.selectors import (
    OF_HOST,
    TARGET,
    age,
    bottleneck,
    bottleneck_in,
    by_gpu,
    gpu,
    host,
    host_legend,
    rate,
    when,
    worst,
)
from dashboards.steps import SOFTWARE, STARVED, TUNE
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, BOUND, Texts
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND

_WAITING: Final[Texts] = ((0, "not waiting", GRAY), *BOTTLENECK)


def starved() -> Row:
    return Row(
        STARVED.row,
        timeline(
            STARVED.key_panel,
            "Which resource of the host each GPU waits for: a job holds the GPU and gets less than 0.7 of it, "
            "while that resource is scarce. The other panels of this row explain nothing unless a GPU waits.",
            worst(by_gpu(f"{bottleneck_in(STARVED.classes)} or 0 * {bottleneck()}")),
            texts=_WAITING,
            size=Size(12, 8),
        ),
        lines(
            "Disk busy time",
            "A disk near 1 while GPUs wait: the data comes from there. Cache, stage or spread the data set.",
            Query(f"clamp_max({_rate('gpu_host_disk_busy_seconds_total')}, 1)", host_legend("{{device}}")),
            unit="percentunit",
            size=Size(12, 8),
            top=1,
            line_at=(0.9, WATCH),
        ),
        lines(
            "I/O wait share of CPU time",
            "Above a tenth while GPUs wait: storage. The kernel counts it only while CPUs are idle, so a busy host "
            "hides it.",
            Query(f"{_cpu('iowait', TARGET)} / {_cpu('.+', TARGET)}", OF_HOST),
            unit="percentunit",
            line_at=(0.1, WATCH),
        ),
        lines(
            "Pressure",
            "Share of time in which some or all tasks were stalled on CPU, memory or I/O. What rises first as the "
            "GPUs slow down is what is scarce.",
            Query(_rate("gpu_host_pressure_seconds_total"), host_legend("{{resource}} {{kind}}")),
            unit="percentunit",
            top=1,
            line_at=(0.2, WATCH),
        ),
        _nfs(),
        lines(
            "CPU utilization, by NUMA node",
            "A node near 1 starves its GPUs even if the rest of the host is idle: give the job more CPUs, or run "
            "fewer data workers on this node.",
            Query(f"1 - {_cpu('idle|iowait', _BY_NODE)} / {_cpu('.+', _BY_NODE)}", host_legend("node {{numa_node}}")),
            unit="percentunit",
            top=1,
            line_at=(0.9, WATCH),
        ),
        lines(
            "Busiest CPU, by NUMA node",
            "One CPU at 1 while others idle: a single thread feeds the GPU. Give the data loader more workers.",
            Query(host("gpu_host_cpu_busiest_ratio"), host_legend("node {{numa_node}}")),
            unit="percentunit",
            top=1,
            line_at=(0.98, WATCH),
        ),
        lines(
            "Clock of the busiest CPU, by NUMA node",
            "As a share of its highest. Below 0.45 while it is busy: a governor, a power cap or heat holds it "
            "back. No data: no CPU is busy, or the host does not tell, as most virtual machines.",
            Query(host("gpu_host_cpu_busiest_frequency_ratio"), host_legend("node {{numa_node}}")),
            unit="percentunit",
            top=1,
            line_at=(0.45, WATCH),
        ),
        *job_panels(),
        _network(),
        lines(
            "Swap-in",
            "Memory read back from swap because something needs it. If it goes on, the host is short of memory and "
            "every step of the job pays for it. Swap in use alone means nothing.",
            Query(_rate("gpu_host_swap_in_bytes_total"), OF_HOST),
            unit="Bps",
            line_at=(1048576, WATCH),
        ),
        lines(
            "Network errors and drops",
            "Damaged or dropped frames per second. If they go on, they cost retransmissions: check cable and "
            "optics, and the switch for congestion.",
            Query(_rate("gpu_host_network_errors_total"), host_legend("{{device}} errors {{direction}}")),
            Query(_rate("gpu_host_network_drops_total"), host_legend("{{device}} drops {{direction}}")),
            unit="pps",
        ),
        folded=True,
    )


_BY_NODE = f"{TARGET}, numa_node"


def _rate(metric: str) -> str:
    return rate(host(metric))


def _cpu(modes: str, by: str) -> str:
    counted = host("gpu_host_cpu_seconds_total", f'mode=~"{modes}"')
    return f"sum by ({by}) ({rate(counted)})"


def _nfs() -> PanelBuilder:
    by = f"{TARGET}, mount"
    seconds = f"sum by ({by}) ({_rate('gpu_host_nfs_operation_seconds_total')})"
    operations = f"sum by ({by}) ({_rate('gpu_host_nfs_operations_total')})"
    return lines(
        "NFS latency",
        "Mean time of an operation on each mount with at least ten a second. Above 50 ms the server, or the network to "
        "it, is slow: ask whoever runs it. No data: no NFS mount in use.",
        Query(f"{seconds} / ({operations} >= 10)", host_legend("{{mount}}")),
        unit="s",
        line_at=(0.05, WATCH),
    )


def _network() -> PanelBuilder:
    ethernet = f"on ({TARGET}, device) ({host('gpu_host_network_speed_bytes_per_second')} > 0)"
    infiniband = f"on ({TARGET}, device, port) ({host('gpu_host_infiniband_rate_bytes_per_second')} > 0)"
    return lines(
        "Network utilization",
        "Each adapter, both directions. Near 1 while GPUs wait: the network is the limit. Far below it with slow "
        "collectives: look for a bad link or a wrong route.",
        Query(f"{_rate('gpu_host_network_receive_bytes_total')} / {ethernet}", f"{_ADAPTER} received"),
        Query(f"{_rate('gpu_host_network_transmit_bytes_total')} / {ethernet}", f"{_ADAPTER} sent"),
        Query(f"{_rate('gpu_host_infiniband_receive_bytes_total')} / {infiniband}", f"{_PORT} received"),
        Query(f"{_rate('gpu_host_infiniband_transmit_bytes_total')} / {infiniband}", f"{_PORT} sent"),
        unit="percentunit",
        line_at=(0.85, WATCH),
    )


_ADAPTER = host_legend("{{device}}")
_PORT = f"{_ADAPTER} port {{{{port}}}}"


def software() -> Row:
    return Row(
        SOFTWARE.row,
        table_of(
            SOFTWARE.key_panel,
            "Who is on each GPU. Two processes on one GPU and none on its neighbor: a wrong CUDA_VISIBLE_DEVICES. "
            "Memory held and no use for a long time: a hang, or a process left behind.",
            HOST,
            GPU,
            Column("Process", label="process"),
            Column("PID", label="pid", width=90),
            Column("User", label="user"),
            Column("Namespace", label="workload_namespace"),
            Column("Pod", label="workload_pod"),
            Column("Slurm job", label="slurm_job_id"),
            Column("Memory", expr=_with_owner("gpu_process_memory_bytes"), unit="bytes"),
            Column("SM use", expr=_with_owner("gpu_process_sm_utilization_ratio"), unit="percentunit"),
            sort="-Memory",
            size=Size(16, 8),
        ),
        lines(
            "Compute processes on each GPU",
            "Usually the same for all GPUs of a job. A drop to 0 means that the process ended, on purpose or not. "
            "No data: the driver lists no processes to a container without the host's PID namespace.",
            worst(f"sum by ({TARGET}, gpu) ({gpu('gpu_processes', _COMPUTE)})"),
            unit="short",
            size=Size(8, 8),
        ),
        lines(
            "SM clock of busy GPUs, against the median of their model",
            "Below 0.9: this GPU is slower than its peers and every synchronous step waits for it. See step 2 for "
            "what holds it back.",
            worst(
                f"{_busy_clock(gpu)}\n/ on ({TARGET}, name) group_left ()\n"
                f"quantile by ({TARGET}, name) (0.5, {_busy_clock(host)})"
            ),
            unit="percentunit",
            floor=None,
            line_at=(0.9, WATCH),
        ),
        lines(
            "GPU memory in use",
            "Near 1 and rising: the next allocation fails. Frameworks allocate ahead, so high and flat is normal.",
            worst(f"{gpu('gpu_memory_used_bytes')} / {gpu('gpu_memory_total_bytes')}"),
            unit="percentunit",
            top=1,
            line_at=(0.97, WATCH),
        ),
        timeline(
            "Allocated but idle GPUs",
            "A process holds the GPU and uses less than 0.05 of it. For hours: free it, or find out what the job "
            "waits for.",
            worst(gpu("instance_gpu:gpu_allocated_idle:active")),
            texts=((0, "no", GOOD), (1, "idle", WATCH)),
            size=Size(8, 7),
        ),
        table_of(
            "Kernel log events",
            "Trouble that the kernel log tells of, within a day: killed and hung processes, storage that does not "
            "answer, hardware errors. The subject is what the message names. docs/kernel-events.md explains the "
            "kinds. No data: nothing was logged, or the kernel log cannot be read.",
            HOST,
            Column("Kind", label="kind"),
            Column("Subject", label="subject"),
            Column("Last", expr=when(f"{_BY_SUBJECT} ({host(_LAST_EVENT)})"), unit="dateTimeFromNow"),
            sort="-Last",
            size=Size(16, 7),
        ),
        lines(
            "Kernel log events in 5 minutes",
            "By kind, in five minutes. One incident can be several messages.",
            Query(f"increase({host('gpu_host_kernel_events_total')}[5m]) > 0", host_legend("{{kind}}")),
            unit="short",
            size=Size(8, 7),
        ),
        lines(
            "Processes blocked in the kernel",
            "For how long a thread of the process has waited in the kernel without running once. It cannot be "
            "killed meanwhile. No data: none does.",
            Query(worst(age(f"{_BY_PROCESS} ({gpu(_BLOCKED_SINCE)})")), _BLOCKED),
            unit="s",
            line_at=(300, WATCH),
        ),
        folded=True,
    )


_LAST_EVENT = "gpu_host_kernel_event_last_timestamp_seconds"
_BY_SUBJECT = f"max by ({TARGET}, kind, subject)"
_BLOCKED_SINCE = "gpu_process_blocked_since_timestamp_seconds"
_BY_PROCESS = f"min by ({TARGET}, gpu, pid, process, wait_channel)"
_BLOCKED = host_legend("GPU {{gpu}} {{process}} ({{pid}}) {{wait_channel}}")


_COMPUTE = 'type=~"compute|mps"'


def tune() -> Row:
    return Row(
        TUNE.row,
        lines(
            TUNE.key_panel,
            "Share of SMs with work, from GPM on Hopper and later. A busy GPU with little here runs small kernels "
            "or waits at barriers: use larger batches, fuse kernels, or look at the collectives.",
            worst(gpu("gpu_sm_active_ratio")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "Tensor core activity",
            "Low while SMs are active: mixed precision is off, or the shapes do not suit the tensor cores.",
            worst(gpu("gpu_tensor_active_ratio")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "GPU memory activity",
            "Above half, of about 0.8 that can be reached: memory bandwidth limits the job. Moving fewer bytes "
            "per step helps, more FLOPS do not.",
            worst(gpu("gpu_dram_active_ratio")),
            unit="percentunit",
            top=1,
        ),
        timeline(
            "Compute- or memory-bound",
            "What bounds the kernels of GPUs in class compute, where they report it: Hopper and later, or DCGM. "
            "Neither: small kernels, or gaps between them.",
            worst(gpu(GPU_COMPUTE_BOUND.name)),
            texts=BOUND,
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


def _busy_clock(select: Callable[..., str]) -> str:
    """Median SM clock of each busy GPU, with its model; the GPU may be at its idle clock a fifth of the time."""
    clock = select("gpu_clock_hertz", 'clock="sm"')
    return (
        f"(quantile_over_time(0.5, {clock}[5m])\n* on ({TARGET}, gpu, uuid) group_left (name) "
        f"group by ({TARGET}, gpu, uuid, name) ({select('gpu_info')})\nand on ({TARGET}, gpu, uuid) "
        f"rate({select('gpu_busy_seconds_total')}[$__rate_interval]) >= 0.8)"
    )
