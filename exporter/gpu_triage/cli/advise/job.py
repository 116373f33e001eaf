"""Description of the job to run."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpu_triage.cli.advise.rules import BANDS, SizeBand


class JobKind(Enum):
    """The job's workload."""

    TRAINING = "training"
    INFERENCE = "inference"

    @property
    def bytes_per_parameter(self) -> int:
        """Training: weights, gradients and Adam's states in mixed precision; inference: 16-bit weights.

        Activations and caches are extra.
        """
        return 16 if self is JobKind.TRAINING else 2

    @property
    def bytes_are_for(self) -> str:
        """What those bytes are used for."""
        return "weights, gradients and Adam's states" if self is JobKind.TRAINING else "weights in FP16 or BF16"


class Job(NamedTuple):
    """The job: `batch_size` is for all GPUs together; `gpus` is the number requested, None for all of one model."""

    parameters: float
    batch_size: int
    gpus: int | None
    kind: JobKind

    @property
    def band(self) -> SizeBand:
        """The size band of the model."""
        return next(each for each in BANDS if self.parameters < each.below)
