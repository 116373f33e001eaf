"""A training job, and how fast a group of GPUs would do its steps, from the worst to the best case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.cli.advise.paths import DIRECT_COST, HOST_COST, HOST_SHARE, NVLINK_SHARE, PEER_SHARE, Path, Range
from gpu_triage.documents import quoted
from gpu_triage.options.values import TextType

BACKWARD_SHARE: Final = 2 / 3
"""Share of the compute time, the backward pass, behind which the exchange is hidden in the best case."""
BUCKET_BYTES: Final = 25 * 2**20
"""Gradients that are exchanged together. The last bucket is complete when the backward pass ends: it is not hidden."""
WORTHWHILE: Final = 0.7  # efficiency from which more GPUs are worth their cost: a convention, not a measurement

ASSUMPTIONS: Final[Mapping[str, Range | float]] = {
    "nvlink_share": NVLINK_SHARE,
    "pcie_peer_share": PEER_SHARE,
    "host_memory_share": HOST_SHARE,
    "fixed_seconds_direct": DIRECT_COST,
    "fixed_seconds_host_memory": HOST_COST,
    "backward_share": BACKWARD_SHARE,
    "bucket_bytes": BUCKET_BYTES,
    "worthwhile_efficiency": WORTHWHILE,
}
"""docs/advise.md lists the same values with what they mean and their sources."""

_ALL_REDUCE: Final = 2
"""A ring all-reduce sends each byte twice, less the share that each GPU already has: reduce-scatter and all-gather
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)."""
_COUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(?:[eE]\+?([0-9]{1,2})|([KMBTkmbt]))?")
_UNITS: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FEWEST_PARAMETERS: Final = 1e3
_MOST_PARAMETERS: Final = 1e15
_BITS_PER_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """A training job in data parallelism: each GPU has a copy of the model, and all exchange their gradients."""

    parameters: float  # that are trained
    gradient_bits: int = 32  # 32 with PyTorch's autocast, which keeps weights and gradients in FP32
    step_seconds: float | None = None  # of one GPU; None if not given
    grow_batch: bool = False  # each GPU has the batch of one; otherwise they share it
    gpus: int | None = None  # most GPUs to use; None for all of one model

    @property
    def gradient_bytes(self) -> float:
        return self.parameters * self.gradient_bits / _BITS_PER_BYTE


@dataclass(frozen=True, slots=True)
class Estimate:
    """The steps of a job on the GPUs of a path.

    A step takes compute + exchange that is not hidden + fixed cost. Efficiency is compute / step, and the group is
    number of GPUs x efficiency times as fast as one. Every part but the fixed cost grows with the model if the step
    time does, so a larger model with a longer step never gets fewer GPUs.
    """

    job: Job
    path: Path

    @property
    def gpus(self) -> int:
        return len(self.path.gpus)

    @property
    def moved_bytes(self) -> float:
        """Bytes that each GPU sends, and receives, per step."""
        return self.job.gradient_bytes * _ALL_REDUCE * (self.gpus - 1) / self.gpus

    @property
    def exchange_seconds(self) -> Range | None:
        """Time of the exchange; None if the bandwidth is unknown."""
        bandwidth = self.path.bandwidth
        return None if bandwidth is None else Range(*(self.moved_bytes / each for each in bandwidth))

    @property
    def compute_seconds(self) -> float | None:
        """Time that each GPU computes per step, if half of the batch takes half of the time; None if unknown."""
        step = self.job.step_seconds
        return None if step is None else step / self._split

    @property
    def speedup(self) -> Range | None:
        """How many times as many samples per second as one GPU; None if unknown."""
        compute, exchange = self.compute_seconds, self.exchange_seconds
        if compute is None or exchange is None:
            return None
        fixed, exposed = self.path.access.fixed_seconds, self._exposed(compute, exchange)
        return Range(*(self.gpus * compute / (compute + x + f) for x, f in zip(exposed, fixed, strict=True)))

    @property
    def worthwhile_speedup(self) -> float:
        """Speedup from which this group is worth its cost."""
        return self.gpus * WORTHWHILE

    @property
    def pays(self) -> bool:
        """Whether it is worth its cost even in the worst case."""
        return self.speedup is not None and self.speedup.worst >= self.worthwhile_speedup

    @property
    def may_pay(self) -> bool:
        """Whether it is in the best case."""
        return self.speedup is not None and self.speedup.best >= self.worthwhile_speedup

    @property
    def worthwhile_seconds(self) -> Range | None:
        """Step time of one GPU from which this group is worth its cost; None if unknown."""
        exchange, fixed = self.exchange_seconds, self.path.access.fixed_seconds
        if exchange is None:
            return None
        per_cost = WORTHWHILE / (1 - WORTHWHILE)  # compute for each second of cost
        worst = per_cost * (exchange.worst + fixed.worst)
        # What remains of the exchange in the best case is the larger of two: so is the compute that it needs.
        hidden = 1 + per_cost * BACKWARD_SHARE
        best = per_cost * max((exchange.best + fixed.best) / hidden, self._last_bucket(exchange.best) + fixed.best)
        return Range(worst * self._split, best * self._split)

    def _exposed(self, compute: float, exchange: Range) -> Range:
        """The part of the exchange that the backward pass does not hide."""
        hidden = compute * BACKWARD_SHARE
        return Range(exchange.worst, max(exchange.best - hidden, self._last_bucket(exchange.best)))

    def _last_bucket(self, exchange_seconds: float) -> float:
        return exchange_seconds * min(1.0, BUCKET_BYTES / self.job.gradient_bytes)

    @property
    def _split(self) -> int:
        return 1 if self.job.grow_batch else self.gpus


def _parse_count(text: str) -> float:
    count = 0.0
    if match := _COUNT.fullmatch(text):
        count = float(match[1]) * (10.0 ** int(match[2]) if match[2] else _UNITS.get((match[3] or "").upper(), 1.0))
        if 0 < count < _FEWEST_PARAMETERS:
            raise ValueError(f"{quoted(text)} has no unit; write {match[1]}M for millions or {match[1]}B for billions")
    if not 0 < count <= _MOST_PARAMETERS:
        raise ValueError(f"{quoted(text)} isn't a parameter count; write 350M, 3B or 7e9")
    return count


PARAMETERS: Final = TextType("COUNT", _parse_count)
"""A number of parameters such as ``350M``, ``3B`` or ``7e9``; a bare ``7`` probably lacks its unit."""
