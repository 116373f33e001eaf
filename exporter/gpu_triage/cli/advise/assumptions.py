"""What the arithmetic assumes, each value with its source. docs/advise.md lists them too."""

from __future__ import annotations

from typing import Final, NamedTuple

STUDY: Final = "https://ahjavid.github.io/technical-notes-blog/posts/multi-gpu-training-analysis"
"""One GPU versus two in data-parallel training, 120 hours on two GeForce RTX 4070 Ti SUPER (PCIe 4.0 x16, one host
bridge, no peer access, TensorFlow 2.19, NCCL 2.18): networks of 258 K and 6.9 M parameters.
"""


class Assumption(NamedTuple):
    """A value that was not read from the host."""

    name: str  # as listed in docs/advise.md
    value: float
    meaning: str
    source: str


NVLINK_SHARE: Final = Assumption(
    "nvlink_share",
    0.75,
    "share of NVLink's line rate that an all-reduce reaches",
    "370 of the 478 GB/s of 18 links: https://github.com/NVIDIA/nccl-tests/issues/212",
)
PEER_SHARE: Final = Assumption(
    "pcie_peer_share",
    0.65,
    "share of the PCIe line rate that an all-reduce reaches with peer access",
    "20 of 31.5 GB/s, A100 on PCIe 4.0 x16: https://github.com/NVIDIA/nccl-tests/issues/178",
)
HOST_SHARE: Final = Assumption(
    "host_memory_share",
    0.33,
    "share of the PCIe line rate that remains through host memory, without peer access",
    "19 to 21 of 63 GB/s in both directions, A40 with P2P off: https://github.com/NVIDIA/nccl-tests/issues/74",
)
USABLE_MEMORY: Final = Assumption(
    "usable_memory",
    0.9,
    "share of a GPU's memory to plan with; the CUDA context, NCCL's buffers and fragmentation take the rest",
    "vLLM's default for gpu_memory_utilization: https://docs.vllm.ai/en/v0.10.0/configuration/engine_args.html",
)
BACKWARD_SHARE: Final = Assumption(
    "backward_share",
    2 / 3,
    "share of a step in the backward pass, behind which frameworks hide the exchange as far as they can",
    "4 of 6 FLOPs per parameter and token: arXiv:2001.08361, table 1; overlap: arXiv:2006.15704",
)
WORTHWHILE: Final = Assumption(
    "worthwhile_efficiency",
    0.7,
    "efficiency from which more GPUs are worth their cost; a convention, not a measurement",
    STUDY,
)
SHORT_STEP: Final = Assumption(
    "short_step_seconds",
    0.1,
    "below this, overheads that no bandwidth explains decide, so the advice is to measure",
    f"5 to 13 ms per step on two GPUs in {STUDY}",
)

ASSUMPTIONS: Final = (
    NVLINK_SHARE,
    PEER_SHARE,
    HOST_SHARE,
    USABLE_MEMORY,
    BACKWARD_SHARE,
    WORTHWHILE,
    SHORT_STEP,
)
