"""Is it held back? Heat, power, clock policy, and the GPU that is slower than its siblings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gpu_triage.diagnosis.bottleneck.classes import Bottlenecks
from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.faults import limited_clock
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.held import slowed_down, uncounted, uncounted_slowdown
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding, of_gpu
from gpu_triage.gpu.clocks import GPU_CLOCK_HERTZ
from gpu_triage.gpu.limits import (
    GPU_CLOCK_MAX_HERTZ,
    GPU_POWER_DEFAULT_LIMIT_WATTS,
    GPU_POWER_MAX_LIMIT_WATTS,
    GPU_TEMPERATURE_THRESHOLD_CELSIUS,
)
from gpu_triage.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.gpu.thermal import GPU_TEMPERATURE_CELSIUS, GPU_TEMPERATURE_MARGIN_CELSIUS
from gpu_triage.gpu.throttle import GPU_THROTTLE_ACTIVE


def judge_clocks(host: HostEvidence, _bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Throttling, how near it is, and what holds clocks down."""
    for gpu in host.answering:
        yield from _heat(gpu)
        yield from _power(gpu)
        limited = limited_clock(gpu)
        if limited is not None:
            yield of_gpu("clock.policy", gpu, limited)
    yield from _stragglers(host)


def _heat(gpu: GpuEvidence) -> Iterator[Finding]:
    hardware, software = gpu.throttled("hw_thermal"), gpu.throttled("sw_thermal")
    # At rest it would be cool: one whose busy share nobody knows, as with MIG, counts as loaded.
    loaded = gpu.loaded or gpu.busy_share is None
    if loaded and hardware > thresholds.THERMAL_SHARE:
        yield of_gpu("thermal.hw", gpu, f"hw_thermal {hardware:.0%} of the time{_heat_and_clock(gpu)}")
    if loaded and software > thresholds.SW_THERMAL_SHARE:
        yield of_gpu("thermal.sw", gpu, f"sw_thermal {software:.0%} of the time{_heat_and_clock(gpu)}")
    yield from _uncounted("thermal.hw", gpu, uncounted(gpu, "hw_thermal"))
    yield from _uncounted("thermal.sw", gpu, uncounted(gpu, "sw_thermal"))
    near, low = _near_slowdown(gpu), _low_limit(gpu)
    if near is not None:
        yield of_gpu("thermal.margin", gpu, near)
    if low is not None:
        yield of_gpu("thermal.low_limit", gpu, low)


def _uncounted(code: str, gpu: GpuEvidence, held: str | None) -> Iterator[Finding]:
    """A slowdown that no counter shows."""
    if held is not None:
        yield of_gpu(code, gpu, f"{held}{_heat_and_clock(gpu)}", momentary=True)


def _heat_and_clock(gpu: GpuEvidence) -> str:
    heat, clock = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="gpu"), gpu.last(GPU_CLOCK_HERTZ, clock="sm")
    most = gpu.last(GPU_CLOCK_MAX_HERTZ, clock="sm")
    at = "" if heat is None else f", {heat:.0f} °C"
    return at if clock is None or most is None else f"{at}, SM clock {clock / 1e6:.0f} of {most / 1e6:.0f} MHz"


def _near_slowdown(gpu: GpuEvidence) -> str | None:
    margin = gpu.one(GPU_TEMPERATURE_MARGIN_CELSIUS)
    if margin is not None and margin.high < thresholds.NEAR_SLOWDOWN_CELSIUS:
        side = "above" if margin.last < 0 else "below"
        return f"{abs(margin.last):.0f} °C {side} the temperature at which it slows down"
    sensors = (("memory", "memory_max"),) if margin is not None else (("gpu", "slowdown"), ("memory", "memory_max"))
    for sensor, limit_name in sensors:
        heat = gpu.one(GPU_TEMPERATURE_CELSIUS, sensor=sensor)
        limit = gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=limit_name)
        if heat is not None and limit is not None and heat.low > limit - thresholds.NEAR_SLOWDOWN_CELSIUS:
            return f"{sensor} at {heat.last:.0f} °C, {limit_name} at {limit:.0f} °C"
    return None


def _low_limit(gpu: GpuEvidence) -> str | None:
    """At what temperature the firmware limits the GPU, if that is far too early, and the GPU is there."""
    heat = gpu.one(GPU_TEMPERATURE_CELSIUS, sensor="gpu")
    limit, slowdown = (gpu.last(GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=each) for each in ("gpu_max", "slowdown"))
    if heat is None or limit is None or slowdown is None or slowdown - limit < thresholds.LOW_LIMIT_CELSIUS:
        return None
    if heat.low <= limit - thresholds.NEAR_SLOWDOWN_CELSIUS and not gpu.last(GPU_THROTTLE_ACTIVE, reason="sw_thermal"):
        return None
    return f"{heat.last:.0f} °C, its limit is {limit:.0f} °C; the board slows down at {slowdown:.0f} °C"


def _overread(gpu: GpuEvidence) -> str | None:
    """A power reading that cannot be, and that throttles the GPU."""
    power, held = gpu.recent.one(GPU_POWER_WATTS), gpu.recent.one(GPU_THROTTLE_ACTIVE, reason="sw_power_cap")
    limits = (
        gpu.last(spec) for spec in (GPU_POWER_LIMIT_WATTS, GPU_POWER_DEFAULT_LIMIT_WATTS, GPU_POWER_MAX_LIMIT_WATTS)
    )
    most = max((limit for limit in limits if limit is not None), default=None)
    if power is None or most is None or held is None or held.low != 1 or not slowed_down(gpu):
        return None
    if power.low < thresholds.OVERREAD_POWER_RATIO * most:
        return None
    return f"reads {power.last:.0f} W, its highest limit is {most:.0f} W{_heat_and_clock(gpu)}"


def _power(gpu: GpuEvidence) -> Iterator[Finding]:
    brake, slowdown = gpu.throttled("hw_power_brake"), gpu.unexplained_slowdown
    if brake > thresholds.POWER_BRAKE_SHARE:
        yield of_gpu("power.brake", gpu, f"hw_power_brake {brake:.0%} of the time")
    if slowdown > thresholds.POWER_BRAKE_SHARE:
        yield of_gpu("power.hw_slowdown", gpu, f"hw_slowdown {slowdown:.0%} of the time, without heat or brake")
    overread = _overread(gpu)
    if overread is not None:
        yield of_gpu("power.reading", gpu, overread)
    yield from _uncounted("power.brake", gpu, uncounted(gpu, "hw_power_brake"))
    yield from _uncounted("power.hw_slowdown", gpu, uncounted_slowdown(gpu))
    if gpu.capped:
        limit, default = gpu.last(GPU_POWER_LIMIT_WATTS), gpu.last(GPU_POWER_DEFAULT_LIMIT_WATTS)
        share, held = gpu.capped_share, uncounted(gpu, "sw_power_cap")
        code = "power.cap" if share > thresholds.POWER_CAP_SHARE or held else "power.limit"
        # A single look tells no share of time.
        at_it = f"; at it {share:.0%} of the time" if gpu.seconds > 0 else ""
        if held:
            at_it = f"; it holds the clocks{held.removeprefix('sw_power_cap')}"
        yield of_gpu(code, gpu, f"limit {limit:.0f} W, default {default:.0f} W{at_it}")


def _stragglers(host: HostEvidence) -> Iterator[Finding]:
    """A busy GPU whose clock is below that of its busy siblings.

    One that meets its default power limit, and its peers theirs hardly ever, works harder: no fault of its own.
    """
    models: dict[str, list[tuple[GpuEvidence, float]]] = defaultdict(list)
    for gpu in host.answering:
        clock = gpu.one(GPU_CLOCK_HERTZ, clock="sm")
        if clock is not None and gpu.name and (gpu.busy_share or 0.0) >= thresholds.BUSY_SHARE:
            models[gpu.name].append((gpu, clock.mean))
    for busy in models.values():
        if len(busy) < thresholds.STRAGGLER_PEERS:
            continue
        usual = _median(clock for _, clock in busy)
        peers_are_free = _median(gpu.capped_share for gpu, _ in busy) <= thresholds.STRAGGLER_PEERS_CAP_SHARE
        for gpu, own in busy:
            at_limit = gpu.capped_share >= thresholds.POWER_CAP_CLASS_SHARE and not gpu.capped
            if own < usual * (1 - thresholds.STRAGGLER_BELOW_SHARE) and not (at_limit and peers_are_free):
                measured = f"SM clock {own / 1e6:.0f} MHz, its busy siblings' median {usual / 1e6:.0f} MHz"
                yield of_gpu("clock.straggler", gpu, measured)


def _median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle; the statistics module would load fractions and decimals."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
