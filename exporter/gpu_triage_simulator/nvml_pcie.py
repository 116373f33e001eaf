"""NVML functions for the PCIe link, ECC, and device memory health."""

from ctypes import c_uint, c_ulonglong
from typing import Final

from gpu_triage_simulator import effects
from gpu_triage_simulator.nvml_calls import OUT, Function, at, gauge, pair, put
from gpu_triage_simulator.nvml_library import (
    ECC_SRAM,
    ECC_SRAM_VERSION,
    REPAIR_STATUS,
    REPAIR_STATUS_VERSION,
    ROW_HISTOGRAM,
    Failure,
)
from gpu_triage_simulator.nvml_session import Device
from gpu_triage_simulator.pcie_faults import pcie_errors

_UNCORRECTED, _AGGREGATE = 1, 1
_DRAM, _SRAM = 2, 7
_SINGLE_BIT: Final = 0


def replays(device: Device) -> int:
    return pcie_errors(device.host.timeline, device.state, "replays_per_hour", "gpu")


def ecc_errors(device: Device, severity: int, lifetime: int) -> int:
    """ECC errors: `severity` 0 corrected, 1 uncorrected; `lifetime` 0 since the driver was loaded, 1 aggregate."""
    timeline, index, seconds = device.host.timeline, device.state.index, device.state.seconds
    gpu, whole = device.state.gpu, lifetime == _AGGREGATE
    if severity == _UNCORRECTED:
        count = timeline.latched(effects.EccErrors, "uncorrected", index, seconds, lifetime=whole)
        return count + (gpu.uncorrected_errors if whole else 0)
    count = int(timeline.accrued(effects.EccErrors, "corrected_per_hour", index, seconds, lifetime=whole))
    return count + (gpu.corrected_errors if whole else 0)


def remapped_rows(device: Device) -> tuple[int, int, int, int]:
    """Rows remapped for correctable and uncorrectable errors; whether remapping is pending, or has failed."""
    timeline, index, seconds = device.host.timeline, device.state.index, device.state.seconds
    conditions = device.state.conditions
    return (
        timeline.latched(effects.RowRemap, "correctable", index, seconds),
        timeline.latched(effects.RowRemap, "uncorrectable", index, seconds),
        int(conditions.remap_pending),
        int(conditions.remap_failure),
    )


def retired_pages(device: Device, cause: int) -> int:
    """Pages retired for one cause: 0 multiple single-bit errors, 1 a double-bit error."""
    count = "single_bit" if cause == _SINGLE_BIT else "double_bit"
    return device.host.timeline.latched(effects.RetiredPages, count, device.state.index, device.state.seconds)


def _throughput(device: Device, counter: int, out: int | None) -> None:
    if counter > 1:
        raise Failure("INVALID_ARGUMENT")
    gauges = device.gauges
    put(c_uint, out, int((gauges.receive if counter else gauges.transmit) / 1000))


def _total_ecc(device: Device, severity: int, lifetime: int, out: int | None) -> None:
    if severity > 1 or lifetime > 1:
        raise Failure("INVALID_ARGUMENT")
    _require_ecc_on(device)
    put(c_ulonglong, out, ecc_errors(device, severity, lifetime))


def _memory_errors(device: Device, severity: int, lifetime: int, location: int, out: int | None) -> None:
    """Errors of one memory location; all simulated errors are in device memory."""
    if severity > 1 or lifetime > 1:
        raise Failure("INVALID_ARGUMENT")
    _require_ecc_on(device)
    if location not in (_DRAM, _SRAM):
        raise Failure("NOT_SUPPORTED")
    put(c_ulonglong, out, ecc_errors(device, severity, lifetime) if location == _DRAM else 0)


def _require_ecc_on(device: Device) -> None:
    """Raise Failure NOT_SUPPORTED if ECC is off, because nothing is counted then."""
    if not device.state.conditions.ecc_mode:
        raise Failure("NOT_SUPPORTED")


def _sram_ecc(device: Device, out: int | None) -> None:
    _require_ecc_on(device)
    status = at(ECC_SRAM, out, ECC_SRAM_VERSION)
    for name, _kind, *_bits in ECC_SRAM._fields_:
        if name != "version":
            setattr(status, name, 0)


def _retired(device: Device, cause: int, count_out: int | None, out: int | None) -> None:
    if cause > 1 or not count_out:
        raise Failure("INVALID_ARGUMENT")
    count = retired_pages(device, cause)
    room = c_uint.from_address(count_out).value
    put(c_uint, count_out, count)
    if not out or room < count:
        if count:
            raise Failure("INSUFFICIENT_SIZE")
        return
    for i in range(count):
        c_ulonglong.from_address(out + 8 * i).value = 0x1000 * (i + 1 + 64 * cause)


def _remapped(
    device: Device, correctable: int | None, uncorrectable: int | None, pending: int | None, failure: int | None
) -> None:
    for address, value in zip((correctable, uncorrectable, pending, failure), remapped_rows(device), strict=True):
        put(c_uint, address, value)


def _histogram(device: Device, out: int | None) -> None:
    histogram = at(ROW_HISTOGRAM, out)
    correctable, uncorrectable, _pending, failure = remapped_rows(device)
    banks = device.model.row_remap_banks
    used = min(correctable + uncorrectable, banks)
    histogram.max = banks - used
    histogram.high = 0 if failure else used
    histogram.partial = histogram.low = 0
    histogram.none = used if failure else 0


def _repair_status(device: Device, out: int | None) -> None:
    status, repairs = at(REPAIR_STATUS, out, REPAIR_STATUS_VERSION), device.state.conditions.repairs
    status.bChannelRepairPending, status.bTpcRepairPending = "channel" in repairs, "tpc" in repairs


FUNCTIONS: Final = (
    gauge("nvmlDeviceGetCurrPcieLinkGeneration", lambda device: device.state.link_generation),
    gauge("nvmlDeviceGetCurrPcieLinkWidth", lambda device: device.state.link_width),
    gauge(
        "nvmlDeviceGetMaxPcieLinkGeneration",
        lambda device: min(device.model.pcie.generation, device.state.conditions.slot.generation),
    ),
    gauge(
        "nvmlDeviceGetMaxPcieLinkWidth", lambda device: min(device.model.pcie.width, device.state.conditions.slot.width)
    ),
    gauge("nvmlDeviceGetGpuMaxPcieLinkGeneration", lambda device: device.model.pcie.generation, since=525),
    Function("nvmlDeviceGetPcieThroughput", (c_uint, OUT), _throughput, blocks_seconds=0.02),
    gauge("nvmlDeviceGetPcieReplayCounter", replays),
    pair("nvmlDeviceGetEccMode", lambda device: (int(device.state.conditions.ecc_mode),) * 2, feature="ecc"),
    Function("nvmlDeviceGetTotalEccErrors", (c_uint, c_uint, OUT), _total_ecc, feature="ecc"),
    Function("nvmlDeviceGetMemoryErrorCounter", (c_uint, c_uint, c_uint, OUT), _memory_errors, feature="ecc"),
    Function("nvmlDeviceGetSramEccErrorStatus", (OUT,), _sram_ecc, since=550, feature="ecc"),
    Function("nvmlDeviceGetRetiredPages", (c_uint, OUT, OUT), _retired, feature="retired_pages"),
    gauge(
        "nvmlDeviceGetRetiredPagesPendingStatus",
        lambda device: int(device.state.conditions.pages_pending),
        feature="retired_pages",
    ),
    Function("nvmlDeviceGetRemappedRows", (OUT, OUT, OUT, OUT), _remapped, feature="remapped_rows", mig="whole"),
    # Unlike the row counts, the histogram of banks is also available with MIG on.
    Function("nvmlDeviceGetRowRemapperHistogram", (OUT,), _histogram, feature="remapped_rows"),
    Function("nvmlDeviceGetRepairStatus", (OUT,), _repair_status, since=580, feature="remapped_rows"),
    # The struct of nvml.h is the flag alone.
    gauge(
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        lambda device: "unrepairable" in device.state.conditions.repairs,
        since=590,
        feature="remapped_rows",
    ),
)
