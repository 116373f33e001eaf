"""Errors of PCIe links: as the GPU counts them, and as the kernel counts them on the GPU and the port above it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import parse_count, read_text
from gpu_triage.driver.kernel.mounts import refuse_unmounted
from gpu_triage.driver.kernel.pci_bus import device_directory, handles_aer, port_above
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.gpu.pcie import on_pcie
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.driver_counters import ERRORS, DriverCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter
from gpu_triage.read.metrics.rounds import GpuRound

TYPE_FIELDS: Final = {
    "correctable": 173,
    "naks_received": 174,
    "receiver": 175,
    "bad_tlp": 176,
    "naks_sent": 177,
    "bad_dllp": 178,
    "non_fatal": 179,
    "fatal": 180,
    "unsupported_request": 181,
    "lcrc": 182,
    "lane": 183,
    "l0_to_recovery": 169,
}
"""Label to NVML_FI_DEV_PCIE_COUNT_* (173-183) and NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER (169)."""

GPU_PCIE_ERRORS_TOTAL = gpu_counter(
    "gpu_pcie_errors_total",
    "Errors of the PCIe link as the GPU counts them, by type: {type}. The last also grows when the link changes its "
    "speed. What the driver or the board does not count is absent.",
    labels={"type": TYPE_FIELDS},
    source="NVML fields 173-183 and 169",
)


@dataclass(frozen=True, slots=True)
class PcieErrorsReading:
    """Monotonic error counts by type since the driver was loaded; types not counted are missing."""

    errors: Annotated[Mapping[str, float], GPU_PCIE_ERRORS_TOTAL]


class PcieErrorsReader:
    """Reads the counters and continues them over resets."""

    def __init__(self) -> None:
        self._counters = {label: DriverCounter(ERRORS) for label in TYPE_FIELDS}

    def read(self, gpu: GpuRound) -> PcieErrorsReading:
        """Read the errors (the fields of TYPE_FIELDS, in one call)."""
        inquiry = gpu.inquiry
        if not on_pcie(inquiry):
            return PcieErrorsReading({})
        counted = inquiry.fields(TYPE_FIELDS.values())
        errors = {}
        for label, field in TYPE_FIELDS.items():
            count = self._counters[label].read(inquiry, counted.get(field), gpu.at.monotonic)
            if count is not None:
                errors[label] = count
        return PcieErrorsReading(errors)


PCIE_ERRORS = GpuCollector(
    "pcie_errors", "PCIe errors as the GPU counts them", Tier.MEDIUM, lambda _config: PcieErrorsReader().read
)


TOTALS: Final = {"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}
"""Severity (also the suffix of the file name) to the name of the line with the total."""

_LIMIT_BYTES: Final = 1 << 16

GPU_PCIE_AER_ERRORS_TOTAL = gpu_counter(
    "gpu_pcie_aer_errors_total",
    "PCIe errors reported to the kernel (AER), by reporter (gpu, or the port at the other end of its link) "
    "and severity ({severity}). An error may show at one end only. Read without the driver, so available while "
    "the GPU does not respond. Absent where the kernel has no AER for the device, as in most virtual machines; where "
    "the firmware handles these errors, absent while it is 0, which would say nothing.",
    labels={"device": ("gpu", "port"), "severity": TOTALS},
    source="sysfs aer_dev_{correctable,nonfatal,fatal} of the GPU and of the port above it",
)


@dataclass(frozen=True, slots=True)
class PcieAerReading:
    """Monotonic error counts by severity since the device appeared; severities not counted are missing."""

    gpu: Annotated[Mapping[str, float], GPU_PCIE_AER_ERRORS_TOTAL, "gpu"]
    port: Annotated[Mapping[str, float], GPU_PCIE_AER_ERRORS_TOTAL, "port"]


class PcieAerReader:
    """Reads both ends, and continues the counters when a device reappears. Only uses kernel files."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[str, str], DriverCounter] = defaultdict(DriverCounter)
        self._handled: dict[str, bool] = {}

    def read(self, gpu: GpuRound) -> PcieAerReading:
        """Read the errors (``aer_dev_*`` under ``/sys/bus/pci/devices``) of the GPU and its upstream port.

        An error may be reported by one end only: by the port alone once the GPU no longer answers.

        Raises:
            HostReadFailed: no sysfs is mounted.
        """
        refuse_unmounted(gpu.machine.sysfs)
        bus_id = gpu.inquiry.device.pci_bus_id
        if bus_id is None:
            return PcieAerReading({}, {})
        port = port_above(gpu.machine.sysfs, bus_id)
        if bus_id not in self._handled:
            # Decided at boot, so cache it.
            self._handled = {bus_id: handles_aer(gpu.machine.sysfs, bus_id) is not False}
        handled = self._handled[bus_id]
        return PcieAerReading(
            gpu=_told(self._errors(gpu, "gpu", bus_id), handled=handled),
            port={} if port is None else _told(self._errors(gpu, "port", port), handled=handled),
        )

    def _errors(self, gpu: GpuRound, end: str, bus_id: str) -> Mapping[str, float]:
        counts = {severity: self._count(gpu, bus_id, severity) for severity in TOTALS}
        return {
            severity: self._counters[end, severity].add(count, gpu.at.monotonic)
            for severity, count in counts.items()
            if count is not None
        }

    def _count(self, gpu: GpuRound, bus_id: str, severity: str) -> int | None:
        path = f"{device_directory(gpu.machine.sysfs, bus_id)}/aer_dev_{severity}"
        try:
            text = read_text(path, limit=_LIMIT_BYTES)
        except HostReadFailed as failed:
            gpu.inquiry.failures.append(failed.reason)
            return None
        if text is None:
            return None
        count = parse_aer_total(text, severity)
        if count is None:
            gpu.inquiry.failures.append("malformed")
        return count


def _told(counts: Mapping[str, float], *, handled: bool) -> Mapping[str, float]:
    """Drop zeros if the firmware handles AER: then errors rarely reach the kernel, so 0 is meaningless."""
    return counts if handled else {severity: count for severity, count in counts.items() if count}


def parse_aer_total(text: str, severity: str) -> int | None:
    """Parse the total of this severity from an ``aer_dev_*`` file; None if there is no such line.

    Format: lines ``Name N``, the last one ``TOTAL_ERR_COR N``. Error names may contain spaces and differ between
    kernels; only the line with the total is read, and malformed lines are skipped.
    """
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        if name.rstrip() == TOTALS[severity]:
            try:
                return parse_count(number)
            except ValueError:
                continue
    return None


PCIE_AER = GpuCollector(
    name="pcie_aer",
    about="PCIe errors as the kernel counts them, of the GPU and the port above it",
    tier=Tier.MEDIUM,
    reader=lambda _config: PcieAerReader().read,
)
