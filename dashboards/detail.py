"""GPU detail: everything known about one GPU."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.detail_health import health, host_beside
from dashboards.detail_links import links
from dashboards.detail_power import power
from dashboards.detail_processes import instances, process_profiles, processes
from dashboards.judgment import findings
from dashboards.panels import PanelBuilder, Query, Size, lines, tile, timeline
from dashboards.selectors import TARGET, bottleneck, by_gpu, by_host, gpu, host, legend, rate
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, BOUND, CLASS, ON, REACHED, VERDICT, VGPU_LICENSE, Texts
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK_SECONDS_TOTAL, GPU_COMPUTE_BOUND, GPU_VERDICT

TILE = Size(4, 3)
NARROW = Size(3, 3)


def board() -> Board:
    return Board(
        uid="gpu-triage-detail",
        title="GPU detail",
        description="Everything about one GPU: what it is, what it does, what limits it, what is wrong with it, who "
        "uses it. Where several Prometheus servers share the hosts, choose the data source that scrapes this one.",
        since="3h",
        runbooks=True,
        one_gpu=True,
        rows=(
            _now(),
            _activity(),
            power(),
            links(),
            health(),
            processes(),
            process_profiles(),
            instances(),
            host_beside(),
        ),
    )


def _now() -> Row:
    return Row(
        "",
        _state("Bottleneck now", "Which resource limits it; see the playbook.", bottleneck(), BOTTLENECK),
        _state(
            "Verdict now",
            "Whether it should go on taking work. Drain: a critical finding; watch: a warning. No data: it could "
            "not be read.",
            gpu(GPU_VERDICT.name),
            VERDICT,
        ),
        _state("Status now", "Whether it answered the driver in time.", gpu("gpu_up"), REACHED),
        _value("Busy now", "Share of the last 5 minutes.", gpu("instance_gpu:gpu_busy:ratio5m"), "percentunit"),
        _value("Power now", "What the board draws.", gpu("gpu_power_watts"), "watt"),
        _value("Temperature now", "Of the GPU.", gpu("gpu_temperature_celsius", 'sensor="gpu"'), "celsius"),
        _value("Performance state now", "P0 is the fastest; P8 and above are idle.", _PERFORMANCE_STATE, "none"),
        timeline(
            "Bottleneck",
            "Which resource limited it at each moment. The first change of color is the moment to explain.",
            bottleneck(),
            texts=BOTTLENECK,
            size=Size(24, 4),
        ),
        findings(Size(14, 7)),
        _time_in_each_class(),
        table_of(
            "Identity",
            "Model, firmware and location. GPUs of one job that differ here may differ in speed.",
            HOST,
            GPU_COLUMN,
            *(Column(title, label=label) for label, title in _IDENTITY.items()),
            Column("Known", expr=gpu("gpu_info"), width=70),
            size=Size(24, 4),
        ),
        table_of(
            "Settings",
            "Modes and settings. N/A: this model does not have it. Without persistence mode, each process takes "
            "seconds longer to start; a compute mode other than default keeps further processes out.",
            HOST,
            GPU_COLUMN,
            Column("Persistence", expr=by_gpu(gpu("gpu_persistence_mode")), texts=ON),
            Column("MIG", expr=by_gpu(gpu("gpu_mig_mode")), texts=ON),
            Column("ECC", expr=by_gpu(gpu("gpu_ecc_mode")), texts=ON),
            Column("ECC after reboot", expr=by_gpu(gpu("gpu_ecc_mode_pending")), texts=ON),
            Column("vGPU license", expr=by_gpu(gpu("gpu_vgpu_license_state")), texts=VGPU_LICENSE),
            Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node"))),
            Column("Compute mode", label="mode"),
            Column("Set", expr=f"max by ({TARGET}, gpu, mode) ({gpu('gpu_compute_mode_info')})", width=60),
            size=Size(12, 4),
        ),
        table_of(
            "Driver and host",
            "Versions and platform.",
            HOST,
            Column("Driver", label="driver_version"),
            Column("CUDA", label="cuda_version"),
            Column("NVML", label="nvml_version"),
            Column("Loaded", expr=_VERSIONS, width=70),
            Column("IOMMU", expr=by_host(host("gpu_host_iommu_active")), texts=ON),
            Column("NUMA nodes", expr=by_host(host("gpu_host_numa_nodes"))),
            Column("Modules", expr=f"count by ({TARGET}) ({host('gpu_kernel_module_loaded')} == 1)"),
            size=Size(12, 4),
        ),
    )


_IDENTITY = {
    "name": "Model",
    "pci_bus_id": "PCI address",
    "minor_number": "Device file number",
    "serial": "Serial",
    "uuid": "UUID",
    "architecture": "Architecture",
    "compute_capability": "Compute capability",
    "vbios_version": "VBIOS",
    "board_part_number": "Part number",
}

_PERFORMANCE_STATE = gpu("gpu_performance_state")


def _time_in_each_class() -> PanelBuilder:
    seconds = gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name)
    return table_of(
        "Time in each class",
        "How long each resource limited it in the time shown, from the seconds counter. Compute is its own work.",
        HOST,
        GPU_COLUMN,
        Column("Class", label="class", texts=CLASS, width=130),
        Column("Time", expr=f"sum by ({TARGET}, gpu, class) (increase({seconds}[$__range])) > 0", unit="s", decimals=0),
        sort="-Time",
        size=Size(10, 7),
    )


_VERSIONS = f"max by ({TARGET}, driver_version, cuda_version, nvml_version) ({host('gpu_driver_info')})"


def _state(title: str, meaning: str, expr: str, texts: Texts) -> PanelBuilder:
    return tile(title, meaning, expr, unit="none", size=TILE, texts=texts)


def _value(title: str, meaning: str, expr: str, unit: str) -> PanelBuilder:
    return tile(title, meaning, expr, unit=unit, size=NARROW, decimals=0, graph=True)


def _activity() -> Row:
    return Row(
        "Activity",
        timeline(
            "Compute- or memory-bound",
            "What bounds its kernels in class compute, where it is reported: Hopper and later, or DCGM. Neither: small "
            "kernels, or gaps between them.",
            gpu(GPU_COMPUTE_BOUND.name),
            texts=BOUND,
            size=Size(24, 3),
        ),
        lines(
            "Utilization",
            "Share of time in which any kernel ran, or memory was read or written. High does not mean fast: "
            "compare it with SM activity.",
            Query(gpu("gpu_sm_utilization_ratio"), legend("SM")),
            Query(gpu("gpu_memory_utilization_ratio"), legend("memory")),
            Query(gpu("gpu_encoder_utilization_ratio"), legend("encoder")),
            Query(gpu("gpu_decoder_utilization_ratio"), legend("decoder")),
            Query(gpu("gpu_jpeg_utilization_ratio"), legend("JPEG")),
            Query(rate(gpu("gpu_busy_seconds_total")), legend("busy")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "SM and pipeline activity",
            "From GPM, Hopper and later: SMs with work, resident warps, tensor cores, memory, and the arithmetic "
            "pipes. Memory reaches about 0.8 in practice, the tensor cores of the best trainings about 0.45.",
            *[
                Query(gpu(f"gpu_{what}_ratio"), legend(name))
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
            "GPU memory",
            "Used, free, and reserved by the driver. Near the total and rising: the next allocation fails.",
            *[Query(gpu(f"gpu_memory_{what}_bytes"), legend(what)) for what in ("used", "free", "reserved", "total")],
            unit="bytes",
        ),
        lines(
            "BAR1 memory",
            "The window through which the CPU and peers access GPU memory. Full: GPUDirect and peer mappings fail.",
            *[Query(gpu(f"gpu_bar1_memory_{what}_bytes"), legend(what)) for what in ("used", "total")],
            unit="bytes",
        ),
        lines(
            "Performance state",
            "0 is the fastest. Stays high under load: something keeps the clocks down.",
            _PERFORMANCE_STATE,
            unit="none",
        ),
        lines(
            "Video encoder sessions",
            "Open at present. GeForce drivers allow a few at a time: a process that cannot open one fails.",
            Query(gpu("gpu_encoder_sessions"), legend("sessions")),
            unit="none",
        ),
    )
