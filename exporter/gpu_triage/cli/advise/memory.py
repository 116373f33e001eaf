"""Whether a model fits in GPU memory, and what would fit instead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.advise.job import Job, JobKind
from gpu_triage.cli.advise.rules import DEEPSPEED, LORA, QLORA, USABLE_MEMORY, VLLM, ZERO
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.memory import GPU_MEMORY_TOTAL_BYTES

_OFFLOADED_ON_GPU: Final = 2
"""Bytes per parameter left on the GPUs, sharded, while ZeRO-3 keeps gradients and optimizer in host memory."""
_OFFLOADED_ON_HOST: Final = 24
"""Bytes of host memory per parameter in that case: 16, plus half of that for buffers."""


_WHOLE_GIB: Final = 100
"""Sizes from this many GiB are shown without decimals."""


class _Format(NamedTuple):
    """A more compact representation of the model."""

    words: str
    bytes_per_parameter: float
    source: str


_FORMATS: Final = {
    JobKind.TRAINING: (
        _Format("LoRA, base weights frozen in BF16", 2, LORA),
        _Format("QLoRA, base weights frozen in 4 bits", 0.5, QLORA),
    ),
    JobKind.INFERENCE: (
        _Format("weights in FP8 or INT8", 1, VLLM),
        _Format("weights in 4 bits", 0.5, VLLM),
    ),
}


class SpareCapacity(NamedTuple):
    """Capacity of the host beyond its usable GPUs."""

    host_bytes: float | None  # memory of the host; None if unknown
    drained_gpus: int  # GPUs of the same model that would be usable if repaired


class Alternative(NamedTuple):
    """An alternative way to run the job."""

    words: str  # with its numbers
    fits: bool  # whether it fits on the host's usable GPUs
    source: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that the model needs and that GPUs of one model have, without activations and caches."""

    needed_bytes: float
    total_bytes: float  # memory of the smallest of the GPUs
    gpus: int  # number of GPUs

    @property
    def usable_bytes(self) -> float:
        """Usable memory of one GPU, after the margin."""
        return self.total_bytes * USABLE_MEMORY

    @property
    def gpus_needed(self) -> int:
        """Minimum number of GPUs to hold the model, split across them."""
        return self.gpus_for(self.needed_bytes)

    @property
    def missing_bytes(self) -> float:
        """Shortfall of all GPUs together; 0 if the model fits."""
        return max(0.0, self.needed_bytes - self.usable_bytes * self.gpus)

    def gpus_for(self, needed_bytes: float) -> int:
        """Return the minimum number of GPUs to hold this much."""
        return max(1, math.ceil(needed_bytes / self.usable_bytes))


def memory_of(job: Job, gpus: tuple[GpuEvidence, ...]) -> Memory | None:
    """Return the memory needed and available; None if no GPU reports its memory."""
    totals = [total for gpu in gpus if (total := gpu.last(GPU_MEMORY_TOTAL_BYTES))]
    return Memory(job.parameters * job.kind.bytes_per_parameter, min(totals), len(gpus)) if totals else None


def alternatives(job: Job, memory: Memory, spare: SpareCapacity) -> Iterator[Alternative]:
    """Yield ways to run a model that does not fit on one GPU."""
    if memory.missing_bytes:
        training = job.kind is JobKind.TRAINING
        how = "sharded by ZeRO-3 or FSDP" if training else "with tensor or pipeline parallelism"
        words = f"{memory.gpus_needed} GPUs of {gib(memory.total_bytes)} each, {how}"
        repaired = memory.gpus + spare.drained_gpus >= memory.gpus_needed
        words += "; this host has them once its sick GPUs are repaired" if repaired else ""
        yield Alternative(words, fits=False, source=ZERO if training else VLLM)
        if training:
            yield _offloaded(job, memory, spare.host_bytes)
    for each in _FORMATS[job.kind]:
        needed = job.parameters * each.bytes_per_parameter
        gpus = memory.gpus_for(needed)
        on = "one GPU" if gpus == 1 else f"{gpus} GPUs"
        yield Alternative(f"{each.words}: {gib(needed)} on {on}", fits=gpus <= memory.gpus, source=each.source)


def _offloaded(job: Job, memory: Memory, host_bytes: float | None) -> Alternative:
    on_gpu = job.parameters * _OFFLOADED_ON_GPU
    on_host = job.parameters * _OFFLOADED_ON_HOST
    fits = host_bytes is not None and on_host <= host_bytes and memory.gpus_for(on_gpu) <= memory.gpus
    has = "an unknown amount" if host_bytes is None else gib(host_bytes)
    words = (
        f"ZeRO-3 with the optimizer in host memory: {gib(on_gpu / memory.gpus)} per GPU and {gib(on_host)} of host "
        f"memory, of which this host has {has}; slower"
    )
    return Alternative(words, fits=fits, source=DEEPSPEED)


def gib(size_bytes: float) -> str:
    """Format an amount of memory: ``1,043 GiB``, ``24.2 GiB``."""
    size = size_bytes / 1024**3
    return f"{size:,.0f} GiB" if size >= _WHOLE_GIB else f"{size:.1f} GiB"
