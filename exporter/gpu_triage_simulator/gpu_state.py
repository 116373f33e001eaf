"""One simulated GPU: power follows load and clocks, temperature follows power, throttling follows both.

The state moves in fixed steps of one second, regardless of how often it is read. Within a step, gauges are constant and
counters grow linearly, so every counter is the exact integral of its gauge.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection
from typing import Final

from gpu_triage_simulator.conditions import GpuConditions, Timeline
from gpu_triage_simulator.effects import FrozenThrottleCounter, MiscountedPowerCap, Pulses
from gpu_triage_simulator.gauges import (
    APPLICATIONS_CLOCKS,
    COUNTED_REASONS,
    GPU_IDLE,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    PULSED_REASONS,
    PULSED_UTILIZATION,
    SW_POWER_CAP,
    SW_THERMAL,
    Gauges,
    rates,
)
from gpu_triage_simulator.pulses import pulse_train
from gpu_triage_simulator.scenario import Gpu

STEP_SECONDS: Final = 1
WARM_UP_SECONDS: Final = 300
"""Steps before time 0, so that a scenario starts in thermal equilibrium."""
HISTORY_STEPS: Final = 22
"""Number of steps with gauges kept in memory: the time span of the driver's sample ring buffer."""

_BUSY: Final = 0.005
_BUSY_COUNTER: Final = 3
_VIDEO_PHASE: Final = 4099
"""Steps by which the noise of the video engines lags that of the kernels."""
_GOLDEN_RATIO: Final = (math.sqrt(5.0) - 1.0) / 2.0
_CLOCK_GRAIN_MHZ: Final = 15
_GENERATION_BYTES_PER_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.125e9}


class GpuState:
    """A GPU's gauges and counters; call `advance` before reading. Not thread-safe: the caller holds the host's lock."""

    def __init__(self, index: int, gpu: Gpu, timeline: Timeline, seed: int, since: int = 0) -> None:
        self.index = index
        self.gpu = gpu
        self.timeline = timeline
        self.seconds = float(since)
        self._conditions = timeline.conditions(index, self.seconds)
        self.history: deque[Gauges] = deque(maxlen=HISTORY_STEPS)
        self._phase = (seed * 7919 + index * 104_729) % 1_000_003
        self._celsius = gpu.ambient_celsius + gpu.model.power.idle * gpu.model.thermal.celsius_per_watt
        self._inertia = 1.0 - math.exp(-STEP_SECONDS / gpu.model.thermal.seconds)
        self._relief_mhz = 0
        self._counters = [0.0] * 5
        self._throttled = dict.fromkeys(COUNTED_REASONS, 0.0)
        self._quiet_joules: defaultdict[int, float] = defaultdict(float)
        self._pulses = tuple(pulse_train(event, effect, index) for event, effect in timeline.of(Pulses, index))
        self._miscounts = any(
            True for kind in (MiscountedPowerCap, FrozenThrottleCounter) for _ in timeline.of(kind, index)
        )
        # A replacement card starts cold.
        for step in range(since or -WARM_UP_SECONDS, since + 1):
            self._enter(step)
        first = self.gauges
        life = float(gpu.powered_seconds)
        self._counters = [rate * life for rate in rates(first)]
        self._throttled = dict.fromkeys(COUNTED_REASONS, 0.0)

    @property
    def gauges(self) -> Gauges:
        return self.history[-1]

    @property
    def conditions(self) -> GpuConditions:
        return self._conditions

    def advance(self, seconds: float) -> None:
        """Advance the state to this scenario time; a simulated day takes under a second per idle GPU."""
        last = int(seconds)
        for step in range(self.gauges.step + 1, last + 1):
            self._settle()
            self._enter(step)
        self.seconds = max(seconds, self.seconds)
        self._conditions = self.timeline.conditions(self.index, self.seconds)

    def energy_joules(self) -> float:
        """Energy since the driver was loaded."""
        return self._counter(0)

    def received_bytes(self) -> float:
        return self._counter(1)

    def transmitted_bytes(self) -> float:
        return self._counter(2)

    def link_joules(self, link: int) -> float:
        quiet = self.gauges.power_watts * self._into_step() if link in self._quiet_links() else 0.0
        return self.energy_joules() - self._quiet_joules[link] - quiet

    def busy_seconds(self) -> float:
        return self._counter(_BUSY_COUNTER) + self._bursts(self.gauges, self.gauges.step, self.seconds)

    def utilization_between(self, gauges: Gauges, begins: float, ends: float) -> float:
        """Share of time with a kernel running, over a part of one step; `gauges` are that step's."""
        if not self._pulses:
            return gauges.utilization
        return min(1.0, gauges.utilization + self._bursts(gauges, begins, ends) / (ends - begins))

    @property
    def reasons(self) -> int:
        bits = self.gauges.reasons
        for train in self._pulses:
            if train.is_on(self.seconds):
                bits |= PULSED_REASONS.get(train.of, 0)
        return bits

    def memory_busy_seconds(self) -> float:
        return self._counter(4)

    def throttled_seconds(self, reason: int) -> float:
        """How long a throttle reason (one of COUNTED_REASONS) has been active."""
        running = self._throttled_between(reason, self.gauges.step, self.gauges.step + self._into_step())
        return self._throttled[reason] + running

    @property
    def link_width(self) -> int:
        return self.conditions.link_width

    @property
    def link_generation(self) -> int:
        """Current link generation, which is reduced while the GPU is idle."""
        generation = self.conditions.link_generation
        idle = self.gpu.model.pcie.idle_generation
        return min(generation, idle) if self.gauges.performance_state >= 8 else generation  # noqa: PLR2004 - P8

    def _counter(self, number: int) -> float:
        return self._counters[number] + rates(self.gauges)[number] * self._into_step()

    def _into_step(self) -> float:
        return min(max(self.seconds - self.gauges.step, 0.0), float(STEP_SECONDS))

    def _settle(self) -> None:
        gauges = self.gauges
        for i, rate in enumerate(rates(gauges)):
            self._counters[i] += rate * STEP_SECONDS
        end = gauges.step + STEP_SECONDS
        for link in self._quiet_links():
            self._quiet_joules[link] += gauges.power_watts * STEP_SECONDS
        if self._pulses:
            self._counters[_BUSY_COUNTER] += self._bursts(gauges, gauges.step, end)
        if self._pulses or gauges.reasons or self._miscounts:
            for reason in COUNTED_REASONS:
                self._throttled[reason] += self._throttled_between(reason, gauges.step, end)

    def _quiet_links(self) -> Collection[int]:
        conditions = self.timeline.conditions(self.index, self.gauges.step)
        return range(self.gpu.model.nvlinks) if conditions.load.spinning else conditions.links_down

    def _throttled_between(self, reason: int, begins: float, ends: float) -> float:
        """How long a reason was active during a part of the current step, as counted by the driver."""
        wrong = self.timeline.conditions(self.index, self.gauges.step) if self._miscounts else None
        if wrong is not None and wrong.frozen_counters & reason:
            return 0.0
        if self.gauges.reasons & reason:
            return ends - begins
        trains = [train for train in self._pulses if PULSED_REASONS.get(train.of, 0) & reason]
        held = sum(train.on_seconds(ends) - train.on_seconds(begins) for train in trains)
        if reason == SW_POWER_CAP and wrong is not None:
            held += wrong.miscounted_cap * (ends - begins)
        return min(held, ends - begins)

    def _bursts(self, gauges: Gauges, begins: float, ends: float) -> float:
        """Busy time that pulses add to a step's gauges, over a part of that step."""
        if not self._pulses:
            return 0.0
        on = sum(t.on_seconds(ends) - t.on_seconds(begins) for t in self._pulses if t.of == PULSED_UTILIZATION)
        return min(on, max(ends - begins, 0.0)) * (1.0 - gauges.utilization)

    def _enter(self, step: int) -> None:
        conditions = self.timeline.conditions(self.index, step)
        load, model = conditions.load, self.gpu.model
        noise = self._noise(step)
        asked = _wandering(load.utilization, load.jitter, noise)
        share = 0.0 if asked < _BUSY or load.pauses(step) else asked
        encoder = decoder = 0.0
        if load.encoder or load.decoder:
            video_noise = self._noise(step + _VIDEO_PHASE)
            encoder = _wandering(load.encoder, load.video_jitter, video_noise)
            decoder = _wandering(load.decoder, load.video_jitter, video_noise)
        awake = asked >= _BUSY or encoder > 0.0 or decoder > 0.0 or load.resting_watts is not None
        if share:
            sm_mhz, watts, reasons = self._run(conditions, share, step)
        else:
            sm_mhz, watts, reasons = self._rest(conditions, step, awake=awake)
            reasons |= 0 if encoder or decoder else GPU_IDLE
        target = conditions.ambient_celsius + watts * model.thermal.celsius_per_watt
        self._celsius += (target - self._celsius) * self._inertia
        activity = share / load.utilization if load.utilization else 0.0
        lanes = conditions.link_width * _GENERATION_BYTES_PER_LANE[conditions.link_generation]
        gauges = Gauges(
            step=step,
            utilization=share,
            memory_utilization=min(1.0, (load.memory_utilization or 0.0) * activity),
            encoder=encoder,
            decoder=decoder,
            power_watts=watts,
            celsius=self._celsius,
            reasons=reasons,
            performance_state=model.load_state if awake else model.idle_state,
            sm_mhz=sm_mhz,
            memory_mhz=model.clocks.memory_under_load if awake else model.clocks.memory_idle,
            video_mhz=model.clocks.video_max if awake else model.clocks.video_idle,
            receive=min((load.pcie_receive_bytes_per_second or 0.0) * activity, lanes),
            transmit=min((load.pcie_transmit_bytes_per_second or 0.0) * activity, lanes),
        )
        self.history.append(gauges._replace(**conditions.readings.gauges))

    def _rest(self, conditions: GpuConditions, step: int, *, awake: bool) -> tuple[int, float, int]:
        """As `_run`, while no kernel runs: clocks stay up only if something keeps the GPU awake."""
        model = self.gpu.model
        asked = conditions.load.resting_watts
        watts = (model.power.idle if asked is None else asked) * (1.0 + model.idle_noise * self._noise(step))
        if not awake:
            return model.clocks.sm_idle, watts, 0
        sm_mhz, _, reasons = self._run(conditions, 0.0, step)
        return sm_mhz, watts, reasons

    def _run(self, conditions: GpuConditions, share: float, step: int) -> tuple[int, float, int]:
        """SM clock in MHz, power in watts and throttle reasons under load."""
        model = self.gpu.model
        top = model.clocks.sm_max
        mhz = float(self.gpu.boost_mhz or model.clocks.sm_under_load)
        reasons = 0
        # Application clocks at their default are not set by a user and limit nothing.
        if conditions.sm_target_mhz != model.clocks.sm_target:
            mhz = min(mhz, conditions.sm_target_mhz)
            reasons |= APPLICATIONS_CLOCKS if conditions.sm_target_mhz < model.clocks.sm_target else 0
        for thermal in conditions.thermal:
            if _on_duty(thermal.duty, step):
                mhz = min(mhz, thermal.sm_clock_mhz)
                reasons |= SW_THERMAL if thermal.source == "sw" else HW_THERMAL | HW_SLOWDOWN
        for brake in conditions.brake:
            if _on_duty(brake.duty, step):
                mhz = min(mhz, brake.sm_clock_mhz)
                reasons |= HW_POWER_BRAKE | HW_SLOWDOWN
        relief = 0 if conditions.thermal else self._heat_relief(mhz)
        if relief:
            mhz = max(mhz - relief, float(model.clocks.sm_idle))
            reasons |= SW_THERMAL
        idle, limit = model.power.idle, conditions.power_limit_watts
        dynamic = (conditions.load.intensity or 0.0) * (model.power.default_limit - idle) * share
        watts = idle + dynamic * (mhz / top) ** 2
        if watts > limit and dynamic:
            mhz = max(top * math.sqrt(max(limit - idle, 0.0) / dynamic), float(model.clocks.sm_idle))
            watts = idle + dynamic * (mhz / top) ** 2
            reasons |= SW_POWER_CAP
        return int(mhz) // _CLOCK_GRAIN_MHZ * _CLOCK_GRAIN_MHZ, watts, reasons

    def _heat_relief(self, mhz: float) -> int:
        """MHz by which the driver lowers the clock to stay below the maximum operating temperature."""
        ceiling = self.gpu.model.thermal.gpu_max
        if self._celsius > ceiling:
            self._relief_mhz = min(self._relief_mhz + _CLOCK_GRAIN_MHZ, int(mhz))
        elif self._relief_mhz and self._celsius < ceiling - 1.0:
            self._relief_mhz = max(0, self._relief_mhz - _CLOCK_GRAIN_MHZ)
        return self._relief_mhz

    def _noise(self, step: int) -> float:
        """Smooth, reproducible noise in [-1, 1]."""
        x = step + self._phase
        return 0.5 * math.sin(x * 0.731) + 0.3 * math.sin(x * 0.0917) + 0.2 * math.sin(x * 0.0113)


def _wandering(share: float | None, jitter: float | None, noise: float) -> float:
    """A share with noise of up to `jitter` times its value, limited to 0 to 1."""
    return min(1.0, max(0.0, (share or 0.0) * (1.0 + (jitter or 0.0) * noise)))


def _on_duty(duty: float, step: int) -> bool:
    """Whether an effect with this duty is on in a step: evenly spread, and out of phase with any poll interval."""
    return step * _GOLDEN_RATIO % 1.0 < duty
