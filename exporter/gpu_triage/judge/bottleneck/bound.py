"""What bounds the kernels of a busy GPU: arithmetic or memory bandwidth, if the GPU reports both (GPM)."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND
from gpu_triage.read.gpu.activity import (
    GPU_DRAM_ACTIVE_RATIO,
    GPU_FP16_ACTIVE_RATIO,
    GPU_FP32_ACTIVE_RATIO,
    GPU_FP64_ACTIVE_RATIO,
    GPU_TENSOR_ACTIVE_RATIO,
)

PIPES: Final = {
    "tensor cores": GPU_TENSOR_ACTIVE_RATIO,
    "FP64 units": GPU_FP64_ACTIVE_RATIO,
    "FP32 units": GPU_FP32_ACTIVE_RATIO,
    "FP16 units": GPU_FP16_ACTIVE_RATIO,
}
"""Where an SM does arithmetic. Only the tensor cores have to be reported."""


class Bound(NamedTuple):
    """Averages over the window, 0-1, of the busiest pipe and of the memory bandwidth in use."""

    pipe: str
    pipe_ratio: float
    memory_ratio: float

    @property
    def name(self) -> str:
        """A state of gpu_compute_bound."""
        arithmetic = self.pipe_ratio >= thresholds.ARITHMETIC_BOUND_SHARE
        memory = self.memory_ratio >= thresholds.MEMORY_BOUND_SHARE
        return GPU_COMPUTE_BOUND.states[arithmetic + 2 * memory]

    @property
    def text(self) -> str:
        """The bound in words, with what was measured."""
        arithmetic = f"{self.pipe} {self.pipe_ratio:.0%} active"
        memory = f"{self.memory_ratio:.0%} of memory bandwidth"
        measured = (memory, arithmetic) if self.name == "memory" else (arithmetic, memory)
        return f"{_WORDS[self.name]}: {', '.join(measured)}"


_WORDS: Final = {
    "neither": "neither compute- nor memory-bound",
    "compute": "compute-bound",
    "memory": "memory-bound",
    "both": "compute- and memory-bound",
}


def bound_of(gpu: GpuEvidence) -> Bound | None:
    """Determine the bound; None if the GPU does not report it, as before Hopper and in MIG mode."""
    means = {pipe: series.mean for pipe, spec in PIPES.items() if (series := gpu.one(spec)) is not None}
    memory = gpu.one(GPU_DRAM_ACTIVE_RATIO)
    if memory is None or "tensor cores" not in means:
        return None
    pipe = max(means, key=means.__getitem__)
    return Bound(pipe, means[pipe], memory.mean)
