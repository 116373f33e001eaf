"""Is the GPU throttled, or slower than its peers? Heat, power and clock policy."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence, Slowdown
from gpu_triage.judge.evidence.host import HostEvidence, median, slower
from gpu_triage.judge.evidence.remember import Share, slowdown_margin
from gpu_triage.judge.findings.finding import Finding, of_gpu
from gpu_triage.read.gpu import power
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL


def judge_clocks(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about throttling, temperatures close to it, and lowered clocks."""
    for gpu in host.answering:
        clock = gpu.one(power.GPU_CLOCK_HERTZ, clock="sm")
        lost = gpu.memory.past(gpu.key, Share.CLOCK).shortfall(None if clock is None else clock.mean)
        yield from (replace(each, loss=lost) for each in (*_slowdowns(gpu), *_implausible_power(gpu)))
        yield from (*_near_slowdown(gpu), *_low_limit(gpu))
    for gpu, limited in host.limited_clocks.items():
        lost = 1.0 - limited.share if gpu.loaded else None
        detail = _with_about(_clock_of_limit(gpu))
        yield of_gpu("clock.policy", gpu, limited.text, value=limited.share, detail=detail, loss=lost)
    yield from judge_stragglers(host)
    yield from _hot_at_rest(host)


def _slowdowns(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield what slows it down by its counters, and without one."""
    *heat_and_brakes, cap = gpu.slowdowns
    for slowdown in heat_and_brakes:
        if slowdown.exceeded(gpu, share := slowdown.lasting(gpu)):
            more = ", without heat or brake" if slowdown.reason == "hw_slowdown" else ""
            more = _heat_and_clock(gpu) if slowdown.reason.endswith("thermal") else more
            measured = f"{slowdown.reason} {share:.0%} of the time{more}"
            yield of_gpu(slowdown.code, gpu, measured, value=share, detail=_heat_of_limit(gpu))
        if (now := slowdown.uncounted) is not None:
            measured = f"{slowdown.reason} {now.lasted}{_heat_and_clock(gpu)}"
            yield of_gpu(slowdown.code, gpu, measured, value=now.share, detail=_heat_of_limit(gpu))
    if gpu.capped:
        yield _power_cap(gpu, cap)


def _near_slowdown(gpu: GpuEvidence) -> Iterator[Finding]:
    margin = slowdown_margin(gpu)
    if margin is not None and (margin.near or gpu.under_load):
        often = gpu.memory.over(gpu.key, Share.NEAR_SLOWDOWN, thresholds.NEAR_SLOWDOWN_SECONDS)
        if often.mean >= thresholds.NEAR_SLOWDOWN_SHARE or (margin.near and not often.seconds):
            yield of_gpu("thermal.margin", gpu, margin.text, value=margin.celsius, detail=margin.text)


def _heat_and_clock(gpu: GpuEvidence) -> str:
    heat, clock = gpu.last(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu"), _clock_of_limit(gpu)
    return "".join(f", {part}" for part in ("" if heat is None else f"{heat:.0f} °C", clock) if part)


def _clock_of_limit(gpu: GpuEvidence) -> str:
    clock, most = (gpu.last(spec, clock="sm") for spec in (power.GPU_CLOCK_HERTZ, power.GPU_CLOCK_MAX_HERTZ))
    return "" if clock is None or most is None else f"SM clock {clock / 1e6:.0f} of {most / 1e6:.0f} MHz"


def _heat_of_limit(gpu: GpuEvidence) -> str:
    """Return the detail of a throttled GPU: ``91 °C (limit 90 °C), SM clock about 1095 of 1980 MHz``."""
    limit = gpu.last(power.GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold="slowdown")
    heat = gpu.last(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu")
    known = "" if heat is None else f"{heat:.0f} °C" + ("" if limit is None else f" (limit {limit:.0f} °C)")
    return ", ".join(filter(None, (known, _with_about(_clock_of_limit(gpu)))))


def _with_about(measured: str) -> str:
    """Mark the measurement in a detail: a clock or power that is not a limit."""
    return re.sub(r"(clock|reads) (?=\d)", r"\1 about ", measured)


def _hot_at_rest(host: HostEvidence) -> Iterator[Finding]:
    """Yield idle GPUs much hotter than other idle ones of their model. In files, their jobs may have just ended."""
    idle: dict[GpuEvidence, float] = {}
    for gpu in host.answering if host.ended is None else ():
        heat, share = gpu.one(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu"), gpu.busy_share
        if heat is not None and share is not None and share < thresholds.HUNG_BUSY_SHARE:
            idle[gpu] = heat.low
    for gpu, celsius in idle.items():
        others = [other for sibling, other in idle.items() if sibling is not gpu and sibling.name == gpu.name != ""]
        enough = len(others) >= thresholds.IDLE_SIBLINGS
        if enough and celsius - median(others) >= host.limit("thermal.at_rest", "gap"):
            measured = f"{celsius:.0f} °C while idle, its idle siblings about {median(others):.0f} °C"
            yield of_gpu("thermal.at_rest", gpu, measured, value=celsius, detail=measured)


def _low_limit(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield a firmware temperature limit that is far too low, if the GPU has reached it."""
    heat = gpu.one(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu")
    limit, slowdown = (
        gpu.last(power.GPU_TEMPERATURE_THRESHOLD_CELSIUS, threshold=each) for each in ("gpu_max", "slowdown")
    )
    if heat is None or limit is None or slowdown is None or slowdown - limit < gpu.limit("thermal.low_limit", "gap"):
        return
    near_celsius = gpu.limit("thermal.margin", "margin")
    if heat.low > limit - near_celsius or gpu.last(GPU_THROTTLE_ACTIVE, reason="sw_thermal"):
        measured = f"{heat.last:.0f} °C, its limit is {limit:.0f} °C; the board slows down at {slowdown:.0f} °C"
        yield of_gpu("thermal.low_limit", gpu, measured, value=limit, detail=measured)


def _implausible_power(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield an implausible power reading that throttles the GPU."""
    watts, capped = gpu.recent.one(power.GPU_POWER_WATTS), gpu.recent.one(GPU_THROTTLE_ACTIVE, reason="sw_power_cap")
    limits = (power.GPU_POWER_LIMIT_WATTS, power.GPU_POWER_DEFAULT_LIMIT_WATTS, power.GPU_POWER_MAX_LIMIT_WATTS)
    most = max((limit for spec in limits if (limit := gpu.last(spec)) is not None), default=None)
    if watts is None or most is None or capped is None or capped.low != 1 or not gpu.slowed_down:
        return
    if watts.low >= gpu.limit("power.reading", "ratio") * most:
        measured = f"reads {watts.last:.0f} W, its highest limit is {most:.0f} W{_heat_and_clock(gpu)}"
        yield of_gpu("power.reading", gpu, measured, value=watts.last, detail=_with_about(measured))


def _power_cap(gpu: GpuEvidence, cap: Slowdown) -> Finding:
    """Return the finding about a lowered power limit, depending on whether it throttles the GPU."""
    limit, default = gpu.last(power.GPU_POWER_LIMIT_WATTS), gpu.last(power.GPU_POWER_DEFAULT_LIMIT_WATTS)
    share, slowdown = cap.lasting(gpu), cap.uncounted
    # A single poll gives no share of time.
    counted = gpu.one(GPU_THROTTLE_SECONDS_TOTAL, reason="sw_power_cap")
    at_it = f"; at it {share:.0%} of the time" if counted is not None and counted.seconds > 0 else ""
    if slowdown is not None:
        at_it, share = f"; it holds the clocks {slowdown.lasted}", max(share, slowdown.share)
    requested = gpu.last(power.GPU_POWER_REQUESTED_LIMIT_WATTS)
    asked = "" if requested is None else f" ({requested:.0f} W requested: the BMC or another limit applies)"
    measured = f"limit {limit:.0f} W{asked}, default {default:.0f} W{at_it}"
    if cap.exceeded(gpu, share) or slowdown is not None:
        return of_gpu("power.cap", gpu, measured, value=share, detail=f"{limit:.0f} W instead of {default:.0f} W")
    return of_gpu("power.limit", gpu, measured, value=limit, detail=f"{limit:.0f} W instead of {default:.0f} W")


def judge_stragglers(host: HostEvidence) -> Iterator[Finding]:
    """Yield busy GPUs with a lower clock than their busy peers.

    A GPU at its default power limit while its peers rarely reach theirs does harder work, and one that draws little
    power without being throttled does lighter work: neither is a fault. A clock held down has a finding of its own.
    """
    for peers in host.busy_models:
        usual = median(peers.values())
        peers_are_free = median(peer.capped_share for peer in peers) <= thresholds.STRAGGLER_PEERS_CAP_SHARE
        for gpu, share, words in slower(peers, host.limit("clock.straggler", "drop")):
            at_limit = gpu.capped_share >= thresholds.POWER_CAP_CLASS_SHARE and not gpu.capped
            if gpu in host.limited_clocks or (at_limit and peers_are_free) or _works_less(gpu, peers):
                continue
            detail = f"SM clock about {peers[gpu] / 1e6:.0f} MHz, its peers about {usual / 1e6:.0f} MHz"
            yield of_gpu("clock.straggler", gpu, words, value=peers[gpu], detail=detail, loss=1.0 - share)


def _works_less(gpu: GpuEvidence, peers: Iterable[GpuEvidence]) -> bool:
    """Whether it draws much less power than its peers without being throttled."""
    watts = {peer: drawn.mean for peer in peers if (drawn := peer.one(power.GPU_POWER_WATTS)) is not None}
    if gpu not in watts or watts[gpu] >= thresholds.LIGHTER_POWER_SHARE * median(watts.values()):
        return False
    counters = gpu.series(GPU_THROTTLE_SECONDS_TOTAL)
    throttled = max((each.rate or 0.0 for each in counters if each.labels["reason"] != "idle"), default=0.0)
    return throttled <= thresholds.LIGHTER_THROTTLED_SHARE
