"""GPU detail: everything known about one GPU."""

from dashboards.board import Board, Row
from dashboards.detail_health import health
from dashboards.detail_links import links
from dashboards.detail_power import power, power_and_limits, temperatures
from dashboards.detail_processes import instances, processes
from dashboards.judgment import findings
from dashboards.panels import SMALL, Cell, PanelBuilder, Query, Size, lines, shares, strip, timeline
from dashboards.selectors import TARGET, bottleneck, by_gpu, by_host, gpu, gpu_state, host, legend, rate
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.value_mappings import (
    BOTTLENECK,
    BOUND,
    CLASS,
    GPU_STATE,
    ON,
    REACHED,
    VGPU_LICENSE,
    VIRTUALIZATION,
    YES,
)
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK_SECONDS_TOTAL, GPU_COMPUTE_BOUND


def board() -> Board:
    return Board(
        uid="gpu-triage-detail",
        title="GPU detail",
        description="Everything about one GPU: what it is, what it does, what limits it, what is wrong with it, who "
        "uses it. Where several Prometheus servers share the hosts, choose the data source that scrapes this one.",
        since="3h",
        runbooks=True,
        one_gpu=True,
        rows=(_now(), _what_it_is(), _activity(), power(), links(), health(), processes(), instances()),
    )


_THIRD = Size(8, 3)
_UNREAD = "What is missing could not be read. No data: the exporter does not answer, or does not know this GPU."


def _now() -> Row:
    return Row(
        "",
        strip(
            "What limits it now",
            "Bottleneck: which resource. Verdict: whether it should go on taking work; drain with a critical finding, "
            f"watch with a warning. {_UNREAD}",
            Cell("Bottleneck", bottleneck(), texts=BOTTLENECK),
            Cell("Verdict", gpu_state(), texts=GPU_STATE),
            size=_THIRD,
        ),
        strip(
            "What it does now",
            "Status: whether it answered the driver in time. P-state: P0 is the fastest; P8 and above are idle. "
            f"{_UNREAD}",
            Cell("Status", gpu("gpu_up"), texts=REACHED),
            Cell("Busy, 5 min", gpu("instance_gpu:gpu_busy:ratio5m"), unit="percentunit", decimals=0),
            Cell("P-state", gpu("gpu_performance_state"), unit="prefix: P"),
            size=_THIRD,
        ),
        strip(
            "What it draws now",
            f"Power of the whole board, and temperature of the chip. {_UNREAD}",
            Cell("Power", gpu("gpu_power_watts"), unit="watt", decimals=0),
            Cell("Temperature", gpu("gpu_temperature_celsius", 'sensor="gpu"'), unit="celsius", decimals=0),
            size=_THIRD,
        ),
        timeline(
            "Bottleneck",
            "Which resource limited it at each moment. The first change of color is the moment to explain. No data: it "
            "was not judged.",
            bottleneck(),
            texts=BOTTLENECK,
            size=Size(24, 4),
        ),
        findings(Size(24, 6)),
        _utilization(),
        _memory(),
        power_and_limits(),
        temperatures(),
        _time_in_each_class(),
    )


def _what_it_is() -> Row:
    return Row(
        "What it is, and how it is set",
        table_of(
            "Identity",
            "Model, firmware and location. GPUs of one job that differ here may differ in speed. No data: the exporter "
            "does not know this GPU.",
            HOST,
            GPU_COLUMN,
            *(Column(title, label=label) for label, title in _IDENTITY.items()),
            Column("Known", expr=gpu("gpu_info"), hidden=True),
            size=Size(24, 4),
        ),
        table_of(
            "Settings",
            "Modes and settings. N/A: this model does not have it. Without persistence mode, each process takes "
            "seconds longer to start; a compute mode other than default keeps further processes out. No data: the "
            "driver reports none.",
            Column("Persistence", expr=by_gpu(gpu("gpu_persistence_mode")), texts=ON),
            Column("MIG", expr=by_gpu(gpu("gpu_mig_mode")), texts=ON),
            Column("ECC", expr=by_gpu(gpu("gpu_ecc_mode")), texts=ON),
            Column("ECC after reboot", expr=by_gpu(gpu("gpu_ecc_mode_pending")), texts=ON),
            Column("vGPU license", expr=by_gpu(gpu("gpu_vgpu_license_state")), texts=VGPU_LICENSE),
            Column("Virtualization", expr=by_gpu(gpu("gpu_virtualization_mode")), texts=VIRTUALIZATION),
            Column("OS manages memory", expr=by_gpu(gpu("gpu_memory_os_managed")), texts=YES),
            Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node"))),
            Column("Compute mode", label="mode"),
            Column("Mode", expr=by_gpu(gpu("gpu_compute_mode_info"), "mode"), hidden=True),
            size=Size(14, 4),
        ),
        table_of(
            "Driver and host",
            "Versions and platform. No data: no driver answers.",
            Column("Driver", label="driver_version"),
            Column("CUDA", label="cuda_version"),
            Column("NVML", label="nvml_version"),
            Column("Loaded", expr=_VERSIONS, hidden=True),
            Column("IOMMU", expr=by_host(host("gpu_host_iommu_active")), texts=ON),
            Column("Virtual machine", expr=by_host(host("gpu_host_virtual_machine")), texts=YES),
            Column("NUMA nodes", expr=by_host(host("gpu_host_numa_nodes"))),
            Column("Modules", expr=f"count by ({TARGET}) ({host('gpu_kernel_module_loaded')} == 1)"),
            size=Size(10, 4),
        ),
        folded=True,
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

_VERSIONS = f"max by ({TARGET}, driver_version, cuda_version, nvml_version) ({host('gpu_driver_info')})"


def _time_in_each_class() -> PanelBuilder:
    seconds = gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name)
    return table_of(
        "Time in each class",
        "How long each resource limited it in the time shown, from the seconds counter. Compute is its own work. No "
        "data: it was not judged.",
        Column("Class", label="class", texts=CLASS, width=130),
        Column("Time", expr=f"sum by ({TARGET}, gpu, class) (increase({seconds}[$__range])) > 0", unit="s", decimals=0),
        sort="-Time",
        size=Size(24, 6),
    )


def _utilization() -> PanelBuilder:
    return shares(
        "Utilization",
        "Share of time in which any kernel ran, or memory was read or written. High does not mean fast: "
        "compare it with SM activity. No data: the driver reports no utilization.",
        Query(gpu("gpu_sm_utilization_ratio"), legend("SM")),
        Query(gpu("gpu_memory_utilization_ratio"), legend("memory")),
        Query(gpu("gpu_encoder_utilization_ratio"), legend("encoder")),
        Query(gpu("gpu_decoder_utilization_ratio"), legend("decoder")),
        Query(gpu("gpu_jpeg_utilization_ratio"), legend("JPEG")),
        Query(f"{rate(gpu('gpu_busy_seconds_total'))} / {rate(gpu('gpu_observed_seconds_total'))}", legend("busy")),
        size=SMALL,
    )


def _memory() -> PanelBuilder:
    return lines(
        "GPU memory",
        "Used, free, and reserved by the driver. Near the total and rising: the next allocation fails. BAR1 is "
        "the window through which the CPU and peers reach it: if it is full, GPUDirect and peer mappings fail. "
        "No data: the driver reports no memory.",
        *[Query(gpu(f"gpu_memory_{what}_bytes"), legend(what)) for what in ("used", "free", "reserved")],
        Query(gpu("gpu_memory_total_bytes"), legend("total"), limit=True),
        Query(gpu("gpu_bar1_memory_used_bytes"), legend("BAR1 used")),
        Query(gpu("gpu_bar1_memory_total_bytes"), legend("BAR1 total"), limit=True),
        unit="bytes",
        size=SMALL,
    )


def _activity() -> Row:
    return Row(
        "Activity",
        timeline(
            "Compute- or memory-bound",
            "What bounds its kernels in class compute, where it is reported: Hopper and later, or DCGM. Neither: small "
            "kernels, or gaps between them. No data: it is not in class compute, or this card does not report it.",
            gpu(GPU_COMPUTE_BOUND.name),
            texts=BOUND,
            size=Size(24, 3),
        ),
        shares(
            "SM and pipeline activity",
            "From GPM, Hopper and later: SMs with work, resident warps, tensor cores, memory, and the arithmetic "
            "pipes. Memory reaches about 0.8 in practice, the tensor cores of the best trainings about 0.45. No data: "
            "this card does not report it.",
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
            size=Size(14, 7),
        ),
        lines(
            "Video encoder sessions",
            "Open at present. GeForce drivers allow a few at a time: a process that cannot open one fails. No data: "
            "none is open, which only --metrics.profile full publishes, or this card has no encoder.",
            Query(gpu("gpu_encoder_sessions"), legend("sessions")),
            unit="none",
            size=Size(10, 7),
        ),
        folded=True,
    )
