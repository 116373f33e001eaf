"""Memory errors as the GPU counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.subjects.contract import GpuCollector
from gpu_triage.subjects.integrals import Confirmed
from gpu_triage.subjects.metric import Tier, gpu_counter
from gpu_triage.subjects.plausible import BoundedCounter, CounterLimit
from gpu_triage.subjects.rounds import GpuRound

SEVERITIES: Final = {"corrected": 0, "uncorrected": 1}
"""Label to nvmlMemoryErrorType_t."""

VOLATILE: Final = 0
AGGREGATE: Final = 1
"""nvmlEccCounterType_t."""

_LIMIT: Final = CounterLimit(per_second=1e6, most=1 << 48)
"""Errors: a board with more of them a second does nothing else."""

GPU_ECC_VOLATILE_ERRORS_TOTAL = gpu_counter(
    "gpu_ecc_volatile_errors_total",
    "ECC errors since the driver was loaded or the GPU reset. Unlike other counters it goes back to 0 then, while the "
    "exporter runs, because alerts look at its value.",
    labels={"severity": SEVERITIES},
    source="nvmlDeviceGetTotalEccErrors(VOLATILE)",
)
GPU_ECC_AGGREGATE_ERRORS_TOTAL = gpu_counter(
    "gpu_ecc_aggregate_errors_total",
    "ECC errors over the life of the board, as its InfoROM keeps them; an administrator can clear them.",
    labels={"severity": SEVERITIES},
    source="nvmlDeviceGetTotalEccErrors(AGGREGATE)",
)


@dataclass(frozen=True, slots=True)
class EccReading:
    """Errors by severity (corrected, uncorrected); a severity not reported is not in the mapping."""

    volatile_errors: Annotated[Mapping[str, float], GPU_ECC_VOLATILE_ERRORS_TOTAL]
    aggregate_errors: Annotated[Mapping[str, float], GPU_ECC_AGGREGATE_ERRORS_TOTAL]


class EccReader:
    """Reads the totals; holds back a single low reading, and drops one that is too high to be true."""

    def __init__(self) -> None:
        keys = ((severity, kind) for severity in SEVERITIES for kind in (VOLATILE, AGGREGATE))
        self._counters = {key: BoundedCounter(_LIMIT, Confirmed()) for key in keys}

    def read(self, gpu: GpuRound) -> EccReading:
        """Errors now (nvmlDeviceGetTotalEccErrors)."""
        return EccReading(self._totals(gpu, VOLATILE), self._totals(gpu, AGGREGATE))

    def _totals(self, gpu: GpuRound, kind: int) -> Mapping[str, float]:
        totals = {}
        for severity, error_type in SEVERITIES.items():
            raw = gpu.inquiry.ask("nvmlDeviceGetTotalEccErrors", error_type, kind)
            count = self._counters[severity, kind].add(gpu.inquiry, raw, gpu.at.monotonic)
            if count is not None:
                totals[severity] = count
        return totals


ECC = GpuCollector(
    name="ecc",
    about="ECC error counters",
    tier=Tier.MEDIUM,
    reader=lambda _config: EccReader().read,
)
