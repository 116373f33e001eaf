"""Slowdowns that only a throttle reason's bit shows, without a counter of how long they last."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.gpu.clocks import GPU_CLOCK_HERTZ
from gpu_triage.gpu.limits import GPU_CLOCK_MAX_HERTZ
from gpu_triage.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL

AT_THAT_MOMENT: Final = "at that moment"

_HOLD_NOTHING_BACK: Final = frozenset({"idle", "sync_boost", "display_clocks"})
_NAMED_BY_HARDWARE: Final = frozenset({"hw_thermal", "hw_power_brake"})
"""Reasons that no change of the P-state sets, other than hw_slowdown."""


class Held(NamedTuple):
    """A slowdown that no counter shows: which and for how long, in words, and its share of the window's samples."""

    words: str
    share: float


def active_reasons(gpu: GpuEvidence) -> list[str] | None:
    """Throttle reasons that were active in the last sample; None where it is unknown whether any was."""
    bits = {bit.labels["reason"]: bit.last for bit in gpu.series(GPU_THROTTLE_ACTIVE)}
    active = [reason for reason, is_active in bits.items() if is_active and reason not in _HOLD_NOTHING_BACK]
    # nvidia-smi dmon tells of two limits only, and of no slowdown by the hardware.
    return active if active or "hw_slowdown" in bits else None


def uncounted(gpu: GpuEvidence, reason: str) -> Held | None:
    """How this reason slows the GPU down under load, by its bit alone; None where it does not, or a counter shows it.

    Samples of a slowdown without a counter that moves: one output of nvidia-smi, two of an old driver, or a driver
    whose counter stands still. Every change of the P-state sets hw_slowdown for an instant, so the SM clock must be low
    as well; where it is not reported, hw_slowdown must have been set for longer than an instant.
    """
    bit = gpu.recent.one(GPU_THROTTLE_ACTIVE, reason=reason)
    counter = gpu.one(GPU_THROTTLE_SECONDS_TOTAL, reason=reason)
    if bit is None or not bit.last or (counter is not None and counter.increase > 0) or not _loaded(gpu):
        return None
    lasted = bit.seconds > 0 and bit.low == 1
    if counter is not None and counter.seconds > 0 and bit.mean < thresholds.STOPPED_COUNTER_SHARE:
        return None  # a pulse that the counter is about to show
    slowed = slowed_down(gpu)
    if slowed is False or (slowed is None and reason not in _NAMED_BY_HARDWARE and not lasted):
        return None
    whole = gpu.one(GPU_THROTTLE_ACTIVE, reason=reason) or bit
    if not lasted:
        return Held(f"{reason} {AT_THAT_MOMENT}", whole.mean)
    seconds = whole.seconds if whole.low == 1 else bit.seconds
    return Held(f"{reason} for at least {seconds:.0f} s", whole.mean)


def uncounted_slowdown(gpu: GpuEvidence) -> Held | None:
    """As `uncounted`, of hw_slowdown for which neither heat nor the power brake is given as the reason."""
    explained = any(gpu.last(GPU_THROTTLE_ACTIVE, reason=cause) for cause in _NAMED_BY_HARDWARE)
    return None if explained else uncounted(gpu, "hw_slowdown")


def slowed_down(gpu: GpuEvidence) -> bool | None:
    """Whether its SM clock, or its graphics clock, is far below its highest; None where neither is reported."""
    for name in ("sm", "graphics"):
        clock, most = gpu.last(GPU_CLOCK_HERTZ, clock=name), gpu.last(GPU_CLOCK_MAX_HERTZ, clock=name)
        if clock is not None and most:
            return clock < thresholds.SLOWED_CLOCK_RATIO * most
    return None


def _loaded(gpu: GpuEvidence) -> bool:
    """Under load; without a busy share, as in an extract: awake, and not idle by its own account."""
    if gpu.busy_share is not None:
        return gpu.loaded
    return gpu.awake and not gpu.last(GPU_THROTTLE_ACTIVE, reason="idle")
