"""Whether a model fits in the memory of GPUs, and what would need less."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpu_triage.cli.advise.assumptions import USABLE_MEMORY
from gpu_triage.cli.advise.job import Job, Part, Workload
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES

_LORA_RANK: Final = 16


class Alternative(NamedTuple):
    """The same job with other options."""

    options: str
    needed_bytes: float
    gpus: int | None  # smallest group of this host that holds it; None if none does


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that the model needs, without activations and caches, and that GPUs of one model have."""

    parts: tuple[Part, ...]
    total_bytes: float  # of the smallest GPU
    gpus: int

    @property
    def needed_bytes(self) -> float:
        """Memory of the whole model."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def usable_bytes(self) -> float:
        """Memory of one GPU to plan with."""
        return self.total_bytes * USABLE_MEMORY.value

    @property
    def fits(self) -> bool:
        """Whether one GPU holds it."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def missing_bytes(self) -> float:
        """What all GPUs together lack; 0 if they hold it."""
        return max(0.0, self.needed_bytes - self.usable_bytes * self.gpus)

    @property
    def fewest_gpus(self) -> int:
        """GPUs that hold it together, of any number."""
        return max(1, math.ceil(self.needed_bytes / self.usable_bytes))


def memory_of(job: Job, gpus: tuple[GpuEvidence, ...], count: int) -> Memory | None:
    """Return the memory that the job needs, and that `count` of the GPUs have; None if no GPU reports its memory."""
    totals = [total for gpu in gpus if (total := gpu.last(GPU_MEMORY_TOTAL_BYTES))]
    return Memory(job.parts, min(totals), count) if totals else None


def group_sizes(most: int, heads: int | None = None) -> tuple[int, ...]:
    """Return how many GPUs may share a model: powers of two, or with known attention heads their divisors."""
    if heads is not None:
        return tuple(size for size in range(1, most + 1) if heads % size == 0)
    return tuple(1 << power for power in range(most.bit_length()))


def smallest_group(job: Job, memory: Memory) -> int | None:
    """Return the smallest group of the GPUs that holds the model; None if none does."""
    sizes = group_sizes(memory.gpus, job.heads)
    return next((size for size in sizes if size >= memory.fewest_gpus), None)


def alternatives(job: Job, memory: Memory) -> Iterator[Alternative]:
    """Yield options with which the job needs less memory."""
    for other, options in _others(job):
        smaller = replace(memory, parts=other.parts)
        if smaller.needed_bytes < memory.needed_bytes:
            yield Alternative(options, smaller.needed_bytes, smallest_group(other, smaller))


def _others(job: Job) -> Iterator[tuple[Job, str]]:
    if job.workload is Workload.INFERENCE:
        for precision in ("int8", "int4"):
            yield replace(job, precision=precision), f"--precision {precision}"
        return
    for optimizer in ("adamw8bit", "adafactor"):
        yield replace(job, optimizer=optimizer), f"--optimizer {optimizer}"
    if job.lora_rank is None:
        yield replace(job, precision="bf16"), "--precision bf16"
        yield replace(job, lora_rank=_LORA_RANK), f"--lora-rank {_LORA_RANK}"
    rank = job.lora_rank or _LORA_RANK
    yield replace(job, lora_rank=rank, precision="int4"), f"--lora-rank {rank} --precision int4"
