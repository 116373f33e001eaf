"""What GPUs exchange in each training step, how long that takes, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.cli.advise.assumptions import BACKWARD_SHARE, WORTHWHILE
from gpu_triage.cli.advise.job import Job
from gpu_triage.cli.advise.paths import Path

_ALL_REDUCE: Final = 2
"""A ring all-reduce sends each byte twice, less the share that each GPU already has: reduce-scatter and all-gather
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)."""
_GATHERED: Final = 2
"""ZeRO-3 and FSDP gather the weights twice per step, forward and backward, and reduce-scatter the gradients
(arXiv:1910.02054, section 7)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange of one step between the GPUs of a path; `sharded` if they split the model instead of copying it."""

    job: Job
    path: Path
    sharded: bool

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.path.gpus)

    @property
    def payload_bytes(self) -> float:
        """What is exchanged, before the factor."""
        if not self.sharded:
            return self.job.gradient_bytes
        return _GATHERED * self.job.parts[0].size_bytes + self.job.gradient_bytes

    @property
    def moved_bytes(self) -> float:
        """Bytes that each GPU sends, and receives, per step."""
        passes = 1 if self.sharded else _ALL_REDUCE
        return passes * self.payload_bytes * (self.gpus - 1) / self.gpus

    @property
    def seconds(self) -> float | None:
        """Time of the exchange; None if the bandwidth is unknown."""
        bandwidth = self.path.bandwidth
        return None if bandwidth is None else self.moved_bytes / bandwidth

    @property
    def compute_seconds(self) -> float | None:
        """Time that each GPU computes per step; None without a step time."""
        step = self.job.step_seconds
        return None if step is None else step / self.gpus if self.job.same_total_batch else step

    @property
    def step_seconds(self) -> float | None:
        """Time of a step if nothing of the exchange is hidden; None if it is unknown."""
        return None if self.compute_seconds is None or self.seconds is None else self.compute_seconds + self.seconds

    @property
    def efficiency(self) -> tuple[float, float] | None:
        """Share of a step that computes, 0-1: with nothing hidden, and with all that can be; None if unknown.

        Copies exchange gradients during the backward pass, shards during the whole step.
        """
        compute, seconds = self.compute_seconds, self.seconds
        if compute is None or seconds is None:
            return None
        hidden = compute if self.sharded else compute * BACKWARD_SHARE.value
        return compute / (compute + seconds), compute / (compute + max(0.0, seconds - hidden))

    @property
    def break_even_seconds(self) -> float | None:
        """Step time of one GPU from which these are faster, with nothing hidden; None if unknown."""
        return self._step_of_one(1 / self.gpus)

    @property
    def worthwhile_seconds(self) -> float | None:
        """Step time of one GPU from which these are worth their cost, likewise."""
        return self._step_of_one(WORTHWHILE.value)

    def _step_of_one(self, efficiency: float) -> float | None:
        """Step time of one GPU at which these have an efficiency: compute / (compute + exchange)."""
        if self.seconds is None:
            return None
        compute = self.seconds * efficiency / (1 - efficiency)
        return compute * self.gpus if self.job.same_total_batch else compute
