"""GPU detail: everything that is known of one GPU."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.detail_health import health, host_beside, links, power
from dashboards.panels import PanelBuilder, Query, Size, lines, tile, timeline
from dashboards.selectors import by_gpu, by_host, gpu, host
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.words import BOTTLENECK, ON, UP

TILE = Size(4, 3)


def board() -> Board:
    """The dashboard."""
    return Board(
        uid="gpu-triage-detail",
        title="GPU detail",
        description="Everything about one GPU: what it is, what it does, what holds it back, who uses it.",
        since="3h",
        one_gpu=True,
        rows=(_now(), _activity(), power(), links(), health(), _processes(), _instances(), host_beside()),
    )


def _now() -> Row:
    return Row(
        "",
        (
            _state("Bottleneck now", "The class that matches first; see the playbook.", _rank(), BOTTLENECK),
            _state("Answers", "Whether the GPU answered the driver within its deadline.", gpu("gpu_up"), UP),
            _value("Busy now", "Share of the last 5 minutes.", gpu("instance_gpu:gpu_busy:ratio5m"), "percentunit"),
            _value("Power now", "What the board draws.", gpu("gpu_power_watts"), "watt"),
            _value("Temperature now", "Of the GPU.", gpu("gpu_temperature_celsius", 'sensor="gpu"'), "celsius"),
            _value(
                "Performance state now", "P0 is the fastest, P8 and up are rest.", gpu("gpu_performance_state"), "none"
            ),
            timeline(
                "Bottleneck",
                "What was scarce first at each moment. The first change of colour is the moment to explain.",
                _rank(),
                BOTTLENECK,
                size=Size(24, 4),
            ),
            table_of(
                "What it is",
                "Model, firmware and place. Two GPUs of a job that differ here may differ in speed.",
                (
                    HOST,
                    GPU_COLUMN,
                    *(Column(title, label=label) for label, title in _IDENTITY.items()),
                    Column("Known", expr=gpu("gpu_info"), width=70),
                ),
                size=Size(24, 4),
            ),
            table_of(
                "How it is set",
                "Modes and settings. N/A: this model does not have it. Persistence off costs seconds at each start of "
                "a process; a compute mode other than default keeps others off.",
                (
                    HOST,
                    GPU_COLUMN,
                    Column("Persistence", expr=by_gpu(gpu("gpu_persistence_mode")), words=ON),
                    Column("MIG", expr=by_gpu(gpu("gpu_mig_mode")), words=ON),
                    Column("ECC", expr=by_gpu(gpu("gpu_ecc_mode")), words=ON),
                    Column("ECC after reboot", expr=by_gpu(gpu("gpu_ecc_mode_pending")), words=ON),
                    Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node"))),
                    Column("Compute mode", label="mode"),
                    Column("Set", expr=f"max by (job, instance, gpu, mode) ({gpu('gpu_compute_mode_info')})", width=60),
                ),
                size=Size(12, 4),
            ),
            table_of(
                "Driver and host",
                "Versions and platform of its host.",
                (
                    HOST,
                    Column("Driver", label="driver_version"),
                    Column("CUDA", label="cuda_version"),
                    Column("NVML", label="nvml_version"),
                    Column("Loaded", expr=_versions(), width=70),
                    Column("IOMMU", expr=by_host(host("gpu_host_iommu_active")), words=ON),
                    Column("NUMA nodes", expr=by_host(host("gpu_host_numa_nodes"))),
                    Column("Modules", expr=f"count by (job, instance) ({host('gpu_kernel_module_loaded')} == 1)"),
                ),
                size=Size(12, 4),
            ),
        ),
    )


_IDENTITY = {
    "name": "Model",
    "pci_bus_id": "PCI address",
    "serial": "Serial",
    "uuid": "UUID",
    "architecture": "Architecture",
    "compute_capability": "Compute capability",
    "vbios_version": "VBIOS",
    "board_part_number": "Part number",
}


def _rank() -> str:
    return gpu("instance_gpu:gpu_bottleneck:rank")


def _versions() -> str:
    return f"max by (job, instance, driver_version, cuda_version, nvml_version) ({host('gpu_driver_info')})"


def _state(title: str, meaning: str, expr: str, words: tuple[tuple[int, str, str], ...]) -> PanelBuilder:
    return tile(title, meaning, expr, unit="none", size=TILE, words=words)


def _value(title: str, meaning: str, expr: str, unit: str) -> PanelBuilder:
    return tile(title, meaning, expr, unit=unit, size=TILE, decimals=2 if unit == "percentunit" else 0, graph=True)


def _activity() -> Row:
    return Row(
        "What it does",
        (
            lines(
                "Utilisation",
                "Share of time in which any kernel ran, or memory was read or written. High does not mean fast: "
                "compare with SM activity.",
                [
                    Query(gpu("gpu_sm_utilization_ratio"), _named("SM")),
                    Query(gpu("gpu_memory_utilization_ratio"), _named("memory")),
                    Query(gpu("gpu_encoder_utilization_ratio"), _named("encoder")),
                    Query(gpu("gpu_decoder_utilization_ratio"), _named("decoder")),
                    Query(f"rate({gpu('gpu_busy_seconds_total')}[$__rate_interval])", _named("busy")),
                ],
                unit="percentunit",
                top=1,
            ),
            lines(
                "Inside the SMs",
                "From GPM, Hopper and later: SMs with work, warps resident, tensor cores, memory, and the arithmetic "
                "pipes. The highest tells what the job is bound by.",
                [
                    Query(gpu(f"gpu_{what}_ratio"), _named(name))
                    for what, name in (
                        ("sm_active", "SM active"),
                        ("sm_occupancy", "occupancy"),
                        ("tensor_active", "tensor"),
                        ("dram_active", "memory"),
                        ("fp64_active", "FP64"),
                        ("fp32_active", "FP32"),
                        ("fp16_active", "FP16"),
                    )
                ],
                unit="percentunit",
                top=1,
            ),
            lines(
                "Memory of the GPU",
                "Used, free and kept by the driver. Near the total and rising: the next allocation fails.",
                [
                    Query(gpu(f"gpu_memory_{what}_bytes"), _named(what))
                    for what in ("used", "free", "reserved", "total")
                ],
                unit="bytes",
            ),
            lines(
                "BAR1 memory",
                "The window through which CPU and peers reach GPU memory. Full: GPUDirect and peer mappings fail.",
                [Query(gpu(f"gpu_bar1_memory_{what}_bytes"), _named(what)) for what in ("used", "total")],
                unit="bytes",
            ),
            lines(
                "Performance state",
                "0 is the fastest. Stays high under load: something keeps the clocks down.",
                gpu("gpu_performance_state"),
                unit="none",
            ),
        ),
    )


def _processes() -> Row:
    per_process = "{{process}} {{pid}} on {{instance}} GPU {{gpu}}"
    return Row(
        "Who uses it",
        (
            table_of(
                "Processes and pods",
                "Who holds the GPU, with user, container, pod and Slurm job where they can be named. N/A: the driver "
                "does not tell.",
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
                "One that grows without end leaks.",
                [Query(gpu("gpu_process_memory_bytes"), per_process)],
                unit="bytes",
            ),
            lines(
                "SM use of each process",
                "Who of several uses the GPU.",
                [Query(gpu("gpu_process_sm_utilization_ratio"), per_process)],
                unit="percentunit",
            ),
            lines(
                "Processes, by kind and place",
                "Counts; mismatched: all CPUs on the wrong node; unpinned: on no node in particular; left out: more "
                "processes than the exporter names.",
                [
                    Query(gpu("gpu_processes"), _named("{{type}}")),
                    Query(gpu("gpu_numa_mismatched_processes"), _named("mismatched")),
                    Query(gpu("gpu_numa_unpinned_processes"), _named("unpinned")),
                    Query(gpu("gpu_processes_truncated"), _named("left out")),
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


def _instances() -> Row:
    legend = _named("{{mig_uuid}}")
    return Row(
        "MIG instances",
        (
            table_of(
                "MIG instances now",
                "The instances of a GPU that is split, with profile, memory and activity. No data: the GPU is not "
                "split.",
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
                "Share of the instance's own SMs with work. An instance at rest beside a full one: another profile, or "
                "another place for the job.",
                [Query(gpu("gpu_mig_sm_active_ratio"), legend)],
                unit="percentunit",
                top=1,
            ),
        ),
    )


def _of_instance(metric: str) -> str:
    return f"max by (job, instance, gpu, mig_uuid) ({gpu(metric)})"


def _named(what: str) -> str:
    return "{{instance}} GPU {{gpu}} " + what
