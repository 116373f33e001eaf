"""GPU detail: everything known about one GPU."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.detail_links import links
from dashboards.judgment import findings
from dashboards.panels import Cell, PanelBuilder, Query, Size, lines, strip, timeline
from dashboards.selectors import TARGET, bottleneck, by_gpu, by_host, gpu, host, legend, rate, when
from dashboards.tables import GPU as GPU_COLUMN
from dashboards.tables import HOST, Column, table_of
from dashboards.value_mappings import (
    BOTTLENECK,
    BOUND,
    CLASS,
    FABRIC_CONFIGURATION,
    FABRIC_HEALTH,
    FABRIC_STATE,
    NO_FAULT,
    ON,
    REACHED,
    RECOVERY,
    VERDICT,
    VGPU_LICENSE,
    VIRTUALIZATION,
    YES,
)
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK_SECONDS_TOTAL, GPU_COMPUTE_BOUND, GPU_VERDICT


def board() -> Board:
    return Board(
        uid="gpu-triage-detail",
        title="GPU detail",
        description="Everything about one GPU: what it is, what it does, what limits it, what is wrong with it, who "
        "uses it. Where several Prometheus servers share the hosts, choose the data source that scrapes this one.",
        since="3h",
        runbooks=True,
        one_gpu=True,
        rows=(_now(), _activity(), power(), links(), health(), processes(), instances()),
    )


def _now() -> Row:
    return Row(
        "",
        strip(
            "This GPU now",
            "Bottleneck: which resource limits it. Verdict: whether it should go on taking work; drain with a critical "
            "finding, watch with a warning. Status: whether it answered the driver in time. Busy: share of the last 5 "
            "minutes. Performance state: P0 is the fastest; P8 and above are idle. What is missing could not be read. "
            "No data: the exporter does not answer, or does not know this GPU.",
            Cell("Bottleneck", bottleneck(), texts=BOTTLENECK),
            Cell("Verdict", gpu(GPU_VERDICT.name), texts=VERDICT),
            Cell("Status", gpu("gpu_up"), texts=REACHED),
            Cell("Busy", gpu("instance_gpu:gpu_busy:ratio5m"), unit="percentunit", decimals=0),
            Cell("Power", gpu("gpu_power_watts"), unit="watt", decimals=0),
            Cell("Temperature", gpu("gpu_temperature_celsius", 'sensor="gpu"'), unit="celsius", decimals=0),
            Cell("Performance state", gpu("gpu_performance_state"), unit="prefix: P"),
            size=Size(24, 3),
        ),
        timeline(
            "Bottleneck",
            "Which resource limited it at each moment. The first change of color is the moment to explain. No data: it "
            "was not judged.",
            bottleneck(),
            texts=BOTTLENECK,
            size=Size(24, 4),
        ),
        findings(Size(14, 7)),
        _time_in_each_class(),
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
            Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node"))),
            Column("Compute mode", label="mode"),
            Column("Mode", expr=f"max by ({TARGET}, gpu, mode) ({gpu('gpu_compute_mode_info')})", hidden=True),
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
        size=Size(10, 7),
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
        lines(
            "Utilization",
            "Share of time in which any kernel ran, or memory was read or written. High does not mean fast: "
            "compare it with SM activity. No data: the driver reports no utilization.",
            Query(gpu("gpu_sm_utilization_ratio"), legend("SM")),
            Query(gpu("gpu_memory_utilization_ratio"), legend("memory")),
            Query(gpu("gpu_encoder_utilization_ratio"), legend("encoder")),
            Query(gpu("gpu_decoder_utilization_ratio"), legend("decoder")),
            Query(gpu("gpu_jpeg_utilization_ratio"), legend("JPEG")),
            Query(f"{rate(gpu('gpu_busy_seconds_total'))} / {rate(gpu('gpu_observed_seconds_total'))}", legend("busy")),
            unit="percentunit",
            top=1,
        ),
        lines(
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
            unit="percentunit",
            top=1,
        ),
        lines(
            "GPU memory",
            "Used, free, and reserved by the driver. Near the total and rising: the next allocation fails. BAR1 is "
            "the window through which the CPU and peers reach it: if it is full, GPUDirect and peer mappings fail. "
            "No data: the driver reports no memory.",
            *[Query(gpu(f"gpu_memory_{what}_bytes"), legend(what)) for what in ("used", "free", "reserved", "total")],
            *[Query(gpu(f"gpu_bar1_memory_{what}_bytes"), legend(f"BAR1 {what}")) for what in ("used", "total")],
            unit="bytes",
        ),
        lines(
            "Video encoder sessions",
            "Open at present. GeForce drivers allow a few at a time: a process that cannot open one fails. No data: "
            "none is open, which only --metrics.profile full publishes, or this card has no encoder.",
            Query(gpu("gpu_encoder_sessions"), legend("sessions")),
            unit="none",
            size=Size(24, 5),
        ),
        folded=True,
    )


def power() -> Row:
    return Row(
        "Power, clocks and heat",
        lines(
            "Power and its limits",
            "The enforced limit is the one that counts; below the default: somebody lowered it. Asked for: shown "
            "where another limit applies, for example one set by the BMC. Module: the GPU with its CPU, on GH200, "
            "GB200 and GB300. No data: this card reports no power.",
            Query(gpu("gpu_power_watts"), legend("draws")),
            Query(gpu("gpu_power_limit_watts"), legend("limit")),
            Query(gpu("gpu_power_default_limit_watts"), legend("default limit")),
            Query(gpu("gpu_power_min_limit_watts"), legend("lowest limit")),
            Query(gpu("gpu_power_max_limit_watts"), legend("highest limit")),
            Query(gpu("gpu_power_requested_limit_watts"), legend("limit asked for")),
            Query(rate(gpu("gpu_energy_joules_total")), legend("mean, from energy")),
            Query(gpu("gpu_module_power_watts"), legend("module draws")),
            Query(gpu("gpu_module_power_limit_watts"), legend("module's limit")),
            unit="watt",
        ),
        lines(
            "Temperatures and limits",
            "Near slowdown the clocks drop; at shutdown the GPU turns itself off. Compare with its neighbors. "
            "Newer cards report how much is left instead, and at how much left they slow down or shut down. No data: "
            "this card reports no temperature.",
            Query(gpu("gpu_temperature_celsius"), legend("{{sensor}}")),
            Query(gpu("gpu_temperature_threshold_celsius"), legend("limit: {{threshold}}")),
            Query(gpu("gpu_temperature_margin_celsius"), legend("left until slowdown")),
            Query(gpu("gpu_temperature_margin_threshold_celsius"), legend("left at {{threshold}}")),
            unit="celsius",
            floor=None,
        ),
        lines(
            "Fans",
            "Share of full speed. Full speed and still hot: dust, a dead fan next to it, or hot air. No data: this "
            "board has no fans of its own.",
            Query(gpu("gpu_fan_speed_ratio"), legend("fan {{fan}}")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "Throttling time by reason",
            "Share of time in which each reason lowered the clocks. Idle is normal, and so is the power cap at "
            "full load. No data: the driver gives no reasons.",
            Query(f"clamp_max({rate(gpu('gpu_throttle_seconds_total'))}, 1)", legend("{{reason}}")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "Throttle reasons, sampled",
            "1 while a reason is active. Samples may miss short ones; the shares in the panel before do not, "
            "unless a line says that the driver's counter of a reason is not used: then that share is sampled too. "
            "A workload power profile (Blackwell and later) may hold clocks or power below the board's defaults. No "
            "data: the driver gives no reasons.",
            Query(gpu("gpu_throttle_active"), legend("{{reason}}")),
            Query(gpu("gpu_throttle_counter_rejected_info"), legend("{{reason}} counter not used: {{cause}}")),
            Query(gpu("gpu_power_profile_info"), legend("power profile {{profile}} {{state}}")),
            unit="none",
            top=1,
        ),
        lines(
            "Clocks",
            "Actual clocks, the highest, and where the driver reports them the application clocks that are set, and "
            "their defaults. Below the maximum under load: see the reasons before. No data: the driver reports no "
            "clocks.",
            Query(gpu("gpu_clock_hertz"), legend("{{clock}}")),
            Query(gpu("gpu_clock_max_hertz"), legend("{{clock}} highest")),
            Query(gpu("gpu_clock_target_hertz"), legend("{{clock}} set")),
            Query(gpu("gpu_clock_default_hertz"), legend("{{clock}} default")),
            unit="hertz",
            size=Size(8, 7),
        ),
        folded=True,
    )


def health() -> Row:
    return Row(
        "Health",
        table_of(
            "Faults and repairs",
            "Anything red kills jobs: drain, then reset or replace. N/A: this model does not report it. No data: the "
            "exporter does not know this GPU.",
            Column("Recovery needed", expr=by_gpu(gpu("gpu_recovery_action")), texts=RECOVERY),
            Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), texts=NO_FAULT),
            Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), texts=NO_FAULT),
            Column("Banks pending", expr=by_gpu(gpu("gpu_bank_remap_pending")), texts=NO_FAULT),
            Column("Pages pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), texts=NO_FAULT),
            Column("SRAM over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), texts=NO_FAULT),
            Column("Fabric", expr=by_gpu(gpu("gpu_fabric_state")), texts=FABRIC_STATE),
            Column("Fabric's health", expr=by_gpu(gpu("gpu_fabric_health")), texts=FABRIC_HEALTH),
            Column("Fabric's configuration", expr=by_gpu(gpu("gpu_fabric_configuration")), texts=FABRIC_CONFIGURATION),
            Column("Failures in one unit", expr=by_gpu(gpu("gpu_xid_suspect_unit_processes"))),
            Column("Fabric's faults", expr=f"sum by ({TARGET}, gpu) ({gpu('gpu_fabric_fault')})"),
            Column("Last reset", expr=when(by_gpu(gpu("gpu_reset_timestamp_seconds"))), unit="dateTimeFromNow"),
            Column("Error", label="error"),
            Column("Fails", expr=f"max by ({TARGET}, gpu, error) ({gpu('gpu_error_info')})", hidden=True),
            size=Size(24, 4),
        ),
        table_of(
            "Fabric over several hosts",
            "GPUs of one clique reach each other's memory through the switches, also on other hosts. "
            "No data: the GPU is not in a fabric of several hosts.",
            Column("Fabric", label="cluster_uuid"),
            Column("Clique", label="clique"),
            Column(
                "Joined", expr=f"max by ({TARGET}, gpu, cluster_uuid, clique) ({gpu('gpu_fabric_info')})", hidden=True
            ),
            size=Size(8, 5),
        ),
        table_of(
            "Incidents",
            "How often this board, and this slot, had the same fault. A reset will not fix what keeps coming back. No "
            "data: no fault in 30 days, or the exporter keeps no incidents.",
            Column("Fault", label="kind"),
            Column("On the", label="by"),
            Column("Last 7 days", expr=_incidents(_WEEK)),
            Column("Last 30 days", expr=_incidents(_MONTH)),
            Column(
                "Boards in this slot",
                expr=f"max by ({TARGET}, gpu, kind) ({gpu('gpu_incident_boards_recent', _MONTH)})",
            ),
            sort="-Last 30 days",
            size=Size(16, 5),
        ),
        lines(
            "ECC errors per hour",
            "Uncorrected ones kill jobs. More corrected ones than its peers: plan a replacement. dram: the device "
            "memory, which the GPU repairs by remapping. sram: the chip itself, which it cannot repair. No data: "
            "this card has no ECC, or it is off.",
            Query(f"increase({gpu('gpu_ecc_volatile_errors_total')}[1h])", legend("{{severity}}")),
            Query(f"increase({gpu('gpu_ecc_aggregate_errors_total')}[1h])", legend("{{severity}}, lifetime")),
            Query(f"increase({gpu('gpu_ecc_memory_errors_total')}[1h])", legend("{{severity}} in {{memory}}")),
            unit="short",
        ),
        lines(
            "Repaired memory, and spares left",
            "Rows remapped and pages retired so far, by cause, and whole banks replaced. A few rows are normal; a rise "
            "due to uncorrectable errors is not. Banks with few or no spare rows, and groups of banks without spare "
            "banks, cannot be repaired much longer. No data: this card repairs no memory, or does not report it.",
            Query(gpu("gpu_remapped_rows"), legend("rows, {{cause}}")),
            Query(gpu("gpu_retired_pages"), legend("pages, {{cause}}")),
            Query(gpu("gpu_remapped_banks"), legend("banks, {{state}}")),
            Query(gpu("gpu_row_remap_banks"), legend("banks, rows left: {{availability}}")),
            Query(gpu("gpu_bank_remap_groups"), legend("groups, banks left: {{availability}}")),
            unit="short",
        ),
        table_of(
            "Xids of this GPU",
            "Every Xid since the start of the host's kernel log, when it last occurred, and how often in the time "
            "shown. No data: no Xid reported.",
            Column("Xid", label="xid", width=60),
            Column("When", expr=when(f"max by ({TARGET}, gpu, xid) ({_LAST_XID})"), unit="dateTimeFromNow"),
            Column(
                "Times",
                expr=f"sum by ({TARGET}, gpu, xid) (increase({gpu('gpu_xid_errors_total')}[$__range]))",
                decimals=0,
                width=70,
            ),
            sort="-When",
            size=Size(8, 7),
        ),
        folded=True,
    )


_LAST_XID = gpu("gpu_xid_last_timestamp_seconds")

_WEEK = 'days="7"'
_MONTH = 'days="30"'


def _incidents(days: str) -> str:
    return f"max by ({TARGET}, gpu, kind, by) ({gpu('gpu_incidents_recent', days)})"


def processes() -> Row:
    return Row(
        "Workloads",
        table_of(
            "Processes and pods",
            "Who holds the GPU, with user, container, pod and Slurm job where known. The distance to its CPUs is "
            "that of the nearest, shown if none is near: 10 is the GPU's own node. N/A: the driver or the kernel "
            "does not report it, or it does not apply. No data: no process, or the exporter cannot see processes.",
            *(Column(title, label=label) for label, title in _OWNER.items()),
            Column("Known", expr=_named_processes(), hidden=True),
            Column("Memory", expr=_of_process("gpu_process_memory_bytes"), unit="bytes"),
            Column("SM use", expr=_of_process("gpu_process_sm_utilization_ratio"), unit="percentunit", decimals=0),
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
            "Pods and Slurm jobs that the GPU, or a MIG device of it, is allocated to, whether or not they use it. No "
            "data: allocations are unknown; docs/jobs.md of the exporter says how they become known.",
            *(Column(title, label=label) for label, title in _HOLDER.items()),
            Column(
                "State",
                expr=f"max by ({TARGET}, gpu, {', '.join(_HOLDER)}) ({gpu('gpu_allocated')})",
                texts=((0, "free", "text"), (1, "allocated", "text")),
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


def _named_processes() -> str:
    return f"max by ({TARGET}, gpu, {', '.join(_OWNER)}) ({gpu('gpu_process_info')})"


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
            Column(
                "Known", expr=f"max by ({TARGET}, gpu, mig_uuid, profile, gi, ci) ({gpu('gpu_mig_info')})", hidden=True
            ),
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
