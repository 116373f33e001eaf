"""Busy GPUs of one model, which can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence, LimitedClock
from gpu_triage.read.gpu.power import GPU_CLOCK_HERTZ, GPU_POWER_WATTS


class BusyGpu(NamedTuple):
    """A busy GPU with its SM clock and power."""

    gpu: GpuEvidence
    clock_hertz: float
    power_watts: float | None

    @property
    def set_share(self) -> float:
        """Share of the window in which its clock setting held its clock."""
        return self.gpu.throttled("applications_clocks")


def busy_by_model(gpus: Iterable[GpuEvidence], least: float) -> Iterator[Sequence[BusyGpu]]:
    """Yield the busy GPUs of each model that has at least so many of them."""
    models: dict[str, list[BusyGpu]] = defaultdict(list)
    for gpu in gpus:
        clock, power = gpu.one(GPU_CLOCK_HERTZ, clock="sm"), gpu.one(GPU_POWER_WATTS)
        if clock is not None and gpu.name and (gpu.busy_share or 0.0) >= thresholds.BUSY_SHARE:
            models[gpu.name].append(BusyGpu(gpu, clock.mean, None if power is None else power.mean))
    return (peers for peers in models.values() if len(peers) >= least)


def slower(peers: Sequence[BusyGpu], drop: float) -> Iterator[tuple[BusyGpu, float, str]]:
    """Yield those with a clock below the median by more than this share of it, with that median, and in words."""
    usual = median(peer.clock_hertz for peer in peers)
    for peer in peers:
        if peer.clock_hertz < usual * (1 - drop):
            own = f"SM clock {peer.clock_hertz / 1e6:.0f} MHz"
            yield peer, usual, f"{own}, its busy siblings' median {usual / 1e6:.0f} MHz"


def set_lower(peers: Sequence[BusyGpu], drop: float) -> Iterator[tuple[GpuEvidence, LimitedClock]]:
    """Yield the slower ones that their clock setting holds, unless that of their peers does too."""
    if median(peer.set_share for peer in peers) > thresholds.SET_CLOCK_PEERS_SHARE:
        return
    for peer, usual, words in slower(peers, drop):
        if peer.set_share >= thresholds.SET_CLOCK_SHARE:
            yield peer.gpu, LimitedClock(f"held by its clock setting: {words}", peer.clock_hertz / usual)


def median(values: Iterable[float]) -> float:
    """Return the median; done by hand because the statistics module would import fractions and decimal."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
