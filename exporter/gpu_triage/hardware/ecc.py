"""Memory errors as the GPU counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.integrals import Confirmed
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound

SEVERITIES: Final = {"corrected": 0, "uncorrected": 1}
"""Label to nvmlMemoryErrorType_t."""

VOLATILE: Final = 0
AGGREGATE: Final = 1
"""nvmlEccCounterType_t."""

_MOST_ERRORS: Final = 1 << 48


@dataclass(frozen=True, slots=True)
class EccReading:
    """Errors by severity (corrected, uncorrected); a severity not reported is not in the mapping.

    Attributes:
        volatile_errors: since the driver was loaded or the GPU reset.
        aggregate_errors: over the board's life.
    """

    volatile_errors: Mapping[str, float]
    aggregate_errors: Mapping[str, float]


class EccReader:
    """Reads the totals; holds back a single low reading."""

    def __init__(self) -> None:
        self._counters = {(severity, kind): Confirmed() for severity in SEVERITIES for kind in (VOLATILE, AGGREGATE)}

    def read(self, gpu: GpuRound) -> EccReading:
        """Errors now (nvmlDeviceGetTotalEccErrors)."""
        return EccReading(self._totals(gpu.inquiry, VOLATILE), self._totals(gpu.inquiry, AGGREGATE))

    def _totals(self, inquiry: Inquiry, kind: int) -> Mapping[str, float]:
        totals = {}
        for severity, error_type in SEVERITIES.items():
            count = inquiry.within(inquiry.ask("nvmlDeviceGetTotalEccErrors", error_type, kind), 0, _MOST_ERRORS)
            if count is not None:
                totals[severity] = self._counters[severity, kind].add(count)
        return totals
