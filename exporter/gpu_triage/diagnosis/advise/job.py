"""The job that somebody wants to run."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gpu_triage.diagnosis.advise.rules import BANDS, SizeBand


class JobKind(Enum):
    """What the job does."""

    TRAINING = "training"
    INFERENCE = "inference"

    @property
    def bytes_per_parameter(self) -> int:
        """Of training: weights, gradients and Adam's states in mixed precision; of inference: weights in 16 bits.

        Activations and caches come on top.
        """
        return 16 if self is JobKind.TRAINING else 2

    @property
    def bytes_are_for(self) -> str:
        """What those bytes hold."""
        return "weights, gradients and Adam's states" if self is JobKind.TRAINING else "weights in FP16 or BF16"


class Job(NamedTuple):
    """What is to run: `batch_size` is of all GPUs together, `gpus` how many it would like; None for all alike."""

    parameters: float
    batch_size: int
    gpus: int | None
    kind: JobKind

    @property
    def band(self) -> SizeBand:
        """What is said of models of this size."""
        return next(each for each in BANDS if self.parameters < each.below)
