"""Is it there, and is it sick? Driver, count, lost GPUs, Xids, memory errors, recovery action, fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.diagnosis.bottleneck.classes import Bottlenecks
from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.faults import (
    contained_error,
    fabric_trouble,
    is_critical,
    recovery_action,
    uncorrected_errors,
)
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.evidence.series import Series
from gpu_triage.diagnosis.findings.finding import Finding, of_gpu, of_host, of_slot
from gpu_triage.diagnosis.findings.table import xid_check
from gpu_triage.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.gpu.fabric import GPU_FABRIC_CONFIGURATION, GPU_FABRIC_FAULT
from gpu_triage.gpu.memory_repair import (
    GPU_ECC_MODE,
    GPU_ECC_MODE_PENDING,
    GPU_ECC_SRAM_THRESHOLD_EXCEEDED,
    GPU_RETIRED_PAGES_PENDING,
    GPU_ROW_REMAP_FAILURE,
    GPU_ROW_REMAP_PENDING,
)
from gpu_triage.gpu.presence import GPU_DEVICES
from gpu_triage.gpu.recovery import DRAIN_AND_RESET, GPU_RECOVERY_ACTION
from gpu_triage.host.modules import GPU_KERNEL_MODULE_LOADED
from gpu_triage.host.services import FABRIC_MANAGER, GPU_HOST_SERVICE_RUNNING
from gpu_triage.incidents.metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.subjects.exporter import DRIVER, GPU_EXPORTER_CALL_INFLIGHT_SECONDS
from gpu_triage.xid.codes import DOUBLE_BIT_ERROR
from gpu_triage.xid.metrics import (
    GPU_XID_ERRORS_TOTAL,
    GPU_XID_LAST_TIMESTAMP_SECONDS,
    GPU_XID_SUSPECT_UNIT_PROCESSES,
    GPU_XID_UNASSIGNED_ERRORS_TOTAL,
    GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS,
)

_CONFIGURED: Final = GPU_FABRIC_CONFIGURATION.value_of("nothing")
_NO_PARTITION: Final = GPU_FABRIC_CONFIGURATION.value_of("no partition")  # of a GPU that nobody uses now
_CUDA_MODULE: Final = "nvidia_uvm"
_FATAL: Final = {"": "", "true": " (fatal)", "false": " (nonfatal)"}
_FLAGS: Final = (
    ("memory.row_remap_failure", GPU_ROW_REMAP_FAILURE, "row remapping has failed"),
    ("memory.row_remap_pending", GPU_ROW_REMAP_PENDING, "rows wait to be remapped"),
    ("memory.retired_pages_pending", GPU_RETIRED_PAGES_PENDING, "pages wait to be retired"),
    ("ecc.sram_threshold", GPU_ECC_SRAM_THRESHOLD_EXCEEDED, "the driver says that the threshold is exceeded"),
)
"""Findings that are there while a metric is not 0, with what was measured."""


def judge_health(host: HostEvidence, _bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Driver, number of GPUs, those that do not answer, and what makes one that answers sick."""
    yield from _presence(host)
    yield from _xids(host)
    for gpu in host.answering:
        yield from (of_gpu(code, gpu, measured) for code, spec, measured in _FLAGS if gpu.last(spec))
        yield from _ecc(gpu)
        if action := recovery_action(gpu):
            wanted = GPU_RECOVERY_ACTION.states.get(action, f"action {action}")
            code = "recovery.drain_and_reset" if action == DRAIN_AND_RESET else "recovery.action"
            yield of_gpu(code, gpu, f"the driver asks for: {wanted}")
    troubles = {gpu.gpu: trouble for gpu in host.answering if (trouble := fabric_trouble(gpu)) is not None}
    if troubles:
        first = next(iter(troubles.values()))
        yield of_host("fabric.unhealthy", f"GPU {', '.join(troubles)}: {first}")
    for gpu in host.answering:
        if gpu.gpu not in troubles and (faults := _fabric_faults(gpu)):
            yield of_gpu("fabric.degraded", gpu, f"the driver reports: {', '.join(faults)}")
    for stopped in host.series(GPU_HOST_SERVICE_RUNNING, service=FABRIC_MANAGER):
        if stopped.last == 0:
            yield of_host("fabric.service_down", f"{FABRIC_MANAGER} does not run")


def _fabric_faults(gpu: GpuEvidence) -> list[str]:
    """What the driver says is wrong with the GPU's part of the NVSwitch fabric."""
    faults = [each.labels["fault"].replace("_", " ") for each in gpu.series(GPU_FABRIC_FAULT) if each.last]
    configuration = int(gpu.last(GPU_FABRIC_CONFIGURATION) or _CONFIGURED)
    if configuration not in (_CONFIGURED, _NO_PARTITION):
        faults.append(f"configuration: {GPU_FABRIC_CONFIGURATION.states.get(configuration, configuration)}")
    return faults


def _presence(host: HostEvidence) -> Iterator[Finding]:
    if host.released:
        yield of_host("gpu.released", "NVML is shut down on request")
        return
    expected, on_bus = (host.last(GPU_DEVICES, source=source) for source in ("expected", "pci"))
    if host.driver_error is not None and on_bus != 0:
        hangs = ""
        if call := host.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS, gpu="", collector=DRIVER):
            hangs = f" ({call.labels['function'] or 'sysfs'} has not returned for {call.last:.0f} s)"
        yield of_host("driver.unavailable", f"the driver does not answer: {host.driver_error}{hangs}")
        if not host.answering:
            return
    else:
        yield from _missing(host, expected, on_bus)
    yield from (of_gpu("gpu.lost", gpu, gpu.no_answer) for gpu in host.gpus if not gpu.up)
    if host.gpus and host.last(GPU_KERNEL_MODULE_LOADED, module=_CUDA_MODULE) == 0:
        yield of_host("driver.module_missing", f"{_CUDA_MODULE} is not in /proc/modules")


def _missing(host: HostEvidence, expected: float | None, on_bus: float | None) -> Iterator[Finding]:
    counted = host.last(GPU_DEVICES, source="nvml") or 0
    wanted = ((expected, "expected"), (on_bus, "on the PCI bus"))
    if more := [f"{count:.0f} {whose}" for count, whose in wanted if count is not None and counted < count]:
        yield of_host("gpu.missing", f"the driver shows {counted:.0f} GPUs, {' and '.join(more)}")


def _xids(host: HostEvidence) -> Iterator[Finding]:
    """Xids of now, and critical ones of earlier."""
    for gpu in host.gpus:
        for unit in gpu.series(GPU_XID_SUSPECT_UNIT_PROCESSES):
            yield of_gpu("xid.same_unit", gpu, f"{unit.last:.0f} processes failed at {unit.labels['unit']}")
        contained, damaged = contained_error(gpu), _is_damaged(gpu)
        reset_at = gpu.last(GPU_RESET_TIMESTAMP_SECONDS) or 0.0
        for last in gpu.series(GPU_XID_LAST_TIMESTAMP_SECONDS):
            xid, fatal = last.labels["xid"], last.labels["fatal"]
            if contained and xid == str(DOUBLE_BIT_ERROR):
                # Xid 94 tells the same, and what it means for the jobs.
                continue
            count = gpu.last(GPU_XID_ERRORS_TOTAL, xid=xid, fatal=fatal) or 1
            code, when = _xid(last, count, host, damaged=damaged, reset=last.last < reset_at)
            if code:
                yield of_gpu(code, gpu, when)
    answering = {gpu.pci_bus_id for gpu in host.answering}
    for last in host.series(GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS):
        slot = last.labels["pci_bus_id"]
        count = host.last(GPU_XID_UNASSIGNED_ERRORS_TOTAL, **last.labels) or 1
        code, when = _xid(last, count, host, damaged=slot not in answering, reset=slot in answering)
        if code:
            yield of_slot(code, slot, when)


def _is_damaged(gpu: GpuEvidence) -> bool:
    """Whether what a critical Xid does to a GPU is still to be seen."""
    return bool(
        not gpu.up
        or recovery_action(gpu)
        or gpu.last(GPU_ROW_REMAP_FAILURE)
        or (uncorrected_errors(gpu) and not contained_error(gpu))
    )


def _xid(last: Series, count: float, host: HostEvidence, *, damaged: bool, reset: bool) -> tuple[str, str]:
    """The code of what is to be said of an Xid, "" for nothing, and when it happened."""
    xid, fatal = last.labels["xid"], last.labels["fatal"]
    age_seconds = host.at.wall - last.last
    times = "" if count == 1 else f", {count:.0f} times since the kernel log begins"
    when = f"Xid {xid}{_FATAL[fatal]}, last {host.when(last.last)}{times}"
    check = xid_check(xid, fatal)
    if is_critical(xid, fatal):
        open_seconds = thresholds.XID_DAMAGE_SECONDS if damaged else thresholds.XID_OPEN_SECONDS
        return "xid.earlier" if reset or age_seconds > open_seconds else check.code, when
    own_business = check.alert == "GpuXidApplication" and count <= thresholds.XID_APPLICATION_COUNT
    return "" if age_seconds > thresholds.XID_RECENT_SECONDS or own_business else check.code, when


def _ecc(gpu: GpuEvidence) -> Iterator[Finding]:
    if uncorrected := uncorrected_errors(gpu):
        code = "ecc.contained" if contained_error(gpu) else "ecc.uncorrected"
        yield of_gpu(code, gpu, f"{uncorrected:.0f} uncorrected errors since the driver was loaded")
    corrected = gpu.one(GPU_ECC_VOLATILE_ERRORS_TOTAL, severity="corrected")
    if corrected is not None and corrected.increase > 0:
        yield of_gpu("ecc.corrected", gpu, f"{corrected.increase:.0f} corrected errors in {corrected.seconds:.0f} s")
    mode, pending = gpu.last(GPU_ECC_MODE), gpu.last(GPU_ECC_MODE_PENDING)
    if mode is not None and pending is not None and mode != pending:
        on = {False: "off", True: "on"}
        yield of_gpu("ecc.mode_pending", gpu, f"ECC is {on[bool(mode)]} and will be {on[bool(pending)]}")
