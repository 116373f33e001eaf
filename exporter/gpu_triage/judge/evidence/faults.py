"""Faults of a GPU that both its bottleneck class and its findings depend on."""

from __future__ import annotations

from typing import NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.activity import GPU_PERFORMANCE_STATE
from gpu_triage.read.gpu.clocks_and_limits import GPU_CLOCK_DEFAULT_HERTZ, GPU_CLOCK_TARGET_HERTZ
from gpu_triage.read.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.fabric import FABRIC_JOINED, FABRIC_UNHEALTHY, GPU_FABRIC_HEALTH, GPU_FABRIC_STATE
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_GENERATION, GPU_PCIE_LINK_GENERATION
from gpu_triage.read.gpu.recovery import GPU_RECOVERY_ACTION
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.xid.codes import CONTAINED_ERROR, DOUBLE_BIT_ERROR, XID_CODES, XidKind
from gpu_triage.read.xid.xid_metrics import GPU_XID_LAST_TIMESTAMP_SECONDS


def is_critical(xid: str, fatal: str) -> bool:
    """Whether a GPU must not be used any further after this Xid; `fatal` is the label value."""
    known = XID_CODES.get(int(xid)) if xid.isdecimal() else None
    return known is not None and known.kind is XidKind.PAGE and fatal != "false"


def recent_critical_xids(gpu: GpuEvidence) -> list[str]:
    """Return the recent Xid codes after which the GPU must not be used until it is reset."""
    contained = contained_error(gpu)
    reset_at = gpu.last(GPU_RESET_TIMESTAMP_SECONDS) or 0.0
    recent = [
        each.labels
        for each in gpu.series(GPU_XID_LAST_TIMESTAMP_SECONDS)
        if gpu.age_seconds(each.last) <= thresholds.XID_RECENT_SECONDS and each.last >= reset_at
    ]
    critical = (labels["xid"] for labels in recent if is_critical(labels["xid"], labels["fatal"]))
    return list(dict.fromkeys(xid for xid in critical if not (contained and xid == str(DOUBLE_BIT_ERROR))))


def contained_error(gpu: GpuEvidence) -> bool:
    """Whether the last uncorrectable memory error was contained: it affected only the job that hit it."""
    contained_at = gpu.last(GPU_XID_LAST_TIMESTAMP_SECONDS, xid=str(CONTAINED_ERROR))
    double_bit_at = gpu.last(GPU_XID_LAST_TIMESTAMP_SECONDS, xid=str(DOUBLE_BIT_ERROR))
    if contained_at is None:
        return False
    return double_bit_at is None or abs(contained_at - double_bit_at) < thresholds.CONTAINED_SECONDS


def uncorrected_errors(gpu: GpuEvidence) -> float:
    """Uncorrectable ECC memory errors since the driver was loaded; 0 if not reported."""
    return gpu.last(GPU_ECC_VOLATILE_ERRORS_TOTAL, severity="uncorrected") or 0.0


def corrected_storm(gpu: GpuEvidence) -> float | None:
    """Return corrected memory errors per second while the GPU last responded, if enough to slow the driver; else None.

    On a GB200 with 17,700 per second, calls took more than 45 s under load and returned at once without it
    (github.com/NVIDIA/DCGM, issue 313).
    """
    labels = (gpu.gpu, gpu.uuid, "corrected")
    rate = gpu.memory.rise(GPU_ECC_VOLATILE_ERRORS_TOTAL, labels, thresholds.WINDOW_SECONDS).mean
    return rate if rate >= gpu.limit("gpu.slow", "corrected_per_second") else None


def recovery_action(gpu: GpuEvidence) -> int:
    """Recovery action requested by the driver, a state of gpu_recovery_action; 0 if none or not reported."""
    return int(gpu.last(GPU_RECOVERY_ACTION) or 0)


def fabric_trouble(gpu: GpuEvidence) -> str | None:
    """Describe what is wrong with the GPU's NVSwitch fabric; None if nothing is."""
    state, health = gpu.last(GPU_FABRIC_STATE), gpu.last(GPU_FABRIC_HEALTH)
    if state is not None and 0 < state < FABRIC_JOINED:
        return "has not joined the NVSwitch fabric"
    return "its part of the NVSwitch fabric is unhealthy" if health == FABRIC_UNHEALTHY else None


def slow_link(gpu: GpuEvidence) -> str | None:
    """Describe how many generations the link lacks, idle or not; None unless throughout the last part of the window."""
    generation, expected = gpu.recent.one(GPU_PCIE_LINK_GENERATION), gpu.last(GPU_PCIE_LINK_EXPECTED_GENERATION)
    if generation is None or expected is None or generation.high >= expected:
        return None
    return f"PCIe generation {generation.last:.0f} of {expected:.0f}"


def works_awake(gpu: GpuEvidence) -> bool:
    """Whether the GPU did some work and never entered an idle P-state in the last part of the window.

    Such a GPU's link has no reason to save power, however low the load.
    """
    state = gpu.recent.one(GPU_PERFORMANCE_STATE)
    awake = state is not None and state.high <= thresholds.LOADED_P_STATE
    return awake and (gpu.recent.busy_share or 0.0) >= thresholds.WORKING_SHARE


class LimitedClock(NamedTuple):
    """A clock set below its default: a description, and its share of the default (0-1)."""

    text: str
    share: float


def limited_clock(gpu: GpuEvidence) -> LimitedClock | None:
    """Return the first clock set below its default, or None."""
    for clock in ("sm", "graphics", "memory"):
        target = gpu.last(GPU_CLOCK_TARGET_HERTZ, clock=clock)
        default = gpu.last(GPU_CLOCK_DEFAULT_HERTZ, clock=clock)
        if target is not None and default is not None and target < default:
            words = f"{clock} clock set to {target / 1e6:.0f} MHz, default {default / 1e6:.0f} MHz"
            return LimitedClock(words, target / default)
    return None


def held_idle(gpu: GpuEvidence) -> bool:
    """Whether a job holds memory on it while it is idle: hung, if it was busy before."""
    share, power = gpu.busy_share, gpu.power_share
    return (
        gpu.occupied
        and gpu.holds_memory
        and share is not None
        and share < thresholds.HUNG_BUSY_SHARE
        and (power is None or power < thresholds.HUNG_POWER_SHARE)
    )
