"""What bounds the kernels of a busy GPU: arithmetic or memory bandwidth, if the GPU reports both (GPM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND
from gpu_triage.read.gpu.gpm import (
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
        return bound_in_words(self.name, self.pipe, [self.pipe_ratio], [self.memory_ratio])


_WORDS: Final = {
    "neither": "neither compute- nor memory-bound",
    "compute": "compute-bound",
    "memory": "memory-bound",
    "both": "compute- and memory-bound",
}


def bound_in_words(name: str, pipe: str, pipe_ratios: Sequence[float], memory_ratios: Sequence[float]) -> str:
    """Describe GPUs with the same bound, with the range of what was measured."""
    arithmetic, memory = f"{pipe} {_range(pipe_ratios)} active", f"{_range(memory_ratios)} of memory bandwidth"
    measured = (memory, arithmetic) if name == "memory" else (arithmetic, memory)
    return f"{_WORDS.get(name, name)}: {', '.join(measured)}"


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.0%}", f"{max(ratios):.0%}"
    return high if low == high else f"{low.removesuffix('%')}-{high}"


def bound_of(gpu: GpuEvidence) -> Bound | None:
    """Determine the bound; None if the GPU does not report it, as before Hopper and in MIG mode."""
    means = {pipe: series.mean for pipe, spec in PIPES.items() if (series := gpu.one(spec)) is not None}
    memory = gpu.one(GPU_DRAM_ACTIVE_RATIO)
    if memory is None or "tensor cores" not in means:
        return None
    pipe = max(means, key=means.__getitem__)
    return Bound(pipe, means[pipe], memory.mean)
