"""Is the GPU throttled? Heat, power and clock policy."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.faults import limited_clock
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.remember import Share, lasting_share
from gpu_triage.judge.evidence.slowdowns import (
    UncountedSlowdown,
    slowdown_margin,
    slowed_down,
    uncounted,
    uncounted_slowdown,
)
from gpu_triage.judge.findings.finding import Finding, of_gpu
from gpu_triage.read.gpu.clocks_and_limits import (
    GPU_CLOCK_HERTZ,
    GPU_CLOCK_MAX_HERTZ,
    GPU_POWER_DEFAULT_LIMIT_WATTS,
    GPU_POWER_MAX_LIMIT_WATTS,
    GPU_TEMPERATURE_THRESHOLD_CELSIUS,
)
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_REQUESTED_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.thermal import GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE


def judge_clocks(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about throttling, temperatures close to it, and lowered clocks."""
    for gpu in host.answering:
        yield from _heat(gpu)
        yield from _power(gpu)
        limited = limited_clock(gpu)
        if limited is not None:
            yield of_gpu("clock.policy", gpu, limited.text, value=limited.share)


def _heat(gpu: GpuEvidence) -> Iterator[Finding]:
    for code, reason, share, seconds in (
        ("thermal.hw", "hw_thermal", Share.HW_THERMAL, thresholds.THERMAL_SECONDS),
        ("thermal.sw", "sw_thermal", Share.SW_THERMAL, thresholds.SW_THERMAL_SECONDS),
    ):
        most = gpu.limit(code, "share")
        throttled = lasting_share(gpu, share, gpu.throttled(reason), most, seconds)
        if gpu.under_load and throttled > most:
            yield of_gpu(code, gpu, f"{reason} {throttled:.0%} of the time{_heat_and_clock(gpu)}", value=throttled)
        yield from _uncounted(code, gpu, uncounted(gpu, reason))
    margin, low = slowdown_margin(gpu), _low_limit(gpu)
    if margin is not None and (margin.near or gpu.under_load):
        often = gpu.memory.over(gpu.key, Share.NEAR_SLOWDOWN, thresholds.NEAR_SLOWDOWN_SECONDS)
        if often.mean >= thresholds.NEAR_SLOWDOWN_SHARE or (margin.near and not often.seconds):
            yield of_gpu("thermal.margin", gpu, margin.text, value=margin.celsius)
    if low is not None:
        limit = gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold="gpu_max")
        yield of_gpu("thermal.low_limit", gpu, low, value=limit)


def _uncounted(code: str, gpu: GpuEvidence, slowdown: UncountedSlowdown | None) -> Iterator[Finding]:
    """Yield a finding for a slowdown without a counter."""
    if slowdown is not None:
        yield of_gpu(code, gpu, f"{slowdown.text}{_heat_and_clock(gpu)}", value=slowdown.share)


def _heat_and_clock(gpu: GpuEvidence) -> str:
    heat, clock = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="gpu"), gpu.last(GPU_CLOCK_HERTZ, clock="sm")
    most = gpu.last(GPU_CLOCK_MAX_HERTZ, clock="sm")
    at = "" if heat is None else f", {heat:.0f} °C"
    return at if clock is None or most is None else f"{at}, SM clock {clock / 1e6:.0f} of {most / 1e6:.0f} MHz"


def _low_limit(gpu: GpuEvidence) -> str | None:
    """Describe a firmware temperature limit that is far too low, if the GPU has reached it."""
    heat = gpu.one(GPU_TEMPERATURE_CELSIUS, sensor="gpu")
    limit, slowdown = (gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=each) for each in ("gpu_max", "slowdown"))
    if heat is None or limit is None or slowdown is None or slowdown - limit < gpu.limit("thermal.low_limit", "gap"):
        return None
    near_celsius = gpu.limit("thermal.margin", "margin")
    if heat.low <= limit - near_celsius and not gpu.last(GPU_THROTTLE_ACTIVE, reason="sw_thermal"):
        return None
    return f"{heat.last:.0f} °C, its limit is {limit:.0f} °C; the board slows down at {slowdown:.0f} °C"


def _overread(gpu: GpuEvidence) -> str | None:
    """Describe an implausible power reading that throttles the GPU."""
    power, capped = gpu.recent.one(GPU_POWER_WATTS), gpu.recent.one(GPU_THROTTLE_ACTIVE, reason="sw_power_cap")
    limits = (
        gpu.last(spec) for spec in (GPU_POWER_LIMIT_WATTS, GPU_POWER_DEFAULT_LIMIT_WATTS, GPU_POWER_MAX_LIMIT_WATTS)
    )
    most = max((limit for limit in limits if limit is not None), default=None)
    if power is None or most is None or capped is None or capped.low != 1 or not slowed_down(gpu):
        return None
    if power.low < gpu.limit("power.reading", "ratio") * most:
        return None
    return f"reads {power.last:.0f} W, its highest limit is {most:.0f} W{_heat_and_clock(gpu)}"


def _power(gpu: GpuEvidence) -> Iterator[Finding]:
    most_braked, most_slowed = gpu.limit("power.brake", "share"), gpu.limit("power.hw_slowdown", "share")
    now, without_cause = gpu.throttled("hw_power_brake"), gpu.unexplained_slowdown
    brake = lasting_share(gpu, Share.POWER_BRAKE, now, most_braked, thresholds.POWER_BRAKE_SECONDS)
    slowdown = lasting_share(gpu, Share.HW_SLOWDOWN, without_cause, most_slowed, thresholds.SLOWDOWN_SECONDS)
    # The brake may only engage under load, so an idle GPU proves nothing, not even that it is over.
    if brake > most_braked and (now or gpu.under_load):
        yield of_gpu("power.brake", gpu, f"hw_power_brake {brake:.0%} of the time", value=brake)
    if slowdown > most_slowed and (without_cause or gpu.under_load):
        measured = f"hw_slowdown {slowdown:.0%} of the time, without heat or brake"
        yield of_gpu("power.hw_slowdown", gpu, measured, value=slowdown)
    overread = _overread(gpu)
    if overread is not None:
        yield of_gpu("power.reading", gpu, overread, value=gpu.last(GPU_POWER_WATTS))
    yield from _uncounted("power.brake", gpu, uncounted(gpu, "hw_power_brake"))
    yield from _uncounted("power.hw_slowdown", gpu, uncounted_slowdown(gpu))
    if gpu.capped:
        yield _capped(gpu)


def _capped(gpu: GpuEvidence) -> Finding:
    """Return the finding about a lowered power limit, depending on whether it throttles the GPU."""
    limit, default = gpu.last(GPU_POWER_LIMIT_WATTS), gpu.last(GPU_POWER_DEFAULT_LIMIT_WATTS)
    most, seconds = gpu.limit("power.cap", "share"), thresholds.POWER_CAP_SECONDS
    share = lasting_share(gpu, Share.POWER_CAP, gpu.capped_share, most, seconds)
    slowdown = uncounted(gpu, "sw_power_cap")
    # A single poll gives no share of time.
    at_it = f"; at it {share:.0%} of the time" if gpu.seconds > 0 else ""
    if slowdown is not None:
        at_it, share = f"; it holds the clocks {slowdown.lasting}", max(share, slowdown.share)
    requested = gpu.last(GPU_POWER_REQUESTED_LIMIT_WATTS)
    asked = "" if requested is None else f" ({requested:.0f} W requested: the BMC or another limit applies)"
    measured = f"limit {limit:.0f} W{asked}, default {default:.0f} W{at_it}"
    if (share > most and gpu.under_load) or slowdown is not None:
        return of_gpu("power.cap", gpu, measured, value=share)
    return of_gpu("power.limit", gpu, measured, value=limit)
