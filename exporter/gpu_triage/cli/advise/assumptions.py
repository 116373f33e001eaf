"""What the estimate assumes. docs/advise.md lists the same values with what they mean and their sources."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Range(NamedTuple):
    """The worst and the best case of a value."""

    worst: float
    best: float

    def __str__(self) -> str:
        return f"{self.worst:.2f} to {self.best:.2f}"


NVLINK_SHARE: Final = Range(0.6, 0.75)
"""Share of NVLink's line rate that an all-reduce reaches."""
PEER_SHARE: Final = Range(0.4, 0.65)
"""Share of the PCIe line rate that an all-reduce reaches with peer access."""
HOST_SHARE: Final = Range(0.17, 0.33)
"""Share of the PCIe line rate that an all-reduce reaches through host memory."""
DIRECT_COST: Final = Range(0.005, 0.0002)
"""Seconds that each step takes longer, whatever the size of the model, over NVLink or with peer access."""
HOST_COST: Final = Range(0.017, 0.0044)
"""The same through host memory: what the exchange does not explain of eight measured cases (see the docs)."""
BACKWARD_SHARE: Final = 2 / 3
"""Share of the compute time, the backward pass, behind which the exchange is hidden in the best case."""
BUCKET_BYTES: Final = 25 * 2**20
"""Gradients that are exchanged together. The last bucket is complete when the backward pass ends: it is not hidden."""
WORTHWHILE: Final = 0.7
"""Efficiency from which more GPUs are worth their cost: a convention, not a measurement."""

ASSUMPTIONS: Final[Mapping[str, Range | float]] = MappingProxyType(
    {
        "nvlink_share": NVLINK_SHARE,
        "pcie_peer_share": PEER_SHARE,
        "host_memory_share": HOST_SHARE,
        "fixed_seconds_direct": DIRECT_COST,
        "fixed_seconds_host_memory": HOST_COST,
        "backward_share": BACKWARD_SHARE,
        "bucket_bytes": BUCKET_BYTES,
        "worthwhile_efficiency": WORTHWHILE,
    }
)
