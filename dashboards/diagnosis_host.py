"""Steps 4 to 6 of the diagnosis: is it starved, is the software in the way, and if neither, what is there to tune?"""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import Query, Size, lines, timeline
from dashboards.selectors import gpu, host, worst
from dashboards.steps import SOFTWARE, STARVED, TUNE
from dashboards.tables import GPU, HOST, Column, table_of

WAITS = ((0, "no", "green"), (1, "waits", "orange"))


def starved() -> Row:
    """Is it starved?"""
    return Row(
        STARVED.title,
        (
            timeline(
                STARVED.key_panel,
                "A process holds the GPU, it worked within the hour, and now it gets less than 0.7 of it. Only then do "
                "the host's panels beside this one explain anything.",
                worst(gpu("instance_gpu:gpu_waiting:active")),
                WAITS,
                size=Size(12, 8),
            ),
            lines(
                "Busy share of the disks",
                "A disk near 1 while GPUs wait: the data comes from there. Cache or stage the data set, or spread it.",
                [Query(host("instance_device:gpu_host_disk:ratio5m"), "{{instance}} {{device}}")],
                unit="percentunit",
                size=Size(12, 8),
                top=1,
                line_at=(0.9, "orange"),
            ),
            lines(
                "CPU time spent waiting for disks",
                "Share of the host's CPU time. Above a tenth with waiting GPUs: storage. The kernel counts it only "
                "while CPUs are idle, so a busy host hides it.",
                [Query(host("instance:gpu_host_iowait:ratio5m"), "{{instance}}")],
                unit="percentunit",
                line_at=(0.1, "orange"),
            ),
            lines(
                "Time in which tasks stalled (pressure)",
                "Share of time in which some, or all, tasks waited for CPU, memory or I/O. What rises first as the "
                "GPUs fall is what is scarce.",
                [Query(host("instance_resource_kind:gpu_host_pressure:ratio5m"), "{{instance}} {{resource}} {{kind}}")],
                unit="percentunit",
                top=1,
                line_at=(0.2, "orange"),
            ),
            lines(
                "Time of an NFS operation",
                "Mean time of an operation of each mount in use. Above 50 ms the server or the network to it is slow: "
                "ask whoever runs it. No data: no NFS mount in use.",
                [Query(host("instance_mount:gpu_host_nfs_operation_seconds:mean5m"), "{{instance}} {{mount}}")],
                unit="s",
                line_at=(0.05, "orange"),
            ),
            lines(
                "Busy share of the CPUs, by NUMA node",
                "A node near 1 starves the GPUs on it even where the host has idle CPUs: more CPUs for the job, or "
                "fewer data workers on this node.",
                [Query(host("instance_numa_node:gpu_host_cpu:ratio5m"), "{{instance}} node {{numa_node}}")],
                unit="percentunit",
                top=1,
                line_at=(0.9, "orange"),
            ),
            lines(
                "Busy share of the busiest CPU, by NUMA node",
                "One CPU at 1 while others idle: a single thread feeds the GPU. Give the loader more workers.",
                [Query(host("gpu_host_cpu_busiest_ratio"), "{{instance}} node {{numa_node}}")],
                unit="percentunit",
                top=1,
                line_at=(0.98, "orange"),
            ),
            lines(
                "Use of network adapters, as a share of line rate",
                "The busier direction of each adapter. Near 1 with waiting GPUs: the network is the limit. Far below "
                "with slow collectives: look for a bad link or a wrong route.",
                [Query(host("instance_device:gpu_host_network:ratio5m"), "{{instance}} {{device}} {{port}}")],
                unit="percentunit",
                line_at=(0.85, "orange"),
            ),
            lines(
                "Memory read back from swap",
                "Pages that come back because somebody needs them. Lasting: the host is short of memory, and every "
                "step of the job pays for it. Swap in use alone is no evidence.",
                [Query(host("instance:gpu_host_swap_in_bytes:rate5m"), "{{instance}}")],
                unit="Bps",
                line_at=(1048576, "orange"),
            ),
            lines(
                "Network errors and drops",
                "Frames that were damaged or thrown away, a second. Any that last cost retransmissions: cable, optics, "
                "or a switch that is full.",
                [
                    Query(
                        f"rate({host('gpu_host_network_errors_total')}[$__rate_interval])",
                        "{{instance}} {{device}} errors {{direction}}",
                    ),
                    Query(
                        f"rate({host('gpu_host_network_drops_total')}[$__rate_interval])",
                        "{{instance}} {{device}} drops {{direction}}",
                    ),
                ],
                unit="pps",
            ),
        ),
    )


def software() -> Row:
    """Is the software in the way?"""
    return Row(
        SOFTWARE.title,
        (
            table_of(
                SOFTWARE.key_panel,
                "Who is on each GPU. One GPU with two and a neighbour with none: a wrong CUDA_VISIBLE_DEVICES. One "
                "with memory held and no use for long: a hang, or a left-over process.",
                (
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
                ),
                sort="Memory",
                descending=True,
                size=Size(16, 8),
            ),
            lines(
                "Compute processes of each GPU",
                "Equal for all GPUs of a job, as a rule. A step to 0 is the end of a process, wanted or not.",
                worst(gpu("instance_gpu:gpu_compute_processes:sum")),
                unit="short",
                size=Size(8, 8),
            ),
            lines(
                "SM clock of busy GPUs, against the median of their model",
                "Under 0.9: this GPU is slower than its peers and every synchronous step waits for it. Find out what "
                "holds it back in step 2.",
                worst(
                    f"{gpu('instance_gpu_name:gpu_clock_hertz:busy_median5m')}\n"
                    "/ on (job, instance, name) group_left ()\n"
                    "quantile by (job, instance, name) (0.5, "
                    f"{host('instance_gpu_name:gpu_clock_hertz:busy_median5m')})"
                ),
                unit="percentunit",
                floor=None,
                line_at=(0.9, "orange"),
            ),
            lines(
                "Memory in use, as a share",
                "Near 1 and rising: the next allocation fails. Frameworks take memory ahead, so high and flat is "
                "normal.",
                worst(f"{gpu('gpu_memory_used_bytes')} / {gpu('gpu_memory_total_bytes')}"),
                unit="percentunit",
                top=1,
                line_at=(0.97, "orange"),
            ),
            timeline(
                "Held and idle",
                "A process holds the GPU and it works for less than 0.05 of the time. For hours: give it back, or find "
                "out what the job waits for.",
                worst(gpu("instance_gpu:gpu_allocated_idle:active")),
                ((0, "no", "green"), (1, "idle", "orange")),
                size=Size(8, 7),
            ),
        ),
    )


def tune() -> Row:
    """Only then tune."""
    return Row(
        TUNE.title,
        (
            lines(
                TUNE.key_panel,
                "Share of SMs with work, from GPM on Hopper and later. Busy but low here: small kernels or waiting at "
                "barriers; batch more, fuse, or look at the collectives.",
                worst(gpu("gpu_sm_active_ratio")),
                unit="percentunit",
                top=1,
            ),
            lines(
                "Activity of the tensor cores",
                "Low with active SMs: mixed precision is off, or shapes do not suit the tensor cores.",
                worst(gpu("gpu_tensor_active_ratio")),
                unit="percentunit",
                top=1,
            ),
            lines(
                "Activity of the GPU's memory",
                "Near 1: the job is limited by memory bandwidth; fewer bytes a step help, more FLOPS do not.",
                worst(gpu("gpu_dram_active_ratio")),
                unit="percentunit",
                top=1,
            ),
        ),
    )


def _with_owner(metric: str) -> str:
    """A process's value with the names of whoever runs it."""
    owner = "user, workload_namespace, workload_pod, slurm_job_id"
    return (
        f"sum by (job, instance, gpu, pid, process, {owner}) (\n"
        f"  {gpu(metric)}\n  * on (job, instance, gpu, uuid, pid) group_left ({owner})\n"
        f"  {gpu('gpu_process_info')}\n)"
    )
