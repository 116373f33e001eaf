"""PCIe link errors counted by the GPU itself; for the kernel's counts see `pcie_aer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.read.gpu.pcie import on_pcie
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter
from gpu_triage.read.metrics.plausible import ERRORS, BoundedCounter
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
        self._counters = {label: BoundedCounter(ERRORS, ContinuedCounter()) for label in TYPE_FIELDS}

    def read(self, gpu: GpuRound) -> PcieErrorsReading:
        """Read the errors (the fields of TYPE_FIELDS, in one call)."""
        inquiry = gpu.inquiry
        if not on_pcie(inquiry):
            return PcieErrorsReading({})
        counted = inquiry.fields(TYPE_FIELDS.values())
        errors = {}
        for label, field in TYPE_FIELDS.items():
            count = self._counters[label].add(inquiry, counted.get(field), gpu.at.monotonic)
            if count is not None:
                errors[label] = count
        return PcieErrorsReading(errors)


PCIE_ERRORS = GpuCollector(
    "pcie_errors", "PCIe errors as the GPU counts them", Tier.MEDIUM, lambda _config: PcieErrorsReader().read
)
