"""ECC error counters of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.integrals import ConfirmedCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter
from gpu_triage.read.metrics.plausible import BoundedCounter, CounterLimit
from gpu_triage.read.metrics.rounds import GpuRound

SEVERITIES: Final = {"corrected": 0, "uncorrected": 1}
"""Label to nvmlMemoryErrorType_t."""

MEMORIES: Final = {"dram": 2, "sram": 7}
"""Label to NVML_MEMORY_LOCATION_DRAM and _SRAM."""

VOLATILE: Final = 0
AGGREGATE: Final = 1
"""nvmlEccCounterType_t."""

_LIMIT: Final = CounterLimit(per_second=1e6, most=1 << 48)
"""Errors: beyond this rate a board would not do anything else."""

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

GPU_ECC_MEMORY_ERRORS_TOTAL = gpu_counter(
    "gpu_ecc_memory_errors_total",
    "Those of gpu_ecc_volatile_errors_total that happened in the device memory (dram), which the GPU repairs by "
    "remapping rows, or in the chip (sram), which only a replacement board fixes. Absent while a GPU has no errors of "
    "that severity.",
    labels={"severity": SEVERITIES, "memory": MEMORIES},
    source="nvmlDeviceGetMemoryErrorCounter(VOLATILE)",
)


@dataclass(frozen=True, slots=True)
class EccReading:
    """Errors by severity (corrected, uncorrected); severities not reported are missing.

    `memory_errors` are volatile ones by severity and memory, for severities with any errors.
    """

    volatile_errors: Annotated[Mapping[str, float], GPU_ECC_VOLATILE_ERRORS_TOTAL]
    aggregate_errors: Annotated[Mapping[str, float], GPU_ECC_AGGREGATE_ERRORS_TOTAL]
    memory_errors: Annotated[Mapping[tuple[str, str], float], GPU_ECC_MEMORY_ERRORS_TOTAL] = field(default_factory=dict)


class EccReader:
    """Reads the totals; holds back a single low reading, and drops implausibly high ones."""

    def __init__(self) -> None:
        keys = ((severity, kind) for severity in SEVERITIES for kind in (VOLATILE, AGGREGATE))
        self._counters = {key: BoundedCounter(_LIMIT, ConfirmedCounter()) for key in keys}
        places = ((severity, memory) for severity in SEVERITIES for memory in MEMORIES)
        self._by_memory = {place: BoundedCounter(_LIMIT, ConfirmedCounter()) for place in places}

    def read(self, gpu: GpuRound) -> EccReading:
        """Read the error counters (nvmlDeviceGetTotalEccErrors, nvmlDeviceGetMemoryErrorCounter)."""
        volatile = self._totals(gpu, VOLATILE)
        return EccReading(volatile, self._totals(gpu, AGGREGATE), self._memory_errors(gpu, volatile))

    def _memory_errors(self, gpu: GpuRound, volatile: Mapping[str, float]) -> dict[tuple[str, str], float]:
        errors: dict[tuple[str, str], float] = {}
        for (severity, memory), counter in self._by_memory.items():
            if volatile.get(severity):
                where = (SEVERITIES[severity], VOLATILE, MEMORIES[memory])
                raw = gpu.inquiry.ask("nvmlDeviceGetMemoryErrorCounter", *where)
                count = counter.add(gpu.inquiry, raw, gpu.at.monotonic)
                if count is not None:
                    errors[severity, memory] = count
        return errors

    def _totals(self, gpu: GpuRound, kind: int) -> Mapping[str, float]:
        totals = {}
        for severity, error_type in SEVERITIES.items():
            raw = gpu.inquiry.ask("nvmlDeviceGetTotalEccErrors", error_type, kind)
            count = self._counters[severity, kind].add(gpu.inquiry, raw, gpu.at.monotonic)
            if count is not None:
                totals[severity] = count
        return totals


ECC = GpuCollector("ecc", "ECC error counters", Tier.MEDIUM, lambda _config: EccReader().read)
