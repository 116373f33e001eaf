"""The rules for recommendations, each with its source."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

STUDY: Final = "https://ahjavid.github.io/technical-notes-blog/posts/multi-gpu-training-analysis"
"""One GPU versus two in data-parallel training, 120 hours on two GeForce RTX 4070 Ti SUPER (PCIe 4.0 x16, one host
bridge, no peer access, TensorFlow 2.19, NCCL 2.18): fully connected networks of 258 K and 6.9 M parameters at batch
sizes of 8 to 128, recurrent and transformer models of 0.2 M to 3 M. Its per-phase times do not add up to its step
times, so only its throughput figures are used.
"""
ZERO: Final = "ZeRO, arXiv:1910.02054, section 3.1"
"""Memory of mixed-precision training with Adam: 16 bytes per parameter."""
DEEPSPEED: Final = "DeepSpeed's estimate for ZeRO-3, https://deepspeed.readthedocs.io/en/stable/memory.html"
LORA: Final = "LoRA, arXiv:2106.09685"
QLORA: Final = "QLoRA, arXiv:2305.14314"
VLLM: Final = "vLLM, https://docs.vllm.ai/en/latest/serving/parallelism_scaling/"

MEASURED_GPUS: Final = 2
LARGEST_MEASURED: Final = 6_900_000
"""Parameters of the largest model described by the study; for larger ones it gives results but no method."""

USABLE_MEMORY: Final = 0.8
"""Share of a GPU's memory to plan with; the rest is for the CUDA context, NCCL buffers and fragmentation. From STUDY
(`memory_safety_margin`)."""

SAMPLES_PER_GPU: Final = 32
"""Samples per GPU and step needed for another GPU to be worthwhile: STUDY recommends a batch of 64 on its two GPUs."""

WORTHWHILE_EFFICIENCY: Final = 0.7
"""Scaling efficiency below which STUDY considers a second GPU not worthwhile."""


class Choice(Enum):
    """The recommended course of action."""

    ONE = "one"
    SEVERAL = "several"
    MEASURE = "measure"
    SHARD = "shard"
    TOO_LARGE = "too_large"
    NO_GPU = "no_gpu"


class Rule(NamedTuple):
    """The rule behind a recommendation."""

    name: str  # as listed in docs/advise.md
    words: str
    source: str


class SizeBand(NamedTuple):
    """The study's conclusions for models with fewer than `below` parameters."""

    below: float
    name: str
    words: str
    through_host_memory: Choice
    direct: Choice  # the choice for direct paths, if the batch is large enough
    efficiency: tuple[float, float] | None
    """Lowest and highest measured scaling efficiency of two GPUs; None if not measured."""

    @property
    def rule(self) -> Rule:
        """The rule for this size."""
        basis = "its author's extrapolation" if self.efficiency is None else "measured on two GPUs"
        return Rule(
            f"size-{self.name}",
            f"models of {self.name.replace('-', ' ')} parameters: {self.words}",
            f"{STUDY}, {basis}",
        )


BANDS: Final = (
    # 258 K parameters: speedups of 0.73 to 0.86; recurrent models of 0.2 to 0.5 M lost 20 to 28 %.
    SizeBand(1e6, "below-1M", "several GPUs never pay", Choice.ONE, Choice.ONE, (0.36, 0.43)),
    # Transformers of 1.5 to 3 M lost 15 to 20 %; the study calls a loss of 15 to 25 % typical.
    SizeBand(5e6, "1M-to-5M", "one GPU is usually faster", Choice.ONE, Choice.ONE, (0.37, 0.43)),
    # 6.9 M parameters: speedups of 0.78 to 0.90.
    SizeBand(10e6, "5M-to-10M", "near break-even", Choice.ONE, Choice.MEASURE, (0.39, 0.45)),
    SizeBand(50e6, "10M-to-50M", "several GPUs may pay", Choice.MEASURE, Choice.SEVERAL, None),
    SizeBand(float("inf"), "above-50M", "several GPUs should be worth it", Choice.SEVERAL, Choice.SEVERAL, None),
)

_NEED: Final = f"{ZERO}; {USABLE_MEMORY:.0%} of the memory: {STUDY}"

HOST_UNFIT: Final = Rule(
    "host-unfit",
    "a critical finding about the host itself comes before any job",
    "the findings of gpu-triage check listed below, docs/check.md",
)
NO_USABLE_GPU: Final = Rule(
    "no-usable-gpu",
    "a job needs a GPU that answers, is not partitioned by MIG and has no critical finding",
    "the verdicts of gpu-triage check, docs/check.md",
)
ONE_USABLE_GPU: Final = Rule(
    "one-usable-gpu", "with one GPU there is nothing to compare", "the GPUs of this host, docs/advise.md"
)
EXCEEDS_HOST: Final = Rule(
    "model-exceeds-host",
    f"a model fits if it needs at most {USABLE_MEMORY:.0%} of the memory of all usable GPUs together",
    _NEED,
)
EXCEEDS_GPU: Final = Rule(
    "model-exceeds-gpu",
    f"a model that needs more than {USABLE_MEMORY:.0%} of one GPU's memory must be split: copies do not help",
    _NEED,
)
INFERENCE_FITS: Final = Rule("inference-fits", "a model that fits on one GPU is served by replicas, not split", VLLM)
HOST_STARVED: Final = Rule(
    "host-starved",
    "another GPU makes nothing faster while the host cannot feed the first",
    "the findings of gpu-triage check listed below, docs/check.md",
)
BATCH_PER_GPU: Final = Rule(
    "batch-per-gpu",
    f"under {SAMPLES_PER_GPU} samples per GPU per step, you gain little from another GPU",
    f"{STUDY}: a batch of at least {SAMPLES_PER_GPU * MEASURED_GPUS} over {MEASURED_GPUS} GPUs",
)

RULES: Final = (
    HOST_UNFIT,
    NO_USABLE_GPU,
    EXCEEDS_HOST,
    EXCEEDS_GPU,
    ONE_USABLE_GPU,
    HOST_STARVED,
    INFERENCE_FITS,
    *(band.rule for band in BANDS),
    BATCH_PER_GPU,
)
"""All rules, in the order in which they are tried."""
