"""The job to place: its size, how its numbers are stored, and what that needs in memory and for an exchange."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.errors import ConfigError

_COUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(?:[eE]\+?([0-9]{1,2})|([KMBTkmbt]))?")
_UNITS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_MOST_PARAMETERS: Final = 1e15

_LAYERS_SHAPE: Final = 12
"""Parameters of a transformer's layer over the square of its hidden size: 4 for attention, 8 for the MLP."""
_WIDTH_OVER_DEPTH: Final = 128
"""Hidden size over number of layers: 4096 and 32 in Llama 2 7B, 5120 and 40 in 13B, 8192 and 80 in 70B."""
_ADAPTER_SHAPE: Final = 18
"""LoRA's parameters per rank and layer over the hidden size, with adapters on every linear layer: 4 x 2 for attention,
2 x 5 for the MLP."""


class Workload(Enum):
    """What the job does."""

    TRAINING = "training"
    INFERENCE = "inference"


class Precision(NamedTuple):
    """Bytes per parameter by purpose."""

    name: str
    weight: float
    gradient: float
    master: float  # a copy of the weights that the optimizer updates; 0 without one
    state: float  # each value of the optimizer
    words: str


_MIXED: Final = Precision("mixed", 2, 2, 4, 4, "16 bits, with an FP32 copy for the optimizer")
PRECISIONS: Final[Mapping[str, Precision]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Precision("fp32", 4, 4, 0, 4, "FP32"),
            _MIXED,
            Precision("bf16", 2, 2, 0, 2, "BF16"),
            Precision("int8", 1, 0, 0, 0, "8 bits"),
            Precision("int4", 0.5, 0, 0, 0, "4 bits"),
        )
    }
)
_WITHOUT_GRADIENTS: Final = ("int8", "int4")


class Optimizer(NamedTuple):
    """What an optimizer keeps per parameter: `values` in the precision's state size, and `fixed` bytes."""

    values: int
    fixed: float
    words: str


OPTIMIZERS: Final[Mapping[str, Optimizer]] = MappingProxyType(
    {
        "adamw": Optimizer(2, 0, "momentum and variance"),
        "adamw8bit": Optimizer(0, 2, "momentum and variance in 8 bits each"),
        "adafactor": Optimizer(0, 0, "sums of rows and columns: under 0.1 bytes, counted as none"),
        "sgd": Optimizer(1, 0, "momentum"),
    }
)


class Part(NamedTuple):
    """One term of the memory."""

    what: str
    parameters: float
    bytes_each: float
    words: str

    @property
    def size_bytes(self) -> float:
        """Parameters times bytes."""
        return self.parameters * self.bytes_each


@dataclass(frozen=True, slots=True)
class Job:
    """The job. `step_seconds` is the time of one step on one GPU, None if unknown."""

    parameters: float
    workload: Workload = Workload.TRAINING
    precision: str = "mixed"
    optimizer: str = "adamw"
    lora_rank: int | None = None
    step_seconds: float | None = None
    same_total_batch: bool = False  # more GPUs share the batch of one, instead of each having that batch
    heads: int | None = None  # attention heads; None if not given
    gpus: int | None = None  # most GPUs to use; None for all of one model

    @property
    def shape(self) -> tuple[float, float]:
        """Hidden size and layers of a transformer of this size."""
        hidden = (self.parameters * _WIDTH_OVER_DEPTH / _LAYERS_SHAPE) ** (1 / 3)
        return hidden, hidden / _WIDTH_OVER_DEPTH

    @property
    def trained(self) -> float:
        """Number of parameters with a gradient: all, those of LoRA's adapters, or none."""
        if self.workload is Workload.INFERENCE:
            return 0.0
        if self.lora_rank is None:
            return self.parameters
        hidden, layers = self.shape
        return _ADAPTER_SHAPE * hidden * self.lora_rank * layers

    @property
    def trained_precision(self) -> Precision:
        """Precision of what is trained: adapters of quantized weights are trained in mixed precision."""
        return _MIXED if self.precision in _WITHOUT_GRADIENTS else PRECISIONS[self.precision]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Memory of the model on one GPU, without activations and caches."""
        precision, trained = PRECISIONS[self.precision], self.trained_precision
        frozen = ", frozen" if self.lora_rank is not None else ""
        weights = Part("weights", self.parameters, precision.weight, precision.words.partition(",")[0] + frozen)
        if self.workload is Workload.INFERENCE:
            return (weights,)
        optimizer = OPTIMIZERS[self.optimizer]
        states = trained.master + optimizer.values * trained.state + optimizer.fixed
        copy = "an FP32 copy of the weights; " if trained.master else ""
        adapters = Part("adapters", self.trained, trained.weight, f"LoRA of rank {self.lora_rank}, estimated")
        return (
            weights,
            *((adapters,) if self.lora_rank is not None else ()),
            Part("gradients", self.trained, trained.gradient, trained.words.partition(",")[0]),
            Part("optimizer", self.trained, states, f"{self.optimizer}: {copy}{optimizer.words}"),
        )

    @property
    def gradient_bytes(self) -> float:
        """Size of all gradients, which data parallelism exchanges in each step."""
        return self.trained * self.trained_precision.gradient


def checked(job: Job) -> Job:
    """Return the job.

    Raises:
        ConfigError: its options contradict each other.
    """
    if job.workload is Workload.INFERENCE:
        if job.lora_rank is not None:
            raise ConfigError("--lora-rank is for --workload training: merged adapters add nothing to a served model")
        if job.step_seconds is not None or job.same_total_batch:
            raise ConfigError("--step-time and --same-total-batch are for --workload training")
        if job.precision == "mixed":
            raise ConfigError("--precision mixed is for --workload training; write bf16 for weights in 16 bits")
    elif job.precision in _WITHOUT_GRADIENTS and job.lora_rank is None:
        raise ConfigError(
            f"--precision {job.precision} has no gradients: add --lora-rank, or --workload inference, or write mixed, "
            "bf16 or fp32"
        )
    return job


def parse_count(text: str) -> float:
    """Parse a number of parameters such as ``350M``, ``3B`` or ``7e9``.

    Raises:
        ConfigError: not such a number, or out of range.
    """
    match = _COUNT.fullmatch(text)
    count = 0.0
    if match:
        count = float(match[1]) * (10.0 ** int(match[2]) if match[2] else _UNITS.get((match[3] or "").upper(), 1.0))
    if not 1 <= count <= _MOST_PARAMETERS:
        raise ConfigError(f"--params: {text[:60]!r} is not a number of parameters; write 350M, 3B or 7e9")
    return count
