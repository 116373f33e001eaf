"""Whether the condition of a finding can currently be observed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.faults import works_awake
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import DAY_SECONDS
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.read.gpu.ecc import (
    GPU_ECC_SRAM_THRESHOLD_EXCEEDED,
    GPU_ECC_VOLATILE_ERRORS_TOTAL,
    GPU_RETIRED_PAGES_PENDING,
    GPU_ROW_REMAP_FAILURE,
    GPU_ROW_REMAP_PENDING,
)
from gpu_triage.read.gpu.modes import GPU_PERSISTENCE_MODE, GPU_VGPU_LICENSE_STATE
from gpu_triage.read.gpu.nvlink import (
    GPU_C2C_LINKS_UP,
    GPU_NVLINK_BIT_ERROR_RATIO,
    GPU_NVLINK_ERRORS_TOTAL,
    GPU_NVLINK_UP,
)
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_AER_ERRORS_TOTAL,
    GPU_PCIE_LINK_GENERATION,
    GPU_PCIE_LINK_TRANSITIONS_TOTAL,
    GPU_PCIE_LINK_WIDTH,
    GPU_PCIE_REPLAYS_TOTAL,
)
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS
from gpu_triage.read.gpu.presence import GPU_DEVICES
from gpu_triage.read.gpu.recovery import GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.thermal import GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.host.cpu import GPU_HOST_CPU_BUSIEST_RATIO, GPU_HOST_CPU_SECONDS_TOTAL
from gpu_triage.read.host.host_memory import GPU_HOST_EDAC_ERRORS_TOTAL, GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL, GPU_HOST_INFINIBAND_UP
from gpu_triage.read.host.kernel_log import GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_RATIO
from gpu_triage.read.host.services import FABRIC_MANAGER, GPU_HOST_SERVICE_RUNNING
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes.on_gpu import GPU_PROCESSES

READS: Final[Mapping[str, MetricSpec]] = MappingProxyType(
    {
        "gpu.missing": GPU_DEVICES,
        "ecc.uncorrected": GPU_ECC_VOLATILE_ERRORS_TOTAL,
        "ecc.contained": GPU_ECC_VOLATILE_ERRORS_TOTAL,
        "ecc.corrected_rising": GPU_ECC_VOLATILE_ERRORS_TOTAL,
        "ecc.sram_threshold": GPU_ECC_SRAM_THRESHOLD_EXCEEDED,
        "memory.row_remap_failure": GPU_ROW_REMAP_FAILURE,
        "memory.row_remap_pending": GPU_ROW_REMAP_PENDING,
        "memory.retired_pages_pending": GPU_RETIRED_PAGES_PENDING,
        "recovery.action": GPU_RECOVERY_ACTION,
        "recovery.drain_and_reset": GPU_RECOVERY_ACTION,
        "thermal.hw": GPU_THROTTLE_SECONDS_TOTAL,
        "thermal.sw": GPU_THROTTLE_SECONDS_TOTAL,
        "thermal.margin": GPU_TEMPERATURE_CELSIUS,
        "thermal.low_limit": GPU_TEMPERATURE_CELSIUS,
        "power.brake": GPU_THROTTLE_SECONDS_TOTAL,
        "power.hw_slowdown": GPU_THROTTLE_SECONDS_TOTAL,
        "power.cap": GPU_POWER_LIMIT_WATTS,
        "power.limit": GPU_POWER_LIMIT_WATTS,
        "pcie.width": GPU_PCIE_LINK_WIDTH,
        "pcie.width_idle": GPU_PCIE_LINK_WIDTH,
        "pcie.width_from_boot": GPU_PCIE_LINK_WIDTH,
        "pcie.width_built": GPU_PCIE_LINK_WIDTH,
        "pcie.generation": GPU_PCIE_LINK_GENERATION,
        "pcie.generation_low": GPU_PCIE_LINK_GENERATION,
        "pcie.flapping": GPU_PCIE_LINK_TRANSITIONS_TOTAL,
        "pcie.width_changes": GPU_PCIE_LINK_TRANSITIONS_TOTAL,
        "pcie.replays": GPU_PCIE_REPLAYS_TOTAL,
        "pcie.aer": GPU_PCIE_AER_ERRORS_TOTAL,
        "pcie.uplink": GPU_HOST_PCIE_UPLINK_RATIO,
        "p2p.unavailable": GPU_P2P_STATUS,
        "p2p.through_host": GPU_P2P_STATUS,
        "nvlink.down": GPU_NVLINK_UP,
        "nvlink.flapping": GPU_NVLINK_UP,
        "nvlink.errors": GPU_NVLINK_ERRORS_TOTAL,
        "nvlink.recovering": GPU_NVLINK_ERRORS_TOTAL,
        "c2c.down": GPU_C2C_LINKS_UP,
        "nvlink.bit_errors": GPU_NVLINK_BIT_ERROR_RATIO,
        "vgpu.unlicensed": GPU_VGPU_LICENSE_STATE,
        "policy.persistence": GPU_PERSISTENCE_MODE,
        "host.memory_errors_rising": GPU_HOST_EDAC_ERRORS_TOTAL,
        "host.kernel_log_lost": GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL,
        "cpu.slow_clock": GPU_HOST_CPU_BUSIEST_RATIO,
        "cpu.starved": GPU_HOST_CPU_SECONDS_TOTAL,
        "cpu.limited": GPU_PROCESSES,
        "memory.limited": GPU_PROCESSES,
        "memory.swapping": GPU_HOST_SWAP_IN_BYTES_TOTAL,
        "network.port_down": GPU_HOST_INFINIBAND_UP,
        "network.port_errors": GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL,
    }
)
"""The metric each finding is based on, which healthy GPUs and hosts report too. Without it nothing can be concluded."""

_NEEDS_SECONDS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "ecc.corrected_rising": DAY_SECONDS,
        "host.memory_errors_rising": DAY_SECONDS,
        "work.allocated_idle": thresholds.ALLOCATED_IDLE_SECONDS,
        "network.port_flapping": thresholds.PORT_DOWNS_SECONDS,
    }
)
"""History needed to conclude that the finding is over; a process that just started lacks it."""

_WITHOUT_ANSWER: Final = ("xid.", "gpu.", "baseline.", "driver.")
"""Areas of GPU findings that do not need the GPU to respond: they come from the kernel log, the exporter or a file."""

_OF_DRIVER: Final = ("driver.", "gpu.missing")
_OF_ANSWERING_GPUS: Final = ("fabric.unhealthy", "work.collective_hang")


def observable(host: HostEvidence, finding: Finding) -> bool:
    """Whether the data behind the finding is being observed. An idle GPU shows nothing that only appears under load."""
    code = finding.check.code
    if host.memory.seconds < _NEEDS_SECONDS.get(code, 0.0):
        return False
    gpu = host.known_gpus.of(finding)
    if gpu is None and finding.gpu is None:
        return _of_host(host, code)
    if host.released:
        return False
    if gpu is None:
        # If none is missing, it was removed, or given to a virtual machine.
        return host.driver_error is None and host.has(GPU_DEVICES, source="nvml") and host.missing_gpus <= 0
    return _of_gpu(gpu, finding) and (code != "clock.straggler" or _has_busy_peers(host, gpu))


def last_reset(host: HostEvidence, finding: Finding) -> float | None:
    """Return the monotonic second of the last reset of the finding's GPU.

    For findings about the driver and missing GPUs, it is the last reset of any GPU: loading the driver resets them all,
    and findings that a reset fixes then end together. None for other host findings, for a GPU that does not respond,
    and if no reset is known.
    """
    gpu = host.known_gpus.of(finding)
    if gpu is None and finding.check.code.startswith(_OF_DRIVER):
        gpus = tuple(host.gpus)
    else:
        gpus = () if gpu is None else (gpu,)
    walls = [wall for each in gpus if each.was_read and (wall := each.last(GPU_RESET_TIMESTAMP_SECONDS)) is not None]
    return max(walls) - host.at.wall + host.at.monotonic if walls else None


def _of_gpu(gpu: GpuEvidence, finding: Finding) -> bool:
    code = finding.check.code
    if code.startswith(_WITHOUT_ANSWER):
        return True
    if not gpu.was_read or not _was_read(gpu, code):
        return False
    if code == "pcie.generation_low":
        return works_awake(gpu) and not gpu.recent.loaded  # under load, another finding covers it
    return not finding.check.under_load or (gpu.under_load and gpu.recent.under_load)


def _has_busy_peers(host: HostEvidence, gpu: GpuEvidence) -> bool:
    """Whether its clock can be compared: it and enough other GPUs of its model are busy."""
    busy = [each for each in host.answering if (each.busy_share or 0.0) >= thresholds.BUSY_SHARE]
    peers = sum(each.name == gpu.name for each in busy)
    return gpu in busy and peers >= host.limit("clock.straggler", "peers")


def _of_host(host: HostEvidence, code: str) -> bool:
    if code == "gpu.released":
        return True
    if code.startswith(_OF_DRIVER) and host.released:
        return False
    if code == "gpu.missing" and host.driver_error is not None:
        return False  # no GPUs are counted without the driver
    if code in _OF_ANSWERING_GPUS and not host.answering:
        return False
    if code == "fabric.service_down":
        return host.has(GPU_HOST_SERVICE_RUNNING, service=FABRIC_MANAGER)
    return _was_read(host, code)


def _was_read(evidence: Evidence, code: str) -> bool:
    """Whether the finding's metric is present; a metric that cannot be read is withdrawn."""
    spec = READS.get(code)
    return spec is None or evidence.has(spec)
