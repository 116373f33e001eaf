"""Every metric, declared once: name, kind, help, labels, source. Imports nothing of ours.

Rules, dashboards, docs/METRICS.md and the tests read this file; no metric name is written anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

GPU_LABELS = ("gpu", "uuid")
"""Labels of every per-GPU series: NVML index and UUID."""


class Kind(Enum):
    """What a metric's value means; an INFO series is always 1 and carries its facts in labels."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Tier(Enum):
    """How often a metric is sampled; EVENT ones are pushed."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"
    EVENT = "event"


class Sample(NamedTuple):
    """One value of one metric. Made by MetricSpec.sample, which checks it."""

    spec: MetricSpec
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class MetricSpec:
    """One metric of the catalogue.

    Attributes:
        name: as on the wire, with unit suffix, and `_total` for counters.
        kind: gauge, counter or info.
        tier: how often it is sampled.
        help: a full sentence: meaning, range, when it is absent, how it resets.
        source: NVML function, field id or kernel path it is read from.
        labels: label names in order.
        states: what each value means, where the value is a state; in their order. Help, reference, dashboards, page and
            judges read the names here. Empty for a quantity.
    """

    name: str
    kind: Kind
    tier: Tier
    help: str
    source: str
    labels: tuple[str, ...]
    states: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))

    def value_of(self, state: str) -> int:
        """The value that stands for a state.

        Raises:
            KeyError: there is no such state.
        """
        return {name: value for value, name in self.states.items()}[state]

    def sample(self, value: float, *labels: str) -> Sample:
        """A checked sample of this metric.

        Raises:
            ValueError: the labels are not this metric's, a label is no text that UTF-8 can carry, the value is
                not finite, a counter is negative or an info is not 1. Such a sample must not leave the process.
        """
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has labels {self.labels}, got {labels}")
        if not math.isfinite(value):
            raise ValueError(f"{self.name}: {value} is not a reading; a missing value has no sample")
        if self.kind is Kind.COUNTER and value < 0:
            raise ValueError(f"{self.name}: a counter cannot be {value}")
        if self.kind is Kind.INFO and value != 1:
            raise ValueError(f"{self.name}: an info is always 1, got {value}")
        "".join(labels).encode("utf-8")  # UnicodeEncodeError is a ValueError
        return Sample(self, labels, float(value))


def _gpu(name: str, kind: Kind, tier: Tier, source: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, kind, tier, help_text, source, GPU_LABELS + labels)


def _host(name: str, kind: Kind, tier: Tier, source: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, kind, tier, help_text, source, labels)


def _states(help_text: str, states: Mapping[int, str]) -> tuple[str, Mapping[int, str]]:
    """The help of a metric whose value is a state, with the states' names in it, and the states."""
    named = ", ".join(f"{value} {name}" for value, name in states.items())
    return help_text.replace("{states}", named), MappingProxyType(dict(states))


_G, _C, _I = Kind.GAUGE, Kind.COUNTER, Kind.INFO
_F, _M, _S, _E = Tier.FAST, Tier.MEDIUM, Tier.SLOW, Tier.EVENT

BOTTLENECK_CLASSES = (
    "sick",
    "thermal",
    "power_brake",
    "pcie_link",
    "power_cap",
    "clock_cap",
    "hung",
    "memory",
    "storage",
    "cpu",
    "network",
    "numa",
    "communication",
    "compute",
    "unattributed",
    "idle",
)
"""What can limit a GPU, in the order of the playbook: the first class that matches is the GPU's."""

_BOTTLENECK_HELP, _BOTTLENECK_STATES = _states(
    "Which resource limits the GPU first, judged over the last minute: {states}. One series a GPU, whatever state it is in.",
    dict(enumerate(BOTTLENECK_CLASSES, 1)),
)
_VERDICTS = {0: "keep", 1: "watch", 2: "drain"}
_VERDICT_HELP, _VERDICT_STATES = _states(
    "Whether the GPU should go on taking work: {states}. Drain with a critical finding, watch with a warning. Absent while the GPU cannot be read and nothing was found.",
    _VERDICTS,
)
_HOST_VERDICT_HELP, _HOST_VERDICT_STATES = _states(
    "Whether the host should go on taking work: {states}. The worst verdict of its GPUs and of the host's own findings. Absent while nothing can be read and nothing was found.",
    _VERDICTS,
)

# Identity and presence

INFO = _gpu(
    "gpu_info",
    _I,
    _S,
    "nvmlDeviceGetName and kin",
    "What this GPU is; join on gpu and uuid. Kept while the GPU is lost. A fact the driver does not give is an empty label.",
    "name",
    "pci_bus_id",
    "serial",
    "architecture",
    "compute_capability",
    "vbios_version",
    "board_part_number",
)
UP = _gpu(
    "gpu_up",
    _G,
    _F,
    "the sampler",
    "1 when the GPU answered within its deadline, 0 when it is lost, stalled, missing, denied or needs a reset. A GPU once seen keeps this series, until it is set aside for a virtual machine.",
)
ERROR_INFO = _gpu(
    "gpu_error_info",
    _I,
    _F,
    "the sampler",
    "Why gpu_up is 0, as a named error; absent while it is 1.",
    "error",
)
DEVICES = _host(
    "gpu_devices",
    _G,
    _M,
    "nvmlDeviceGetCount; /sys/bus/pci/devices; --expect.gpu-count, else the baseline; the state directory",
    "Number of NVIDIA GPUs by who counts: nvml (absent while the driver is unavailable), pci (the bus, without those set aside for virtual machines; in a container, as many as it was given), expected (declared, else the baseline's; absent if neither), boot (the most that the driver has shown since the host booted, without those set aside for virtual machines since; without a state directory, since the exporter started).",
    "source",
)
DRIVER_UP = _host(
    "gpu_driver_up", _G, _M, "nvmlInit", "1 while NVML is initialised and answers, 0 while it cannot be used."
)
DRIVER_ERROR_INFO = _host(
    "gpu_driver_error_info",
    _I,
    _M,
    "nvmlInit",
    "Why gpu_driver_up is 0, as a named error; absent while it is 1.",
    "error",
)
DRIVER_INFO = _host(
    "gpu_driver_info",
    _I,
    _S,
    "nvmlSystemGetDriverVersion and kin",
    "Versions of the kernel driver, of CUDA as the driver supports it, and of the NVML library.",
    "driver_version",
    "cuda_version",
    "nvml_version",
)
KERNEL_MODULE_LOADED = _host(
    "gpu_kernel_module_loaded",
    _G,
    _M,
    "/proc/modules",
    "1 when the kernel module is loaded, 0 when not; absent when /proc/modules cannot be read.",
    "module",
)

# Is it doing work?

SM_UTILIZATION = _gpu(
    "gpu_sm_utilization_ratio",
    _G,
    _F,
    "nvmlDeviceGetUtilizationRates.gpu",
    "Share of the driver's last sample period in which at least one kernel ran, 0-1; not occupancy. Absent in MIG mode.",
)
MEMORY_UTILIZATION = _gpu(
    "gpu_memory_utilization_ratio",
    _G,
    _F,
    "nvmlDeviceGetUtilizationRates.memory",
    "Share of the driver's last sample period in which device memory was read or written, 0-1.",
)
BUSY_SECONDS = _gpu(
    "gpu_busy_seconds_total",
    _C,
    _F,
    "nvmlDeviceGetSamples(GPU_UTILIZATION), else the integral of nvmlDeviceGetUtilizationRates.gpu",
    "Seconds in which at least one kernel ran, integrated since the exporter started; misses nothing between scrapes.",
)
SM_ACTIVE = _gpu(
    "gpu_sm_active_ratio",
    _G,
    _F,
    "GPM metric 2 (SM_UTIL)",
    "Share of the SMs that were busy, averaged since the last round, 0-1. Hopper and later; absent in the first round and without permission for GPM.",
)
SM_OCCUPANCY = _gpu(
    "gpu_sm_occupancy_ratio",
    _G,
    _F,
    "GPM metric 3 (SM_OCCUPANCY)",
    "Warps resident on the SMs as a share of the most there can be, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
TENSOR_ACTIVE = _gpu(
    "gpu_tensor_active_ratio",
    _G,
    _F,
    "GPM metric 5 (ANY_TENSOR_UTIL)",
    "Share of time the SMs did tensor operations of any kind, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
DRAM_ACTIVE = _gpu(
    "gpu_dram_active_ratio",
    _G,
    _F,
    "GPM metric 10 (DRAM_BW_UTIL)",
    "Device memory bandwidth in use as a share of the most there can be, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
FP64_ACTIVE = _gpu(
    "gpu_fp64_active_ratio",
    _G,
    _F,
    "GPM metric 11 (FP64_UTIL)",
    "Share of time the SMs did FP64 arithmetic outside the tensor cores, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
FP32_ACTIVE = _gpu(
    "gpu_fp32_active_ratio",
    _G,
    _F,
    "GPM metric 12 (FP32_UTIL)",
    "Share of time the SMs did FP32 arithmetic outside the tensor cores, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
FP16_ACTIVE = _gpu(
    "gpu_fp16_active_ratio",
    _G,
    _F,
    "GPM metric 13 (FP16_UTIL)",
    "Share of time the SMs did FP16 arithmetic outside the tensor cores, averaged since the last round, 0-1. Presence as gpu_sm_active_ratio.",
)
ENCODER_UTILIZATION = _gpu(
    "gpu_encoder_utilization_ratio",
    _G,
    _M,
    "nvmlDeviceGetEncoderUtilization",
    "Share of time the video encoder was busy, 0-1.",
)
DECODER_UTILIZATION = _gpu(
    "gpu_decoder_utilization_ratio",
    _G,
    _M,
    "nvmlDeviceGetDecoderUtilization",
    "Share of time the video decoder was busy, 0-1.",
)
MEMORY_TOTAL = _gpu("gpu_memory_total_bytes", _G, _M, "nvmlDeviceGetMemoryInfo_v2.total", "Device memory installed.")
MEMORY_USED = _gpu(
    "gpu_memory_used_bytes",
    _G,
    _M,
    "nvmlDeviceGetMemoryInfo_v2.used",
    "Device memory allocated, what the driver reserves not included. Frameworks pre-allocate: used is not active.",
)
MEMORY_FREE = _gpu("gpu_memory_free_bytes", _G, _M, "nvmlDeviceGetMemoryInfo_v2.free", "Device memory not allocated.")
MEMORY_RESERVED = _gpu(
    "gpu_memory_reserved_bytes",
    _G,
    _M,
    "nvmlDeviceGetMemoryInfo_v2.reserved",
    "Device memory the driver keeps for itself; absent on drivers older than r510.",
)
BAR1_USED = _gpu("gpu_bar1_memory_used_bytes", _G, _M, "nvmlDeviceGetBAR1MemoryInfo.bar1Used", "BAR1 aperture mapped.")
BAR1_TOTAL = _gpu("gpu_bar1_memory_total_bytes", _G, _M, "nvmlDeviceGetBAR1MemoryInfo.bar1Total", "BAR1 aperture size.")
PERFORMANCE_STATE = _gpu(
    "gpu_performance_state",
    _G,
    _F,
    "nvmlDeviceGetPerformanceState",
    "P-state, 0 (fastest) to 15 (slowest); absent when the driver does not know it.",
)
CLOCK = _gpu("gpu_clock_hertz", _G, _F, "nvmlDeviceGetClockInfo", "Clock frequency now.", "clock")
CLOCK_MAX = _gpu(
    "gpu_clock_max_hertz",
    _G,
    _S,
    "nvmlDeviceGetMaxClockInfo",
    "Highest clock frequency the board supports.",
    "clock",
)
CLOCK_TARGET = _gpu(
    "gpu_clock_target_hertz",
    _G,
    _M,
    "nvmlDeviceGetApplicationsClock",
    "Application clock set by an administrator; below its default it caps every job. Absent where the driver no longer has application clocks.",
    "clock",
)
CLOCK_DEFAULT = _gpu(
    "gpu_clock_default_hertz",
    _G,
    _S,
    "nvmlDeviceGetDefaultApplicationsClock",
    "Default application clock; absent where the driver no longer has application clocks.",
    "clock",
)
PERSISTENCE_MODE = _gpu(
    "gpu_persistence_mode",
    _G,
    _S,
    "nvmlDeviceGetPersistenceMode",
    "1 when the driver stays initialised without clients, 0 when not.",
)
MIG_MODE = _gpu(
    "gpu_mig_mode",
    _G,
    _S,
    "nvmlDeviceGetMigMode",
    "1 when the GPU is partitioned by MIG, 0 when not; absent where MIG does not exist.",
)
COMPUTE_MODE_INFO = _gpu(
    "gpu_compute_mode_info",
    _I,
    _S,
    "nvmlDeviceGetComputeMode",
    "Who may open contexts: default, exclusive_thread, prohibited or exclusive_process.",
    "mode",
)

# Power, throttle, heat

POWER = _gpu(
    "gpu_power_watts",
    _G,
    _F,
    "field 186 (instant), else 185 (average), else nvmlDeviceGetPowerUsage",
    "Power drawn by the board: instantaneous where the driver offers it, else its one-second average.",
)
POWER_LIMIT = _gpu(
    "gpu_power_limit_watts",
    _G,
    _F,
    "nvmlDeviceGetEnforcedPowerLimit",
    "The power cap that applies now, out-of-band limits included.",
)
POWER_DEFAULT_LIMIT = _gpu(
    "gpu_power_default_limit_watts",
    _G,
    _S,
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "The power cap the board ships with.",
)
POWER_MIN_LIMIT = _gpu(
    "gpu_power_min_limit_watts",
    _G,
    _S,
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "Lowest power cap that may be set.",
)
POWER_MAX_LIMIT = _gpu(
    "gpu_power_max_limit_watts",
    _G,
    _S,
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "Highest power cap that may be set.",
)
ENERGY = _gpu(
    "gpu_energy_joules_total",
    _C,
    _F,
    "nvmlDeviceGetTotalEnergyConsumption",
    "Energy used, as the driver counts it since it was loaded. Volta and later.",
)
THROTTLE_ACTIVE = _gpu(
    "gpu_throttle_active",
    _G,
    _F,
    "nvmlDeviceGetCurrentClocksEventReasons & nvmlDeviceGetSupportedClocksEventReasons",
    "1 while the driver gives this reason for the present clocks, 0 while not; one series for every reason the GPU supports.",
    "reason",
)
THROTTLE_SECONDS = _gpu(
    "gpu_throttle_seconds_total",
    _C,
    _F,
    "fields 74, 76 and the slowdown counters of the driver at hand, else the integral of gpu_throttle_active",
    "Seconds for which this reason held the clocks: the driver's own counter where it has one, else integrated since the exporter started.",
    "reason",
)
TEMPERATURE = _gpu(
    "gpu_temperature_celsius",
    _G,
    _M,
    "nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; field 82",
    "Temperature by sensor: gpu, memory.",
    "sensor",
)
TEMPERATURE_THRESHOLD = _gpu(
    "gpu_temperature_threshold_celsius",
    _G,
    _S,
    "nvmlDeviceGetTemperatureThreshold",
    "Temperature at which the GPU slows down, shuts down, or that its GPU or memory should not pass.",
    "threshold",
)
TEMPERATURE_MARGIN = _gpu(
    "gpu_temperature_margin_celsius",
    _G,
    _M,
    "nvmlDeviceGetMarginTemperature",
    "Degrees left until the GPU slows down; absent on drivers older than r570.",
)
FAN_SPEED = _gpu(
    "gpu_fan_speed_ratio",
    _G,
    _M,
    "nvmlDeviceGetFanSpeed_v2",
    "Intended fan speed as a share of the maximum; absent on boards without fans of their own.",
    "fan",
)

# PCIe

PCIE_GENERATION = _gpu(
    "gpu_pcie_link_generation",
    _G,
    _M,
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "PCIe generation the link runs at now; idle cards shift down on purpose.",
)
PCIE_WIDTH = _gpu("gpu_pcie_link_width", _G, _M, "nvmlDeviceGetCurrPcieLinkWidth", "PCIe lanes the link runs with now.")
PCIE_DEVICE_MAX_GENERATION = _gpu(
    "gpu_pcie_link_device_max_generation",
    _G,
    _S,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration, else sysfs max_link_speed",
    "Highest PCIe generation the card can do.",
)
PCIE_DEVICE_MAX_WIDTH = _gpu(
    "gpu_pcie_link_device_max_width", _G, _S, "sysfs max_link_width", "Most PCIe lanes the card can use."
)
PCIE_SLOT_MAX_GENERATION = _gpu(
    "gpu_pcie_link_slot_max_generation",
    _G,
    _S,
    "sysfs max_link_speed of the upstream port",
    "Highest PCIe generation of the port above the card; absent where there is none to see.",
)
PCIE_SLOT_MAX_WIDTH = _gpu(
    "gpu_pcie_link_slot_max_width",
    _G,
    _S,
    "sysfs max_link_width of the upstream port",
    "Most PCIe lanes of the port above the card; absent where there is none to see.",
)
PCIE_EXPECTED_GENERATION = _gpu(
    "gpu_pcie_link_expected_generation",
    _G,
    _S,
    "min(card, slot, nvmlDeviceGetMaxPcieLinkGeneration), or --expect.pcie-generation",
    "PCIe generation this link should reach under load.",
)
PCIE_EXPECTED_WIDTH = _gpu(
    "gpu_pcie_link_expected_width",
    _G,
    _S,
    "min(card, slot, nvmlDeviceGetMaxPcieLinkWidth), or --expect.pcie-width",
    "PCIe lanes this link should have.",
)
PCIE_TRANSITIONS = _gpu(
    "gpu_pcie_link_transitions_total",
    _C,
    _M,
    "the exporter, from successive readings",
    "Changes of the link's generation or width seen between samples since the exporter started.",
    "attribute",
)
PCIE_TRANSMIT_BYTES = _gpu(
    "gpu_pcie_transmit_bytes_total",
    _C,
    _M,
    "field 197",
    "Bytes the GPU sent over PCIe since the exporter started, unwrapped; absent on drivers without the counter.",
)
PCIE_RECEIVE_BYTES = _gpu(
    "gpu_pcie_receive_bytes_total",
    _C,
    _M,
    "field 198",
    "Bytes the GPU received over PCIe since the exporter started, unwrapped; absent on drivers without the counter.",
)
PCIE_THROUGHPUT = _gpu(
    "gpu_pcie_throughput_bytes_per_second",
    _G,
    _M,
    "nvmlDeviceGetPcieThroughput",
    "PCIe traffic over a 20 ms window; each reading blocks that long, so the collector is off by default.",
    "direction",
)
PCIE_REPLAYS = _gpu(
    "gpu_pcie_replays_total",
    _C,
    _M,
    "nvmlDeviceGetPcieReplayCounter",
    "PCIe packets sent again after a link error, as the driver counts them since it was loaded.",
)
PCIE_ERRORS = _gpu(
    "gpu_pcie_errors_total",
    _C,
    _M,
    "NVML fields 173-183 and 169",
    "Errors of the PCIe link as the GPU counts them, by type: correctable, naks_received, receiver, bad_tlp, naks_sent, bad_dllp, non_fatal, fatal, unsupported_request, lcrc, lane, l0_to_recovery. The last also grows when the link changes its speed. What the driver or the board does not count is absent.",
    "type",
)
PCIE_AER_ERRORS = _gpu(
    "gpu_pcie_aer_errors_total",
    _C,
    _M,
    "sysfs aer_dev_{correctable,nonfatal,fatal} of the GPU and of the port above it",
    "PCIe errors the kernel was told of (AER), by who reported them (gpu, or the port at the other end of its link) and severity (correctable, nonfatal, fatal). An error may show at one end only. Read without the driver, so kept while the GPU does not answer. Absent where the kernel has no AER for the device, as in most virtual machines.",
    "device",
    "severity",
)

# Topology

P2P_STATUS = _gpu(
    "gpu_p2p_status",
    _I,
    _S,
    "nvmlDeviceGetP2PStatus",
    "Whether this GPU can reach that peer directly, by capability; one series per ordered pair and capability.",
    "peer_gpu",
    "peer_uuid",
    "capability",
    "status",
)
P2P_EXPECTED = _host(
    "gpu_p2p_expected",
    _G,
    _S,
    "--expect.p2p",
    "1 when GPUs of one model should reach each other directly, 0 when they should not, as declared, else as they all did when the baseline was recorded; absent if neither says.",
)
TOPOLOGY_INFO = _gpu(
    "gpu_topology_info",
    _I,
    _S,
    "nvmlDeviceGetTopologyCommonAncestor",
    "Nearest common ancestor of two GPUs on the bus: internal, pix, pxb, phb, node or sys; one series per unordered pair.",
    "peer_gpu",
    "peer_uuid",
    "level",
)
NUMA_NODE = _gpu(
    "gpu_numa_node",
    _G,
    _S,
    "sysfs numa_node of the PCI device",
    "NUMA node the GPU hangs off; -1 when the firmware does not say.",
)
NVLINK_UP = _gpu(
    "gpu_nvlink_up",
    _G,
    _M,
    "NVML field 165, else nvmlDeviceGetNvLinkState",
    "1 while the NVLink link is active or asleep (it wakes by itself), 0 while it is inactive or its traffic is disabled. Absent for links the GPU does not have, and for those that lead nowhere (no bridge, unused by the board): down ever since the exporter started, without traffic or errors counted, and without a far end that the driver could name.",
    "link",
)
NVLINK_ERRORS = _gpu(
    "gpu_nvlink_errors_total",
    _C,
    _M,
    "NVML fields 161-163, else 215 for recoveries, else 32-59 and 96-119",
    "Errors of the NVLink link by type (replay, recovery, crc), as the driver counts them since it was loaded; absent for what it does not count, such as replay and crc on Blackwell.",
    "link",
    "type",
)
NVLINK_TRANSMIT_BYTES = _gpu(
    "gpu_nvlink_transmit_bytes_total",
    _C,
    _M,
    "NVML field 138, else 202",
    "Data the GPU sent over the NVLink link since the driver was loaded; protocol overhead counts only where the driver cannot leave it out.",
    "link",
)
NVLINK_RECEIVE_BYTES = _gpu(
    "gpu_nvlink_receive_bytes_total",
    _C,
    _M,
    "NVML field 139, else 204",
    "Data the GPU received over the NVLink link since the driver was loaded; protocol overhead counts only where the driver cannot leave it out.",
    "link",
)
NIC_TOPOLOGY_INFO = _gpu(
    "gpu_nic_topology_info",
    _I,
    _S,
    "PCI paths in /sys/class/{net,infiniband}/*/device",
    "Nearest common ancestor of the GPU and a network adapter on the bus: pix (at most one PCIe switch), pxb (several), phb (the host bridge), node (another host bridge of the NUMA node) or sys. An RDMA adapter has a series under each of its names; virtual functions of this host have none.",
    "nic",
    "level",
)
HOST_NUMA_NODES = _host(
    "gpu_host_numa_nodes", _G, _S, "/sys/devices/system/node", "NUMA nodes of the host that have CPUs."
)
HOST_IOMMU_ACTIVE = _host(
    "gpu_host_iommu_active",
    _G,
    _S,
    "/sys/class/iommu, /sys/kernel/iommu_groups",
    "1 when the kernel has an IOMMU in use, if only to pass accesses through, 0 when not; absent on kernels without IOMMU support.",
)

# Sickness

ECC_MODE = _gpu(
    "gpu_ecc_mode",
    _G,
    _S,
    "nvmlDeviceGetEccMode",
    "1 when ECC is on, 0 when off; absent on boards without ECC.",
)
ECC_MODE_PENDING = _gpu(
    "gpu_ecc_mode_pending", _G, _S, "nvmlDeviceGetEccMode", "ECC mode after the next reboot: 1 on, 0 off."
)
ECC_VOLATILE_ERRORS = _gpu(
    "gpu_ecc_volatile_errors_total",
    _C,
    _M,
    "nvmlDeviceGetTotalEccErrors(VOLATILE)",
    "ECC errors since the driver was loaded or the GPU reset.",
    "severity",
)
ECC_AGGREGATE_ERRORS = _gpu(
    "gpu_ecc_aggregate_errors_total",
    _C,
    _M,
    "nvmlDeviceGetTotalEccErrors(AGGREGATE)",
    "ECC errors over the life of the board, as its InfoROM keeps them.",
    "severity",
)
ECC_SRAM_THRESHOLD_EXCEEDED = _gpu(
    "gpu_ecc_sram_threshold_exceeded",
    _G,
    _S,
    "nvmlDeviceGetSramEccErrorStatus",
    "1 when uncorrected SRAM errors passed the board's threshold for replacement.",
)
RETIRED_PAGES = _gpu(
    "gpu_retired_pages",
    _G,
    _S,
    "nvmlDeviceGetRetiredPages",
    "Memory pages retired for good, by cause; GPUs before Ampere.",
    "cause",
)
RETIRED_PAGES_PENDING = _gpu(
    "gpu_retired_pages_pending",
    _G,
    _S,
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "1 when pages wait for a reboot to be retired.",
)
REMAPPED_ROWS = _gpu(
    "gpu_remapped_rows",
    _G,
    _S,
    "nvmlDeviceGetRemappedRows",
    "Memory rows replaced by spare ones for good, by cause; Ampere and later.",
    "cause",
)
ROW_REMAP_PENDING = _gpu(
    "gpu_row_remap_pending",
    _G,
    _S,
    "nvmlDeviceGetRemappedRows",
    "1 when rows wait for a GPU reset to be remapped.",
)
ROW_REMAP_FAILURE = _gpu(
    "gpu_row_remap_failure",
    _G,
    _S,
    "nvmlDeviceGetRemappedRows",
    "1 when a remapping failed at any time: the board is due for replacement.",
)
ROW_REMAP_BANKS = _gpu(
    "gpu_row_remap_banks",
    _G,
    _S,
    "nvmlDeviceGetRowRemapperHistogram",
    "Memory banks by how many spare rows they have left.",
    "availability",
)
XID_ERRORS = _gpu(
    "gpu_xid_errors_total",
    _C,
    _E,
    "nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
    "Xid errors of the GPU by code, each counted once though NVML and the kernel log report it. Starts with what the kernel log still holds. The codes that programs often cause (13, 31, 32, 43, 45, 68, 69) start at 0 once Xids are heard, the others are absent until there is one. Codes beyond the first 64 of a GPU are counted as other. `fatal` is true or false for the NVLink 5 codes (144 to 150) whose kernel message says Fatal or Nonfatal, and empty otherwise.",
    "xid",
    "fatal",
)
XID_LAST_TIMESTAMP = _gpu(
    "gpu_xid_last_timestamp_seconds",
    _G,
    _E,
    "nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
    "Unix time of the last Xid error of this code, as the kernel stamped it, else when NVML told of it. Alert on its age: the count starts anew with the exporter.",
    "xid",
    "fatal",
)
XID_UNASSIGNED_ERRORS = _host(
    "gpu_xid_unassigned_errors_total",
    _C,
    _E,
    "/dev/kmsg, NVRM: Xid",
    "As gpu_xid_errors_total, for a GPU that the driver has not shown since the exporter started, as when it fell off the bus before; moves there once the GPU is seen. Also what happened, before the exporter started, at this address before the kernel found the present GPU there: it may be of a card since replaced.",
    "pci_bus_id",
    "xid",
    "fatal",
)
XID_UNASSIGNED_LAST_TIMESTAMP = _host(
    "gpu_xid_unassigned_last_timestamp_seconds",
    _G,
    _E,
    "/dev/kmsg, NVRM: Xid",
    "As gpu_xid_last_timestamp_seconds, for a GPU that the driver has not shown since the exporter started, or that was replaced before.",
    "pci_bus_id",
    "xid",
    "fatal",
)
RESET_TIMESTAMP = _gpu(
    "gpu_reset_timestamp_seconds",
    _G,
    _E,
    "/proc/stat, btime; /dev/kmsg; the sampler",
    "Unix time at which the GPU was last initialised anew, as far as the exporter knows: the boot, a driver that was loaded, a card that the kernel found on the bus, GPUs released and acquired again, a reset that the driver had asked for and asks for no more, volatile ECC errors that went back between two sessions. What the GPU reported before that is of the past. Opening NVML again and a restart of the exporter are no such signs. Absent where none is known.",
)
INCIDENTS_RECENT = _gpu(
    "gpu_incidents_recent",
    _G,
    _E,
    "the sampler; the state directory",
    "Incidents of one kind within the last 7 or 30 days, on this board wherever it was (by=board) or in this slot whichever board was there (by=slot); absent while there was none. Without gpu and uuid: a slot that had Xids and whose GPU the driver has not shown. Kinds are the Xids that ask for a page or a ticket, lost, uncorrected (memory errors) and reset. Incidents of one kind on one board that are less than an hour apart are one. Without a state directory, since the exporter started.",
    "pci_bus_id",
    "by",
    "kind",
    "days",
)
INCIDENT_BOARDS_RECENT = _gpu(
    "gpu_incident_boards_recent",
    _G,
    _E,
    "the sampler; the state directory",
    "Different boards that had an incident of this kind in this GPU's slot within the last 30 days: more than one points at the slot. Absent while there was none.",
    "pci_bus_id",
    "kind",
    "days",
)

RECOVERY_ACTION = _gpu(
    "gpu_recovery_action",
    _G,
    _M,
    "NVML field 230",
    "What the driver asks for to get this GPU well: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain peer-to-peer work, 4 drain and reset, 5 recover the IMEX domain, 6 reset the bus, 7 reboot the system. Absent before driver 570.",
)
FABRIC_STATE = _gpu(
    "gpu_fabric_state",
    _G,
    _S,
    "nvmlDeviceGetGpuFabricInfoV state",
    "How far the GPU has joined the NVSwitch fabric: 1 not started, 2 in progress, 3 completed; absent on systems without one.",
)
FABRIC_HEALTH = _gpu(
    "gpu_fabric_health",
    _G,
    _S,
    "nvmlDeviceGetGpuFabricInfoV healthSummary",
    "Health of the GPU's part of the NVSwitch fabric: 1 healthy, 2 unhealthy or joining failed, 3 limited capacity; absent without a fabric and on drivers that give no summary.",
)

# Processes and locality

PROCESSES = _gpu(
    "gpu_processes",
    _G,
    _M,
    "nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses",
    "Processes that have a context on the GPU, each in one type: compute, graphics, compute_graphics (in both of the driver's lists, as a desktop's compositor is), mps. Absent where nobody knows, as in a PID namespace other than the host's with an empty list: gpu_exporter_degraded_info names that.",
    "type",
)
PROCESS_MEMORY = _gpu(
    "gpu_process_memory_bytes",
    _G,
    _M,
    "nvmlDeviceGet*RunningProcesses.usedGpuMemory",
    "Device memory a process holds; absent when the driver cannot tell.",
    "pid",
    "process",
)
PROCESS_SM_UTILIZATION = _gpu(
    "gpu_process_sm_utilization_ratio",
    _G,
    _M,
    "nvmlDeviceGetProcessUtilization.smUtil",
    "Share of time this process's kernels ran, 0-1, over the last round; absent in MIG mode.",
    "pid",
    "process",
)
PROCESSES_TRUNCATED = _gpu(
    "gpu_processes_truncated",
    _G,
    _M,
    "the exporter",
    "Processes left out of the per-process series by --process.max, smallest first.",
)
PROCESS_INFO = _gpu(
    "gpu_process_info",
    _I,
    _M,
    "/proc/PID/{comm,status,cgroup}; the kubelet's pod resources",
    "Whose process it is; join on gpu, uuid and pid. What does not apply or cannot be read is an empty label. The workload's names are those of the one container that holds the GPU, or of the one pod whose containers do; empty where several pods share it and without --kubernetes.pod-resources-socket.",
    "pid",
    "process",
    "user",
    "container_id",
    "pod_uid",
    "workload_pod",
    "workload_namespace",
    "workload_container",
    "slurm_job_id",
)
PROCESS_NUMA_LOCAL = _gpu(
    "gpu_process_numa_local",
    _G,
    _M,
    "/proc/PID/status Cpus_allowed_list against the GPU's NUMA node",
    "1 when every CPU the process may use is on the GPU's NUMA node, 0 when none is; absent when it spans nodes, on single-node hosts and when unknown.",
    "pid",
    "process",
)
PROCESS_NUMA_MEMORY_LOCAL = _gpu(
    "gpu_process_numa_memory_local_ratio",
    _G,
    _S,
    "/proc/PID/numa_maps against the GPU's NUMA node",
    "Share of the process's resident memory that is on the GPU's NUMA node, 0-1; absent on single-node hosts, when unknown and where /proc/PID/numa_maps may not be read. Reading it walks the process's page tables under its memory lock, so the collector is off by default.",
    "pid",
    "process",
)
NUMA_MISMATCHED_PROCESSES = _gpu(
    "gpu_numa_mismatched_processes",
    _G,
    _M,
    "/proc/PID/status",
    "Compute processes whose every allowed CPU is on another NUMA node than the GPU; absent when unknown or single-node.",
)
NUMA_UNPINNED_PROCESSES = _gpu(
    "gpu_numa_unpinned_processes",
    _G,
    _M,
    "/proc/PID/status",
    "Compute processes that may run on every CPU of a host with several NUMA nodes; absent when unknown or single-node.",
)

# MIG

MIG_INFO = _gpu(
    "gpu_mig_info",
    _I,
    _M,
    "nvmlDeviceGetMigDeviceHandleByIndex; nvmlDeviceGetName, else nvmlDeviceGetAttributes_v2",
    "A MIG device that exists now: its GPU instance, its compute instance, and its profile as nvidia-smi names it; join on gpu, uuid and mig_uuid. Absent outside MIG mode.",
    "mig_uuid",
    "gi",
    "ci",
    "profile",
)
MIG_MEMORY_USED = _gpu(
    "gpu_mig_memory_used_bytes",
    _G,
    _M,
    "nvmlDeviceGetMemoryInfo_v2.used of the MIG device",
    "Device memory allocated on the GPU instance; compute instances that share one show the same.",
    "mig_uuid",
)
MIG_MEMORY_TOTAL = _gpu(
    "gpu_mig_memory_total_bytes",
    _G,
    _M,
    "nvmlDeviceGetMemoryInfo_v2.total of the MIG device",
    "Device memory of the GPU instance; compute instances that share one show the same.",
    "mig_uuid",
)
MIG_SM_ACTIVE = _gpu(
    "gpu_mig_sm_active_ratio",
    _G,
    _M,
    "nvmlGpmMigSampleGet, GPM metric 2 (SM_UTIL)",
    "Share of the GPU instance's SMs that were busy, averaged since the last round, 0-1; compute instances that share one show the same. Hopper and later; absent in an instance's first round and without permission for GPM.",
    "mig_uuid",
)
MIG_TENSOR_ACTIVE = _gpu(
    "gpu_mig_tensor_active_ratio",
    _G,
    _M,
    "nvmlGpmMigSampleGet, GPM metric 5 (ANY_TENSOR_UTIL)",
    "Share of time the GPU instance's SMs did tensor operations of any kind, averaged since the last round, 0-1. Presence as gpu_mig_sm_active_ratio.",
    "mig_uuid",
)
MIG_DRAM_ACTIVE = _gpu(
    "gpu_mig_dram_active_ratio",
    _G,
    _M,
    "nvmlGpmMigSampleGet, GPM metric 10 (DRAM_BW_UTIL)",
    "The GPU instance's memory bandwidth in use as a share of the most there can be, averaged since the last round, 0-1. Presence as gpu_mig_sm_active_ratio.",
    "mig_uuid",
)

# Judgement

BOTTLENECK = MetricSpec("gpu_bottleneck", _G, _M, _BOTTLENECK_HELP, "the judge", GPU_LABELS, _BOTTLENECK_STATES)
BOTTLENECK_SECONDS = _gpu(
    "gpu_bottleneck_seconds_total",
    _C,
    _M,
    "the judge",
    "Seconds that the GPU spent in each class of gpu_bottleneck since the exporter started or first saw it; every class is there from the start. The classes of a GPU add up to the time for which it was judged: time in which the exporter was stopped does not count.",
    "class",
)
VERDICT = MetricSpec("gpu_verdict", _G, _M, _VERDICT_HELP, "the judge", GPU_LABELS, _VERDICT_STATES)
HOST_VERDICT = MetricSpec("gpu_host_verdict", _G, _M, _HOST_VERDICT_HELP, "the judge", (), _HOST_VERDICT_STATES)
FINDING_SINCE = _gpu(
    "gpu_finding_since_timestamp_seconds",
    _G,
    _M,
    "the judge",
    "Unix time at which a finding that is present now began, as far as this process saw. One that comes back within five minutes keeps its beginning; absent while there is none.",
    "code",
    "severity",
    "action",
)
HOST_FINDING_SINCE = _host(
    "gpu_host_finding_since_timestamp_seconds",
    _G,
    _M,
    "the judge",
    "Unix time at which a finding about the host that is present now began, as gpu_finding_since_timestamp_seconds.",
    "code",
    "severity",
    "action",
)

# Baseline

BASELINE_MISMATCH = _gpu(
    "gpu_baseline_mismatch",
    _G,
    _M,
    "--baseline.file, or what --baseline.from-host learned, against the readings of the other collectors",
    "1 when the field differs from the baseline, 0 when it does not; absent without a baseline, where either side does not report the field, and without gpu and uuid where it is the host's. Kept while the GPU is lost.",
    "field",
)
BASELINE_INFO = _host(
    "gpu_baseline_info",
    _I,
    _M,
    "--baseline.file, or what --baseline.from-host learned",
    "The baseline in use: the SHA-256 of its file and when it was recorded (UTC, RFC 3339); absent when there is none that can be used.",
    "sha256",
    "recorded",
)

# The exporter itself

EXPORTER_BUILD_INFO = _host(
    "gpu_exporter_build_info",
    _I,
    _S,
    "the package",
    "What is running: version, source revision where the build knew it, and Python version.",
    "version",
    "revision",
    "python_version",
)
EXPORTER_SIMULATED = _host(
    "gpu_exporter_simulated",
    _G,
    _S,
    "--simulate",
    "1 when everything here is made up by a simulated host, 0 on a real one.",
)
EXPORTER_COLLECTOR_SUCCESS = _host(
    "gpu_exporter_collector_success",
    _G,
    _F,
    "the sampler",
    "1 when the collector's last round succeeded for the host or for any GPU, 0 when it failed as a whole; what a single GPU could not answer is in gpu_up and gpu_exporter_errors_total.",
    "collector",
)
EXPORTER_COLLECTOR_DURATION = _host(
    "gpu_exporter_collector_duration_seconds",
    _G,
    _F,
    "the sampler",
    "How long the collector's last round took, for its slowest GPU.",
    "collector",
)
EXPORTER_COLLECTOR_INTERVAL = _host(
    "gpu_exporter_collector_interval_seconds",
    _G,
    _S,
    "--sample.fast, --sample.medium, --sample.slow",
    "How often the collector runs.",
    "collector",
)
EXPORTER_COLLECTOR_LAST_SUCCESS = _host(
    "gpu_exporter_collector_last_success_timestamp_seconds",
    _G,
    _F,
    "the sampler",
    "Unix time at which the collector last succeeded for the host or for any GPU; absent until it has.",
    "collector",
)
EXPORTER_ERRORS = _host(
    "gpu_exporter_errors_total",
    _C,
    _F,
    "the sampler",
    "Failed questions by collector and named error since the exporter started; what hardware does not support is no error.",
    "collector",
    "error",
)
EXPORTER_TEXTFILE_MTIME = _host(
    "gpu_exporter_textfile_mtime_seconds",
    _G,
    _M,
    "--collector.textfile.directory",
    "Unix time at which a job's file was last written; what is in it is as old.",
    "file",
)
EXPORTER_TEXTFILE_ERROR_INFO = _host(
    "gpu_exporter_textfile_error_info",
    _I,
    _M,
    "--collector.textfile.directory",
    "Why a job's file is not republished, as a named error; absent while it is.",
    "file",
    "error",
)
EXPORTER_SCRAPES = _host(
    "gpu_exporter_scrapes_total", _C, _F, "the web server", "Scrapes answered since the exporter started."
)
EXPORTER_GPUS_RELEASED = _host(
    "gpu_exporter_gpus_released",
    _G,
    _F,
    "the sampler",
    "1 while the exporter holds no GPU handle because it was asked to let go, 0 else.",
)
EXPORTER_WEB_CONFIG_SUCCESS = _host(
    "gpu_exporter_web_config_reload_success",
    _G,
    _F,
    "--web.config.file",
    "1 while TLS, passwords and headers are as the web configuration file and the files it names say, 0 when they changed to something that cannot be used and what was loaded last stays in force. Absent without such a file.",
)
EXPORTER_WEB_CONFIG_LAST_SUCCESS = _host(
    "gpu_exporter_web_config_last_reload_success_timestamp_seconds",
    _G,
    _F,
    "--web.config.file",
    "Unix time at which the TLS settings and passwords in force were loaded. Absent without a web configuration file.",
)
EXPORTER_XID_SOURCE_UP = _host(
    "gpu_exporter_xid_source_up",
    _G,
    _E,
    "the sampler",
    "1 while Xid errors are heard from this source (kmsg, nvml), 0 while not: where all are 0, no Xid means that nobody listens. The kernel log needs permission; NVML hears only what happens while it listens.",
    "source",
)
EXPORTER_DEGRADED_INFO = _host(
    "gpu_exporter_degraded_info",
    _I,
    _S,
    "/proc/1, /proc/self, /dev/kmsg and what options name",
    "A feature that has less than it could have, for lack of a right, a mount or a namespace; absent while it lacks nothing. The log says what would help, once.",
    "feature",
    "reason",
)

# Host: is something else starving it?

HOST_CPU_SECONDS = _host(
    "gpu_host_cpu_seconds_total",
    _C,
    _M,
    "/proc/stat, by /sys/devices/system/node",
    "CPU time of the NUMA node since boot by mode, summed over its CPUs; guests are part of user and nice. CPUs that go offline stay in the sum.",
    "numa_node",
    "mode",
)
HOST_CPU_BUSIEST = _host(
    "gpu_host_cpu_busiest_ratio",
    _G,
    _M,
    "/proc/stat",
    "Share of the last interval that the busiest single CPU of the NUMA node was neither idle nor in iowait, 0-1: 1 when one thread feeds the GPU and can do no more.",
    "numa_node",
)
HOST_CPUS = _host(
    "gpu_host_cpus",
    _G,
    _M,
    "/proc/stat, by /sys/devices/system/node",
    "CPUs of the NUMA node that are online.",
    "numa_node",
)
HOST_PRESSURE_SECONDS = _host(
    "gpu_host_pressure_seconds_total",
    _C,
    _M,
    "/proc/pressure/{cpu,io,memory} total",
    "Time since boot that at least one task (some) or every task with work to do (full) waited for the resource; absent on kernels without PSI. CPU has no full.",
    "resource",
    "kind",
)
HOST_LOAD1 = _host(
    "gpu_host_load1",
    _G,
    _M,
    "/proc/loadavg",
    "Tasks that run, want to run or wait for I/O, averaged over a minute.",
)
HOST_PROCESSES_BLOCKED = _host(
    "gpu_host_processes_blocked", _G, _M, "/proc/stat procs_blocked", "Tasks that wait for I/O now."
)
HOST_CONTEXT_SWITCHES = _host(
    "gpu_host_context_switches_total", _C, _M, "/proc/stat ctxt", "Context switches of all CPUs since boot."
)
HOST_MEMORY_TOTAL = _host(
    "gpu_host_memory_total_bytes", _G, _M, "/proc/meminfo MemTotal", "Memory the kernel has to give out."
)
HOST_MEMORY_AVAILABLE = _host(
    "gpu_host_memory_available_bytes",
    _G,
    _M,
    "/proc/meminfo MemAvailable",
    "Memory that new work could have without swapping, as the kernel estimates it.",
)
HOST_SWAP_TOTAL = _host(
    "gpu_host_swap_total_bytes", _G, _M, "/proc/meminfo SwapTotal", "Swap space; 0 on a host without."
)
HOST_SWAP_USED = _host("gpu_host_swap_used_bytes", _G, _M, "/proc/meminfo SwapTotal - SwapFree", "Swap space in use.")
HOST_SWAP_IN_BYTES = _host(
    "gpu_host_swap_in_bytes_total", _C, _M, "/proc/vmstat pswpin", "Bytes read back from swap since boot."
)
HOST_SWAP_OUT_BYTES = _host(
    "gpu_host_swap_out_bytes_total", _C, _M, "/proc/vmstat pswpout", "Bytes written to swap since boot."
)
HOST_MAJOR_FAULTS = _host(
    "gpu_host_major_faults_total",
    _C,
    _M,
    "/proc/vmstat pgmajfault",
    "Page faults since boot that had to wait for storage.",
)
HOST_DISK_READ_BYTES = _host(
    "gpu_host_disk_read_bytes_total",
    _C,
    _M,
    "/proc/diskstats",
    "Bytes read from the whole device since it appeared. md and dm devices are listed beside the disks they are built on: do not sum over device.",
    "device",
)
HOST_DISK_WRITTEN_BYTES = _host(
    "gpu_host_disk_written_bytes_total",
    _C,
    _M,
    "/proc/diskstats",
    "Bytes written to the whole device since it appeared. md and dm devices are listed beside the disks they are built on: do not sum over device.",
    "device",
)
HOST_DISK_READS = _host(
    "gpu_host_disk_reads_total",
    _C,
    _M,
    "/proc/diskstats",
    "Read requests the device completed since it appeared.",
    "device",
)
HOST_DISK_WRITES = _host(
    "gpu_host_disk_writes_total",
    _C,
    _M,
    "/proc/diskstats",
    "Write requests the device completed since it appeared.",
    "device",
)
HOST_DISK_READ_SECONDS = _host(
    "gpu_host_disk_read_seconds_total",
    _C,
    _M,
    "/proc/diskstats",
    "Time read requests took, summed over requests; over reads it is their mean latency.",
    "device",
)
HOST_DISK_WRITE_SECONDS = _host(
    "gpu_host_disk_write_seconds_total",
    _C,
    _M,
    "/proc/diskstats",
    "Time write requests took, summed over requests; over writes it is their mean latency.",
    "device",
)
HOST_DISK_BUSY_SECONDS = _host(
    "gpu_host_disk_busy_seconds_total",
    _C,
    _M,
    "/proc/diskstats",
    "Time with at least one request under way; a device that serves many at once can be busy all the time and have room.",
    "device",
)
HOST_DISK_QUEUE_SECONDS = _host(
    "gpu_host_disk_queue_seconds_total",
    _C,
    _M,
    "/proc/diskstats",
    "Time requests were under way, summed over requests; its rate is the mean queue length.",
    "device",
)
HOST_NFS_OPERATIONS = _host(
    "gpu_host_nfs_operations_total",
    _C,
    _M,
    "/proc/1/mountstats, else /proc/self/mountstats",
    "Requests of the NFS mount that were completed since it was mounted, by operation of the protocol; READ, WRITE and those that were ever used. Mounts of one export may share their counts: do not sum over mount.",
    "mount",
    "operation",
)
HOST_NFS_OPERATION_SECONDS = _host(
    "gpu_host_nfs_operation_seconds_total",
    _C,
    _M,
    "/proc/1/mountstats, else /proc/self/mountstats",
    "Time requests of the NFS mount took from being made to being answered, summed over requests; over operations it is their mean latency. A request that still waits for a dead server is not in it yet.",
    "mount",
    "operation",
)
HOST_NFS_BYTES = _host(
    "gpu_host_nfs_bytes_total",
    _C,
    _M,
    "/proc/1/mountstats, else /proc/self/mountstats",
    "Bytes the NFS mount read from and wrote to its server since it was mounted; what the page cache answers is not in it. Mounts of one export may share their counts: do not sum over mount.",
    "mount",
    "direction",
)
HOST_NETWORK_RECEIVE_BYTES = _host(
    "gpu_host_network_receive_bytes_total",
    _C,
    _M,
    "/proc/1/net/dev, else /proc/net/dev",
    "Bytes the physical or bond interface received since it appeared. A bond is listed beside its members: do not sum over device.",
    "device",
)
HOST_NETWORK_TRANSMIT_BYTES = _host(
    "gpu_host_network_transmit_bytes_total",
    _C,
    _M,
    "/proc/1/net/dev, else /proc/net/dev",
    "Bytes the physical or bond interface sent since it appeared. A bond is listed beside its members: do not sum over device.",
    "device",
)
HOST_NETWORK_ERRORS = _host(
    "gpu_host_network_errors_total",
    _C,
    _M,
    "/proc/1/net/dev, else /proc/net/dev",
    "Bad packets by direction (receive, transmit) since the interface appeared.",
    "device",
    "direction",
)
HOST_NETWORK_DROPS = _host(
    "gpu_host_network_drops_total",
    _C,
    _M,
    "/proc/1/net/dev, else /proc/net/dev",
    "Good packets dropped by direction (receive, transmit) since the interface appeared.",
    "device",
    "direction",
)
HOST_NETWORK_SPEED = _host(
    "gpu_host_network_speed_bytes_per_second",
    _G,
    _M,
    "/sys/class/net/*/speed",
    "Speed of the link in each direction; absent when it is down or not known.",
    "device",
)
HOST_NETWORK_NUMA_NODE = _host(
    "gpu_host_network_numa_node",
    _G,
    _M,
    "/sys/class/net/*/device/numa_node",
    "NUMA node the interface hangs off; absent when the firmware does not say, and for bonds.",
    "device",
)
HOST_INFINIBAND_RECEIVE_BYTES = _host(
    "gpu_host_infiniband_receive_bytes_total",
    _C,
    _M,
    "/sys/class/infiniband/*/ports/*/counters/port_rcv_data",
    "Bytes the InfiniBand or RoCE port received, RDMA included; absent where the adapter does not count, and when a 32-bit counter is full until it is reset.",
    "device",
    "port",
)
HOST_INFINIBAND_TRANSMIT_BYTES = _host(
    "gpu_host_infiniband_transmit_bytes_total",
    _C,
    _M,
    "/sys/class/infiniband/*/ports/*/counters/port_xmit_data",
    "Bytes the InfiniBand or RoCE port sent, RDMA included; absent where the adapter does not count, and when a 32-bit counter is full until it is reset.",
    "device",
    "port",
)
HOST_INFINIBAND_RATE = _host(
    "gpu_host_infiniband_rate_bytes_per_second",
    _G,
    _M,
    "/sys/class/infiniband/*/ports/*/rate",
    "Rate of the port's link in each direction; absent while it is not up.",
    "device",
    "port",
)
HOST_INFINIBAND_UP = _host(
    "gpu_host_infiniband_up",
    _G,
    _M,
    "/sys/class/infiniband/*/ports/*/state",
    "1 while the port is active, 0 while it is not, which a port without a cable never is.",
    "device",
    "port",
)
