"""What slows a GPU down, by counters or a throttle reason's bit alone, and how near it is to doing so for heat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import SLOWDOWN_CAUSES, GpuEvidence
from gpu_triage.read.gpu.clocks_and_limits import (
    GPU_CLOCK_HERTZ,
    GPU_CLOCK_MAX_HERTZ,
    GPU_TEMPERATURE_THRESHOLD_CELSIUS,
)
from gpu_triage.read.gpu.thermal import GPU_TEMPERATURE_CELSIUS, GPU_TEMPERATURE_MARGIN_CELSIUS
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL

AT_THAT_MOMENT: Final = "at that moment"

_NOT_LIMITING: Final = frozenset({"idle", "sync_boost", "display_clocks"})


class Slowdown(NamedTuple):
    """What may slow a GPU down, by the driver's counters. Its share is a key of the memory, by its finding's code."""

    code: str  # of the finding; its limit `share` is what has to be exceeded
    reason: str  # of the driver
    share: float  # share of the window, 0-1
    observed: bool  # it may end with the load, so an idle GPU only shows that it is still there
    seconds: float  # over which the share has to exceed the limit

    def lasting(self, gpu: GpuEvidence) -> float:
        """Return the highest of its share now, over its time, and over 15 minutes if it is intermittent, 0-1.

        It is intermittent if it exceeded the limit in at least two separate spells. Only observable time counts.
        """
        past = partial(gpu.memory.over, gpu.key, self.code)
        ends = [thresholds.PART_SECONDS * part for part in range(thresholds.PARTS + 1)]
        if not self.share and not past(ends[-1]).amount:
            return 0.0
        sums = [past(end).amount for end in ends]
        parts = [(longer - shorter) / thresholds.PART_SECONDS for shorter, longer in pairwise(sums)]
        most = gpu.limit(self.code, "share")
        spells = sum(1 for high, _ in groupby(part > most for part in parts) if high)
        all_parts = sums[-1] / ends[-1] if spells >= thresholds.RETURNED_SPELLS else 0.0
        return max(self.share, past(self.seconds).mean, all_parts)


class UncountedSlowdown(NamedTuple):
    """A slowdown without a counter."""

    reason: str  # of the driver
    lasted: str  # as text
    share: float  # of the window's samples

    @property
    def text(self) -> str:
        return f"{self.reason} {self.lasted}"


def slowdowns(gpu: GpuEvidence) -> tuple[Slowdown, ...]:
    """Return heat, power brake, other slowdowns of the hardware, and a lowered power limit, in this order."""
    loaded, brake, slowdown = gpu.under_load, gpu.throttled("hw_power_brake"), gpu.unexplained_slowdown
    capped = gpu.capped_share if gpu.capped else 0.0
    return (
        Slowdown("thermal.hw", "hw_thermal", gpu.throttled("hw_thermal"), loaded, thresholds.THERMAL_SECONDS),
        Slowdown("thermal.sw", "sw_thermal", gpu.throttled("sw_thermal"), loaded, thresholds.SW_THERMAL_SECONDS),
        Slowdown("power.brake", "hw_power_brake", brake, loaded or brake > 0, thresholds.POWER_BRAKE_SECONDS),
        Slowdown("power.hw_slowdown", "hw_slowdown", slowdown, loaded or slowdown > 0, thresholds.SLOWDOWN_SECONDS),
        Slowdown("power.cap", "sw_power_cap", capped, loaded, thresholds.POWER_CAP_SECONDS),
    )


def active_reasons(gpu: GpuEvidence) -> list[str] | None:
    """Return the throttle reasons active in the last sample; None if this is unknown."""
    bits = {bit.labels["reason"]: bit.last for bit in gpu.series(GPU_THROTTLE_ACTIVE)}
    active = [reason for reason, is_active in bits.items() if is_active and reason not in _NOT_LIMITING]
    # nvidia-smi dmon reports only two limits, and no hardware slowdown.
    return active if active or "hw_slowdown" in bits else None


def uncounted(gpu: GpuEvidence, reason: str) -> UncountedSlowdown | None:
    """Return how this reason slows the GPU under load, judged by its bit alone; None if it does not, or is counted.

    Covers samples in which no counter moves: a single nvidia-smi output, two outputs of an old driver, or a
    driver that does not advance its counter. Every P-state change briefly sets hw_slowdown, so the SM clock must be low
    too; if the clock is not reported, hw_slowdown must have been set for more than an instant. It counts only without
    heat or the power brake as its cause.
    """
    if reason == "hw_slowdown" and any(gpu.last(GPU_THROTTLE_ACTIVE, reason=cause) for cause in SLOWDOWN_CAUSES):
        return None
    bit = gpu.recent.one(GPU_THROTTLE_ACTIVE, reason=reason)
    counter = gpu.one(GPU_THROTTLE_SECONDS_TOTAL, reason=reason)
    if bit is None or not bit.last or (counter is not None and counter.increase > 0) or not _loaded(gpu):
        return None
    lasted = bit.seconds > 0 and bit.low == 1
    if counter is not None and counter.seconds > 0 and bit.mean < thresholds.STOPPED_COUNTER_SHARE:
        return None  # a pulse that the counter will show soon
    slowed = slowed_down(gpu)
    if slowed is False or (slowed is None and reason not in SLOWDOWN_CAUSES and not lasted):
        return None
    whole = gpu.one(GPU_THROTTLE_ACTIVE, reason=reason) or bit
    if not lasted:
        return UncountedSlowdown(reason, AT_THAT_MOMENT, whole.mean)
    seconds = whole.seconds if whole.low == 1 else bit.seconds
    return UncountedSlowdown(reason, f"for at least {seconds:.0f} s", whole.mean)


def slowed_down(gpu: GpuEvidence) -> bool | None:
    """Whether the SM clock (or graphics clock) is far below its maximum; None if neither is reported."""
    for name in ("sm", "graphics"):
        clock, most = gpu.last(GPU_CLOCK_HERTZ, clock=name), gpu.last(GPU_CLOCK_MAX_HERTZ, clock=name)
        if clock is not None and most:
            return clock < thresholds.SLOWED_CLOCK_RATIO * most
    return None


def _loaded(gpu: GpuEvidence) -> bool:
    """Whether it is under load; without a busy share (partial input), whether it is awake and not reported idle."""
    if gpu.busy_share is not None:
        return gpu.loaded
    return gpu.awake and not gpu.last(GPU_THROTTLE_ACTIVE, reason="idle")


class Margin(NamedTuple):
    """Distance to the temperature at which a GPU or its memory slows down."""

    near: bool  # whether the margin is small
    celsius: float  # degrees left; negative above the slowdown temperature
    text: str  # the measurement, as text


def slowdown_margin(gpu: GpuEvidence) -> Margin | None:
    """Return the margin in the last samples, a small one if there is any; None if unknown."""
    margins = tuple(_margins(gpu))
    return next((margin for margin in margins if margin.near), margins[0] if margins else None)


def _margins(gpu: GpuEvidence) -> Iterator[Margin]:
    left, near_celsius = gpu.last(GPU_TEMPERATURE_MARGIN_CELSIUS), gpu.limit("thermal.margin", "margin")
    limits = [("memory", "memory_max", gpu.limit("thermal.margin", "memory_margin"))]
    if left is None:
        limits.insert(0, ("gpu", "slowdown", near_celsius))
    else:
        side = "above" if left < 0 else "below"
        words = f"{abs(left):.0f} °C {side} the temperature at which it slows down"
        yield Margin(left < near_celsius, left, words)
    for sensor, name, little_celsius in limits:
        heat = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor=sensor)
        limit = gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=name)
        if heat is not None and limit is not None:
            words = f"{sensor} at {heat:.0f} °C, {name} at {limit:.0f} °C"
            yield Margin(limit - heat < little_celsius, limit - heat, words)
