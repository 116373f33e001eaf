"""Is it held back? Heat, power, clock policy, and the GPU that is slower than its siblings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.findings import Finding, of_gpu
from gpu_triage.diagnosis.ladder import limited_clock
from gpu_triage.diagnosis.view import GpuView, HostView


def judge_heat(host: HostView) -> Iterator[Finding]:
    """Throttling for heat, and how near it is."""
    for gpu in host.answering:
        hardware, software = gpu.throttled("hw_thermal"), gpu.throttled("sw_thermal")
        # At rest it would be cool: one whose busy share nobody knows, as with MIG, counts as loaded.
        loaded = gpu.loaded or gpu.busy_share is None
        if loaded and hardware > thresholds.THERMAL_SHARE:
            yield of_gpu("thermal.hw", gpu, f"hw_thermal {hardware:.0%} of the time{_state(gpu)}")
        if loaded and software > thresholds.SW_THERMAL_SHARE:
            yield of_gpu("thermal.sw", gpu, f"sw_thermal {software:.0%} of the time{_state(gpu)}")
        near = _nearness(gpu)
        if near is not None:
            yield of_gpu("thermal.margin", gpu, near)


def _state(gpu: GpuView) -> str:
    heat, clock = gpu.last(catalogue.TEMPERATURE, sensor="gpu"), gpu.last(catalogue.CLOCK, clock="sm")
    most = gpu.last(catalogue.CLOCK_MAX, clock="sm")
    at = "" if heat is None else f", {heat:.0f} °C"
    return at if clock is None or most is None else f"{at}, SM clock {clock / 1e6:.0f} of {most / 1e6:.0f} MHz"


def _nearness(gpu: GpuView) -> str | None:
    margin = gpu.one(catalogue.TEMPERATURE_MARGIN)
    if margin is not None and margin.high < thresholds.NEAR_SLOWDOWN_CELSIUS:
        if margin.last < 0:
            return f"{-margin.last:.0f} °C above the temperature at which it slows down"
        return f"{margin.last:.0f} °C below the temperature at which it slows down"
    sensors = (("memory", "memory_max"),) if margin is not None else (("gpu", "slowdown"), ("memory", "memory_max"))
    for sensor, limit_name in sensors:
        heat = gpu.one(catalogue.TEMPERATURE, sensor=sensor)
        limit = gpu.last(catalogue.TEMPERATURE_THRESHOLD, threshold=limit_name)
        if heat is not None and limit is not None and heat.low > limit - thresholds.NEAR_SLOWDOWN_CELSIUS:
            return f"{sensor} at {heat.last:.0f} °C, {limit_name} at {limit:.0f} °C"
    return None


def judge_power(host: HostView) -> Iterator[Finding]:
    """Power brake, unexplained slowdowns, and limits that somebody lowered."""
    for gpu in host.answering:
        brake, slowdown = gpu.throttled("hw_power_brake"), gpu.unexplained_slowdown
        if brake > thresholds.POWER_BRAKE_SHARE:
            yield of_gpu("power.brake", gpu, f"hw_power_brake {brake:.0%} of the time")
        if slowdown > thresholds.POWER_BRAKE_SHARE:
            yield of_gpu("power.hw_slowdown", gpu, f"hw_slowdown {slowdown:.0%} of the time, without heat or brake")
        if gpu.capped:
            limit, default = gpu.last(catalogue.POWER_LIMIT), gpu.last(catalogue.POWER_DEFAULT_LIMIT)
            share = gpu.capped_share
            code = "power.cap" if share > thresholds.POWER_CAP_SHARE else "power.limit"
            yield of_gpu(code, gpu, f"limit {limit:.0f} W, default {default:.0f} W; at it {share:.0%} of the time")


def judge_clock_policy(host: HostView) -> Iterator[Finding]:
    """Clocks set below their default."""
    for gpu in host.answering:
        limited = limited_clock(gpu)
        if limited is not None:
            yield of_gpu("clock.policy", gpu, limited)


def judge_stragglers(host: HostView) -> Iterator[Finding]:
    """A busy GPU whose clock is below that of its busy siblings."""
    models: dict[str, list[tuple[GpuView, float]]] = defaultdict(list)
    for gpu in host.answering:
        clock = gpu.one(catalogue.CLOCK, clock="sm")
        if clock is not None and gpu.busy and gpu.name:
            models[gpu.name].append((gpu, clock.mean))
    for busy in models.values():
        if len(busy) < thresholds.STRAGGLER_PEERS:
            continue
        usual = median(clock for _, clock in busy)
        peers_cap_share = median(gpu.capped_share for gpu, _ in busy)
        for gpu, own in busy:
            if own < usual * (1 - thresholds.STRAGGLER_BELOW_SHARE) and not _works_harder(gpu, peers_cap_share):
                measured = f"SM clock {own / 1e6:.0f} MHz, its busy siblings' median {usual / 1e6:.0f} MHz"
                yield of_gpu("clock.straggler", gpu, measured)


def _works_harder(gpu: GpuView, peers_cap_share: float) -> bool:
    """Whether it meets its default power limit, and its peers theirs hardly ever: no fault of its own."""
    at_limit = gpu.capped_share >= thresholds.POWER_CAP_CLASS_SHARE and not gpu.capped
    return at_limit and peers_cap_share <= thresholds.STRAGGLER_PEERS_CAP_SHARE
