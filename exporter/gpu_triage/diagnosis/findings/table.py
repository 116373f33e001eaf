"""Every finding there can be: its code, area, alert, severity, action and runbook, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpu_triage.baseline.link_advice import Advice
from gpu_triage.diagnosis.findings.advice import ADVICE
from gpu_triage.xid.codes import XID_CODES, XidCode, XidKind


class Severity(Enum):
    """How urgent: critical wakes a person, warning is a ticket, info is context."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return tuple(Severity).index(self)


class Action(Enum):
    """What kind of answer a finding wants, as the alerts' label `action` says it."""

    DRAIN = "drain"
    RESET = "reset"
    INSPECT_HARDWARE = "inspect_hardware"
    FIX_HOST = "fix_host"
    FIX_JOB = "fix_job"
    NONE = "none"


class Area(Enum):
    """What a finding is about, in the order in which the playbook rules things out."""

    DRIVER = "driver and GPUs"
    HEALTH = "GPU health"
    CLOCKS = "clocks, heat, power"
    PCIE = "PCIe links"
    PEERS = "peers and NVLink"
    HOST = "host resources"
    WORK = "processes and work"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of finding."""

    code: str  # stable name, ``area.detail``; scripts may rely on it
    area: Area
    topic: str  # the word for its cause, a bottleneck class where there is one; several codes share one
    alert: str | None  # the alert that says the same over a longer window; None where there is none
    severity: Severity  # of the finding, and of that alert
    action: Action
    page: str = ""  # the alert whose runbook helps where the finding has no alert of its own; "" without one

    @property
    def of_host(self) -> bool:
        """Whether it is about the host as a whole, and never about one GPU."""
        return self.area is Area.HOST or self.code in _OF_HOST

    @property
    def runbook(self) -> str:
        """Name of its page of the handbook; "" without one."""
        return self.page or self.alert or ""

    @property
    def advice(self) -> Advice:
        """What it means, and what to do."""
        return ADVICE[self.code]


_OF_HOST: Final = frozenset(
    {
        "driver.unavailable",
        "driver.module_missing",
        "driver.version_mismatch",
        "gpu.missing",
        "gpu.released",
        "fabric.unhealthy",
        "fabric.service_down",
        "fabric.version_mismatch",
        "driver.not_probed",
        "driver.earlier",
        "gpu.gsp_timeout",
        "nvswitch.sxid_fatal",
        "nvswitch.sxid",
    }
)

_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
_DRAIN, _RESET, _INSPECT = Action.DRAIN, Action.RESET, Action.INSPECT_HARDWARE
_FIX_HOST, _FIX_JOB, _NONE = Action.FIX_HOST, Action.FIX_JOB, Action.NONE


def _xid_check(xid: XidCode) -> Check:
    code = f"xid.{xid.code}"
    match xid.kind:
        case XidKind.PAGE:
            return Check(code, Area.HEALTH, "sick", "GpuXidCritical", _CRITICAL, _DRAIN)
        case XidKind.TICKET:
            return Check(code, Area.HEALTH, "xid", "GpuXidContained", _WARNING, _RESET)
        case XidKind.APPLICATION:
            return Check(code, Area.HEALTH, "xid", "GpuXidApplication", _INFO, _FIX_JOB)
        case XidKind.INFORMATION:
            return Check(code, Area.HEALTH, "xid", None, _INFO, _NONE, "GpuXidUnlisted")


CHECKS: Final[tuple[Check, ...]] = (
    Check("driver.unavailable", Area.DRIVER, "driver", "GpuDriverUnavailable", _CRITICAL, _FIX_HOST),
    Check("gpu.missing", Area.DRIVER, "missing", "GpuMissing", _CRITICAL, _DRAIN),
    Check("gpu.lost", Area.DRIVER, "sick", "GpuLost", _CRITICAL, _DRAIN),
    Check("gpu.released", Area.DRIVER, "released", "GpuReleased", _INFO, _NONE),
    Check("driver.module_missing", Area.DRIVER, "driver", None, _INFO, _FIX_HOST, "GpuDriverUnavailable"),
    Check("driver.version_mismatch", Area.DRIVER, "driver", None, _CRITICAL, _FIX_HOST, "GpuDriverUnavailable"),
    Check("driver.nouveau", Area.DRIVER, "driver", None, _CRITICAL, _FIX_HOST, "GpuDriverUnavailable"),
    Check("driver.bound_elsewhere", Area.DRIVER, "driver", None, _CRITICAL, _FIX_HOST, "GpuDriverUnavailable"),
    Check("driver.not_probed", Area.DRIVER, "driver", None, _INFO, _FIX_HOST, "GpuMissing"),
    Check("driver.unsupported", Area.DRIVER, "driver", None, _WARNING, _FIX_HOST, "GpuMissing"),
    Check("driver.bar", Area.DRIVER, "driver", None, _CRITICAL, _FIX_HOST, "GpuMissing"),
    Check("driver.init_failed", Area.DRIVER, "missing", None, _CRITICAL, _INSPECT, "GpuMissing"),
    Check("driver.earlier", Area.DRIVER, "driver", None, _INFO, _NONE, "GpuDriverUnavailable"),
    Check("gpu.gsp_timeout", Area.HEALTH, "sick", None, _CRITICAL, _DRAIN, "GpuXidCritical"),
    *(_xid_check(xid) for kind in XidKind for xid in XID_CODES.values() if xid.kind is kind),
    Check("xid.unlisted", Area.HEALTH, "xid", "GpuXidUnlisted", _WARNING, _INSPECT),
    Check("xid.nonfatal", Area.HEALTH, "xid", "GpuXidContained", _WARNING, _RESET),
    Check("xid.earlier", Area.HEALTH, "xid", None, _INFO, _NONE, "GpuXidCritical"),
    Check("xid.same_unit", Area.HEALTH, "xid", "GpuXidSameUnit", _WARNING, _INSPECT),
    Check("gpu.repeat_offender", Area.HEALTH, "repeat_offender", "GpuRepeatOffender", _WARNING, _INSPECT),
    Check("ecc.uncorrected", Area.HEALTH, "sick", "GpuEccUncorrected", _CRITICAL, _DRAIN),
    Check("ecc.contained", Area.HEALTH, "ecc", None, _WARNING, _RESET, "GpuXidContained"),
    Check("ecc.corrected", Area.HEALTH, "ecc", None, _INFO, _NONE, "GpuEccCorrectedRising"),
    Check("ecc.sram_threshold", Area.HEALTH, "ecc", "GpuEccSramThreshold", _WARNING, _INSPECT),
    Check("ecc.mode_pending", Area.HEALTH, "ecc", None, _INFO, _NONE),
    Check("memory.row_remap_failure", Area.HEALTH, "sick", "GpuRowRemapFailed", _CRITICAL, _DRAIN),
    Check("memory.row_remap_pending", Area.HEALTH, "row_remap", "GpuRowRemapPending", _WARNING, _RESET),
    Check("memory.retired_pages_pending", Area.HEALTH, "retired_pages", "GpuRetiredPagesPending", _WARNING, _RESET),
    Check("recovery.action", Area.HEALTH, "sick", "GpuRecoveryActionNeeded", _CRITICAL, _RESET),
    Check("recovery.drain_and_reset", Area.HEALTH, "recovery", "GpuRecoveryActionNeeded", _WARNING, _RESET),
    Check("fabric.unhealthy", Area.HEALTH, "sick", "GpuFabricUnhealthy", _CRITICAL, _DRAIN),
    Check("fabric.degraded", Area.HEALTH, "fabric", "GpuFabricDegraded", _WARNING, _INSPECT),
    Check("fabric.service_down", Area.HEALTH, "fabric", "GpuFabricServiceDown", _CRITICAL, _FIX_HOST),
    Check("fabric.version_mismatch", Area.HEALTH, "fabric", None, _WARNING, _FIX_HOST, "GpuFabricServiceDown"),
    Check("gpu.inforom", Area.HEALTH, "inforom", None, _WARNING, _INSPECT, "GpuXidContained"),
    Check("thermal.hw", Area.CLOCKS, "thermal", "GpuHwThermalThrottling", _CRITICAL, _INSPECT),
    Check("thermal.sw", Area.CLOCKS, "thermal", "GpuSwThermalThrottling", _WARNING, _INSPECT),
    Check("thermal.margin", Area.CLOCKS, "thermal", "GpuTemperatureNearSlowdown", _WARNING, _INSPECT),
    Check("thermal.low_limit", Area.CLOCKS, "thermal", None, _WARNING, _FIX_HOST, "GpuSwThermalThrottling"),
    Check("power.brake", Area.CLOCKS, "power_brake", "GpuPowerBrake", _CRITICAL, _INSPECT),
    Check("power.hw_slowdown", Area.CLOCKS, "power_brake", "GpuHwSlowdownUnattributed", _WARNING, _INSPECT),
    Check("power.reading", Area.CLOCKS, "power_cap", None, _WARNING, _FIX_HOST, "GpuPowerCapped"),
    Check("power.cap", Area.CLOCKS, "power_cap", "GpuPowerCapped", _INFO, _FIX_HOST),
    Check("power.limit", Area.CLOCKS, "power_limit", None, _INFO, _FIX_HOST, "GpuPowerCapped"),
    Check("clock.policy", Area.CLOCKS, "clock_cap", "GpuClockPolicyDrift", _WARNING, _FIX_HOST),
    Check("clock.straggler", Area.CLOCKS, "straggler", "GpuStraggler", _WARNING, _INSPECT),
    Check("pcie.width", Area.PCIE, "pcie_link", "GpuPcieWidthDowntrained", _CRITICAL, _INSPECT),
    Check("pcie.width_idle", Area.PCIE, "pcie_link", "GpuPcieWidthDowntrained", _WARNING, _INSPECT),
    Check("pcie.generation", Area.PCIE, "pcie_link", "GpuPcieGenerationDowntrained", _CRITICAL, _INSPECT),
    Check("pcie.flapping", Area.PCIE, "pcie_link", "GpuPcieLinkFlapping", _WARNING, _INSPECT),
    Check("pcie.replays", Area.PCIE, "pcie_link", "GpuPcieReplaysRising", _WARNING, _INSPECT),
    Check("pcie.aer", Area.PCIE, "pcie_link", "GpuPcieAerErrors", _WARNING, _INSPECT),
    Check("pcie.below_peers", Area.PCIE, "pcie_slot", "GpuPcieBelowPeers", _INFO, _INSPECT),
    Check("baseline.drift", Area.SETTINGS, "baseline", "GpuBaselineDrift", _WARNING, _FIX_HOST),
    Check("p2p.unavailable", Area.PEERS, "p2p", "GpuP2pUnavailable", _WARNING, _FIX_HOST),
    Check("nvlink.down", Area.PEERS, "nvlink", "GpuNvlinkDown", _WARNING, _INSPECT),
    Check("nvlink.errors", Area.PEERS, "nvlink", "GpuNvlinkErrorsRising", _WARNING, _INSPECT),
    Check("nvswitch.sxid_fatal", Area.PEERS, "nvlink", "GpuNvswitchFatal", _CRITICAL, _DRAIN),
    Check("nvswitch.sxid", Area.PEERS, "nvlink", None, _WARNING, _INSPECT, "GpuNvswitchFatal"),
    Check("pcie.dpc", Area.HOST, "pcie_link", None, _WARNING, _INSPECT, "GpuPcieAerErrors"),
    Check("host.hardware_error", Area.HOST, "hardware", "GpuHostHardwareError", _WARNING, _INSPECT),
    Check("host.memory_errors", Area.HOST, "hardware", None, _INFO, _INSPECT, "GpuHostMemoryErrorsRising"),
    Check("host.lockup", Area.HOST, "lockup", "GpuHostCpuLockup", _WARNING, _FIX_HOST),
    Check("host.hung_task", Area.HOST, "hung_task", "GpuHostTaskHung", _WARNING, _FIX_HOST),
    Check("storage.read_only", Area.HOST, "storage", "GpuHostFilesystemReadOnly", _CRITICAL, _FIX_HOST),
    Check("storage.nvme", Area.HOST, "storage", "GpuHostNvmeFailing", _WARNING, _INSPECT),
    Check("storage.nvme_timeout", Area.HOST, "storage", None, _INFO, _INSPECT, "GpuHostNvmeFailing"),
    Check("storage.not_responding", Area.HOST, "storage", None, _WARNING, _FIX_HOST, "GpuStarvedByStorage"),
    Check("cpu.slow_clock", Area.HOST, "cpu", "GpuHostCpuClockLow", _WARNING, _FIX_HOST),
    Check("host.clock_source", Area.HOST, "clock_source", "GpuHostClockSourceSlow", _WARNING, _FIX_HOST),
    Check("cpu.thermal", Area.HOST, "cpu", None, _INFO, _INSPECT, "GpuStarvedByCpu"),
    Check("memory.oom_killed", Area.HOST, "memory", "GpuProcessOomKilled", _WARNING, _FIX_JOB),
    Check("memory.swapping", Area.HOST, "memory", "GpuHostSwapping", _WARNING, _FIX_HOST),
    Check("memory.starved", Area.HOST, "memory", "GpuStarvedByMemory", _WARNING, _FIX_HOST),
    Check("storage.starved", Area.HOST, "storage", "GpuStarvedByStorage", _WARNING, _FIX_HOST),
    Check("storage.saturated", Area.HOST, "storage", None, _INFO, _NONE, "GpuStarvedByStorage"),
    Check("cpu.starved", Area.HOST, "cpu", "GpuStarvedByCpu", _WARNING, _FIX_JOB),
    Check("cpu.saturated", Area.HOST, "cpu", None, _INFO, _NONE, "GpuStarvedByCpu"),
    Check("network.starved", Area.HOST, "network", "GpuStarvedByNetwork", _WARNING, _FIX_HOST),
    Check("network.port_flapping", Area.HOST, "network", "GpuInfinibandPortFlapping", _WARNING, _FIX_HOST),
    Check("network.port_errors", Area.HOST, "network", "GpuInfinibandErrorsRising", _WARNING, _FIX_HOST),
    Check("network.port_slow", Area.HOST, "network", "GpuInfinibandRateDegraded", _WARNING, _FIX_HOST),
    Check("network.link_degraded", Area.HOST, "network", "GpuNetworkLinkDegraded", _WARNING, _FIX_HOST),
    Check("network.interface_errors", Area.HOST, "network", None, _INFO, _FIX_HOST, "GpuNetworkLinkDegraded"),
    Check("network.adapter_module", Area.HOST, "network", None, _WARNING, _INSPECT, "GpuNetworkLinkDegraded"),
    Check("network.adapter_power", Area.HOST, "network", None, _INFO, _INSPECT, "GpuNetworkLinkDegraded"),
    Check("network.peermem", Area.HOST, "network", None, _INFO, _FIX_JOB, "GpuInfinibandErrorsRising"),
    Check("network.timeouts", Area.HOST, "network", None, _INFO, _FIX_HOST, "GpuInfinibandErrorsRising"),
    Check("network.port_waiting", Area.HOST, "network", None, _INFO, _FIX_HOST, "GpuInfinibandPortDown"),
    Check("network.saturated", Area.HOST, "network", None, _INFO, _NONE, "GpuStarvedByNetwork"),
    Check("work.blocked", Area.WORK, "blocked", "GpuProcessBlocked", _WARNING, _FIX_HOST),
    Check("numa.mismatch", Area.WORK, "numa", "GpuNumaMismatch", _WARNING, _FIX_JOB),
    Check("work.imbalance", Area.WORK, "imbalance", "GpuImbalance", _WARNING, _FIX_JOB),
    Check("work.memory_imbalance", Area.WORK, "imbalance", None, _INFO, _FIX_JOB, "GpuImbalance"),
    Check("work.low_power", Area.WORK, "communication", "GpuBusyButLowPower", _INFO, _FIX_JOB),
    Check("work.memory_full", Area.WORK, "memory_full", "GpuMemoryNearFull", _INFO, _FIX_JOB),
    Check("work.hung", Area.WORK, "hung", "GpuHungProcess", _WARNING, _FIX_JOB),
    Check("work.held_idle", Area.WORK, "held_idle", None, _INFO, _FIX_JOB, "GpuHungProcess"),
    Check("work.allocated_unused", Area.WORK, "allocated", None, _INFO, _FIX_JOB, "GpuAllocatedIdle"),
    Check("vgpu.unlicensed", Area.SETTINGS, "license", "GpuVgpuUnlicensed", _WARNING, _FIX_HOST),
    Check("policy.persistence", Area.SETTINGS, "persistence", "GpuPersistenceModeOff", _INFO, _FIX_HOST),
)
"""The one table of findings, in the order of the playbook."""

EXPLAINED_BY: Final = MappingProxyType(
    {
        "thermal.sw": ("thermal.hw",),
        "thermal.margin": ("thermal.hw", "thermal.sw"),
        "clock.straggler": ("thermal.hw", "thermal.sw", "power.brake", "power.cap", "clock.policy"),
        "work.hung": ("work.blocked",),
        "work.held_idle": ("work.blocked",),
        "pcie.below_peers": ("pcie.width", "pcie.width_idle"),
    }
)
"""Findings that follow from another one of the same GPU, as Alertmanager's inhibitions have it."""

BY_CODE: Final = MappingProxyType({check.code: check for check in CHECKS})


def xid_check(xid: str, fatal: str = "") -> Check:
    """The check of an Xid, by its code and whether the kernel log calls it fatal (``true``, ``false`` or empty)."""
    if fatal == "false":
        return BY_CODE["xid.nonfatal"]
    return BY_CODE.get(f"xid.{xid}", BY_CODE["xid.unlisted"])
