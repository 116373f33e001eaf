"""Errors of the PCIe link as the GPU itself counts them; the kernel's view is in `pcie_aer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.integrals import Continued
from gpu_triage.hardware.pcie import on_pcie
from gpu_triage.hardware.plausible import ERRORS, BoundedCounter
from gpu_triage.hardware.rounds import GpuRound

TYPE_FIELDS: Final = MappingProxyType(
    {
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
)
"""Label to NVML_FI_DEV_PCIE_COUNT_* (173-183) and NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER (169)."""


@dataclass(frozen=True, slots=True)
class PcieErrorsReading:
    """Errors by type since the driver was loaded; a type not counted is not in it. Never go back."""

    errors: Mapping[str, float]


class PcieErrorsReader:
    """Reads the counters and carries them on over resets."""

    def __init__(self) -> None:
        self._counters = {label: BoundedCounter(ERRORS, Continued()) for label in TYPE_FIELDS}

    def read(self, gpu: GpuRound) -> PcieErrorsReading:
        """Errors now (the fields of TYPE_FIELDS, in one call)."""
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
