"""Is the GPU slower than its peers, and does a setting cause it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding, of_gpu
from gpu_triage.read.gpu.clocks_and_limits import GPU_CLOCK_HERTZ
from gpu_triage.read.gpu.power import GPU_POWER_WATTS
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL


class _Busy(NamedTuple):
    """A busy GPU with its SM clock and power."""

    gpu: GpuEvidence
    clock_hertz: float
    power_watts: float | None


def judge_stragglers(host: HostEvidence) -> Iterator[Finding]:
    """Yield busy GPUs with a lower clock than their busy peers.

    A GPU at its default power limit while its peers rarely reach theirs does harder work, and one that draws little
    power without being throttled does lighter work: neither is a fault. A clock set by an administrator is reported as
    clock.policy instead.
    """
    models: dict[str, list[_Busy]] = defaultdict(list)
    for gpu in host.answering:
        clock, power = gpu.one(GPU_CLOCK_HERTZ, clock="sm"), gpu.one(GPU_POWER_WATTS)
        if clock is not None and gpu.name and (gpu.busy_share or 0.0) >= thresholds.BUSY_SHARE:
            models[gpu.name].append(_Busy(gpu, clock.mean, None if power is None else power.mean))
    for busy in models.values():
        if len(busy) >= host.limit("clock.straggler", "peers"):
            yield from _slower(busy, host.limit("clock.straggler", "drop"))


def _slower(peers: Sequence[_Busy], drop: float) -> Iterator[Finding]:
    """Yield findings for GPUs with a clock below the median by more than this share of it."""
    usual = _median(peer.clock_hertz for peer in peers)
    slow = [peer for peer in peers if peer.clock_hertz < usual * (1 - drop)]
    if not slow:
        return
    peers_are_free = _median(peer.gpu.capped_share for peer in peers) <= thresholds.STRAGGLER_PEERS_CAP_SHARE
    usual_set = _median(_set_share(peer) for peer in peers)
    for peer in slow:
        gpu, own = peer.gpu, peer.clock_hertz
        at = f"SM clock {own / 1e6:.0f} MHz, its busy siblings' median {usual / 1e6:.0f} MHz"
        at_limit = gpu.capped_share >= thresholds.POWER_CAP_CLASS_SHARE and not gpu.capped
        if gpu.limited_clock is not None or (at_limit and peers_are_free) or _works_less(peer, peers):
            continue
        if _set_share(peer) >= thresholds.SET_CLOCK_SHARE and usual_set <= thresholds.SET_CLOCK_PEERS_SHARE:
            yield of_gpu("clock.policy", gpu, f"held by its clock setting: {at}", value=own / usual)
        else:
            yield of_gpu("clock.straggler", gpu, at, value=own)


def _set_share(peer: _Busy) -> float:
    return peer.gpu.throttled("applications_clocks")


def _works_less(peer: _Busy, peers: Sequence[_Busy]) -> bool:
    """Whether it draws much less power than its peers without being throttled."""
    powers = [other.power_watts for other in peers if other.power_watts is not None]
    if peer.power_watts is None or peer.power_watts >= thresholds.LIGHTER_POWER_SHARE * _median(powers):
        return False
    counters = peer.gpu.series(GPU_THROTTLE_SECONDS_TOTAL)
    throttled = max((each.rate or 0.0 for each in counters if each.labels["reason"] != "idle"), default=0.0)
    return throttled <= thresholds.LIGHTER_THROTTLED_SHARE


def _median(values: Iterable[float]) -> float:
    """Return the median; done by hand because the statistics module would import fractions and decimal."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
