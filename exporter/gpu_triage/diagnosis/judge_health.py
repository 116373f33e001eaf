"""Is it there, and is it sick? Driver, count, lost GPUs, Xids, memory errors, recovery action, fabric."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.codes import xid_check
from gpu_triage.diagnosis.evidence import Track
from gpu_triage.diagnosis.findings import Finding, of_gpu, of_host
from gpu_triage.diagnosis.ladder import (
    DRAIN_AND_RESET,
    contained_error,
    fabric_trouble,
    is_critical,
    recovery_action,
)
from gpu_triage.diagnosis.view import GpuView, HostView
from gpu_triage.hardware.xid_codes import DOUBLE_BIT_ERROR

_RECOVERY: Final = (
    "nothing",
    "a reset of the GPU",
    "a reboot of the host",
    "peer-to-peer work to be drained",
    "to be drained and reset",
    "a recovery of the IMEX domain",
    "a reset of the bus",
    "a reboot of the system",
)
_CUDA_MODULE: Final = "nvidia_uvm"
_FATAL: Final = MappingProxyType({"": "", "true": " (fatal)", "false": " (nonfatal)"})


def judge_presence(host: HostView) -> Iterator[Finding]:
    """Driver, number of GPUs, and those that do not answer."""
    if host.released:
        yield of_host("gpu.released", "NVML is shut down on request")
        return
    error = host.driver_error
    if error is not None and host.evidence.last(catalogue.DEVICES, source="pci") != 0:
        yield of_host("driver.unavailable", f"the driver does not answer: {error}")
        return
    counted = host.evidence.last(catalogue.DEVICES, source="nvml")
    wanted = {
        "expected": host.evidence.last(catalogue.DEVICES, source="expected"),
        "on the PCI bus": host.evidence.last(catalogue.DEVICES, source="pci"),
    }
    short = [f"{count:.0f} {whose}" for whose, count in wanted.items() if count is not None and (counted or 0) < count]
    if short:
        yield of_host("gpu.missing", f"the driver shows {counted or 0:.0f} GPUs, {' and '.join(short)}")
    for gpu in host.gpus:
        if not gpu.up:
            yield of_gpu("gpu.lost", gpu, f"does not answer ({gpu.label(catalogue.ERROR_INFO, 'error') or 'unknown'})")
    if host.gpus and host.evidence.last(catalogue.KERNEL_MODULE_LOADED, module=_CUDA_MODULE) == 0:
        yield of_host("driver.module_missing", f"{_CUDA_MODULE} is not in /proc/modules")


def judge_xids(host: HostView) -> Iterator[Finding]:
    """Xids of now, and critical ones of earlier."""
    for gpu in host.gpus:
        contained, damaged = contained_error(gpu), _is_damaged(gpu)
        reset_at = gpu.last(catalogue.RESET_TIMESTAMP) or 0.0
        for last in gpu.series(catalogue.XID_LAST_TIMESTAMP):
            if contained and last.labels["xid"] == str(DOUBLE_BIT_ERROR):
                # Xid 94 tells the same, and what it means for the jobs.
                continue
            count = gpu.last(catalogue.XID_ERRORS, xid=last.labels["xid"], fatal=last.labels["fatal"]) or 1
            finding = _xid(last, count, host.evidence.wall, damaged=damaged, reset=last.last < reset_at)
            if finding is not None:
                yield Finding(finding.check, finding.measured, gpu.gpu, gpu.uuid)
    answering = {gpu.label(catalogue.INFO, "pci_bus_id") for gpu in host.answering}
    for last in host.evidence.series(catalogue.XID_UNASSIGNED_LAST_TIMESTAMP):
        slot = last.labels["pci_bus_id"]
        count = host.evidence.last(catalogue.XID_UNASSIGNED_ERRORS, **last.labels) or 1
        finding = _xid(last, count, host.evidence.wall, damaged=slot not in answering, reset=slot in answering)
        if finding is not None:
            yield Finding(finding.check, finding.measured, pci_bus_id=slot)


def _is_damaged(gpu: GpuView) -> bool:
    """Whether what a critical Xid does to a GPU is still to be seen."""
    uncorrected = gpu.last(catalogue.ECC_VOLATILE_ERRORS, severity="uncorrected")
    return bool(
        not gpu.up
        or recovery_action(gpu)
        or gpu.last(catalogue.ROW_REMAP_FAILURE)
        or (uncorrected and not contained_error(gpu))
    )


def _xid(last: Track, count: float, now: float, *, damaged: bool, reset: bool) -> Finding | None:
    xid, fatal = last.labels["xid"], last.labels["fatal"]
    age_seconds = now - last.last
    times = "" if count == 1 else f", {count:.0f} times since the kernel log begins"
    when = f"Xid {xid}{_FATAL[fatal]}, last {_ago(max(0.0, age_seconds))}{times}"
    check = xid_check(xid, fatal)
    if is_critical(xid, fatal):
        open_seconds = thresholds.XID_DAMAGE_SECONDS if damaged else thresholds.XID_OPEN_SECONDS
        return Finding(xid_check("earlier") if reset or age_seconds > open_seconds else check, when)
    if age_seconds > thresholds.XID_RECENT_SECONDS:
        return None
    if check.alert == "GpuXidApplication" and count <= thresholds.XID_APPLICATION_COUNT:
        return None
    return Finding(check, when)


def _ago(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def judge_memory_errors(host: HostView) -> Iterator[Finding]:
    """ECC and what repairs bad memory."""
    for gpu in host.answering:
        yield from _ecc(gpu)
        if gpu.last(catalogue.ROW_REMAP_FAILURE):
            yield of_gpu("memory.row_remap_failure", gpu, "row remapping has failed")
        if gpu.last(catalogue.ROW_REMAP_PENDING):
            yield of_gpu("memory.row_remap_pending", gpu, "rows wait to be remapped")
        if gpu.last(catalogue.RETIRED_PAGES_PENDING):
            yield of_gpu("memory.retired_pages_pending", gpu, "pages wait to be retired")


def _ecc(gpu: GpuView) -> Iterator[Finding]:
    uncorrected = gpu.last(catalogue.ECC_VOLATILE_ERRORS, severity="uncorrected")
    if uncorrected:
        code = "ecc.contained" if contained_error(gpu) else "ecc.uncorrected"
        yield of_gpu(code, gpu, f"{uncorrected:.0f} uncorrected errors since the driver was loaded")
    corrected = gpu.one(catalogue.ECC_VOLATILE_ERRORS, severity="corrected")
    if corrected is not None and corrected.increase > 0:
        yield of_gpu("ecc.corrected", gpu, f"{corrected.increase:.0f} corrected errors in {corrected.seconds:.0f} s")
    if gpu.last(catalogue.ECC_SRAM_THRESHOLD_EXCEEDED):
        yield of_gpu("ecc.sram_threshold", gpu, "the driver says that the threshold is exceeded")
    mode, pending = gpu.last(catalogue.ECC_MODE), gpu.last(catalogue.ECC_MODE_PENDING)
    if mode is not None and pending is not None and mode != pending:
        yield of_gpu("ecc.mode_pending", gpu, f"ECC is {_on(mode)} and will be {_on(pending)}")


def _on(mode: float) -> str:
    return "on" if mode else "off"


def judge_recovery(host: HostView) -> Iterator[Finding]:
    """What the driver asks for, and the NVSwitch fabric: of that one finding a host."""
    for gpu in host.answering:
        action = recovery_action(gpu)
        if action:
            wish = _RECOVERY[action] if action < len(_RECOVERY) else f"action {action}"
            code = "recovery.drain_and_reset" if action == DRAIN_AND_RESET else "recovery.action"
            yield of_gpu(code, gpu, f"the driver wants {wish}")
    troubles = {gpu.gpu: trouble for gpu in host.answering if (trouble := fabric_trouble(gpu)) is not None}
    if troubles:
        first = next(iter(troubles.values()))
        yield of_host("fabric.unhealthy", f"GPU {', '.join(troubles)}: {first}")
