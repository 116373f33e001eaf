"""One simulated GPU: power follows load and clocks, temperature follows power, throttling follows both.

The state moves in fixed steps of one second, regardless of how often it is read. Within a step, gauges are constant and
counters grow linearly, so every counter is the exact integral of its gauge. Within a second, a GPU of a job may compute
and wait several times: its gauges are means of the second.
"""

import math
import random
from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage_simulator import effects
from gpu_triage_simulator.conditions import GpuConditions, Timeline, UnderLoad, phase
from gpu_triage_simulator.effects import FrozenThrottleCounter, MiscountedPowerCap, Pulses
from gpu_triage_simulator.gauges import (
    COUNTED,
    COUNTED_REASONS,
    GPU_IDLE,
    PULSED_REASONS,
    PULSED_UTILIZATION,
    SW_POWER_CAP,
    Gauges,
    rates,
)
from gpu_triage_simulator.job import Shares
from gpu_triage_simulator.scenario import Event, Gpu


@dataclass(frozen=True, slots=True)
class PulseTrain:
    """One pulse per period, at a random but reproducible time within it."""

    of: str  # what is pulsed, as in the effect
    # begins, ends: scenario time; no end if None
    begins: float
    ends: float | None
    # period_seconds, pulse_seconds: each period contains one whole pulse of this length
    period_seconds: float
    pulse_seconds: float
    seed: int  # of the random times

    def on_seconds(self, seconds: float) -> float:
        end = seconds if self.ends is None else min(seconds, self.ends)
        if end <= self.begins:
            return 0.0
        number = math.floor((end - self.begins) / self.period_seconds)
        into_pulse = end - self._start(number)
        return number * self.pulse_seconds + min(max(into_pulse, 0.0), self.pulse_seconds)

    def is_on(self, seconds: float) -> bool:
        if seconds < self.begins or (self.ends is not None and seconds >= self.ends):
            return False
        number = math.floor((seconds - self.begins) / self.period_seconds)
        return 0.0 <= seconds - self._start(number) < self.pulse_seconds

    def _start(self, number: int) -> float:
        room = self.period_seconds - self.pulse_seconds
        # Seeded per pulse, so that a pulse does not depend on which ones were computed before.
        delay = random.Random(f"{self.seed} {number}").random() * room  # noqa: S311 - a simulation
        return self.begins + number * self.period_seconds + delay


def pulse_train(event: Event, effect: effects.Pulses, gpu: int) -> PulseTrain:
    return PulseTrain(
        of=effect.of,
        begins=float(event.at),
        ends=None if event.until is None else float(event.until),
        period_seconds=60.0 / effect.per_minute,
        pulse_seconds=effect.milliseconds / 1000.0,
        seed=effect.seed * 1000 + gpu,
    )


STEP_SECONDS: Final = 1
WARM_UP_SECONDS: Final = 300
"""Steps before time 0, so that a scenario starts in thermal equilibrium."""
HISTORY_STEPS: Final = 22
"""Number of steps with gauges kept in memory: the time span of the driver's sample ring buffer."""

_BUSY: Final = 0.005
_VIDEO_PHASE: Final = 4099
"""Steps by which the noise of the video engines lags that of the kernels."""
_CLOCK_GRAIN_MHZ: Final = 15
_GENERATION_BYTES_PER_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.125e9}

_COMPUTING_SMS: Final = 0.92
_TENSOR_SHARE: Final = 0.46
_BANDWIDTH_SHARE: Final = 0.6
"""Shares of the SMs that are active while kernels compute, of the time in which their tensor cores are, and of the
memory bandwidth in use while memory is: those of a training job that mostly uses tensor cores."""
_COLLECTIVE_SMS: Final = 24 / 132
"""Share of an H100's SMs that NCCL's kernels occupy, whether they exchange data or wait for others."""
_EXCHANGE_MEMORY: Final = 0.2
"""Share of the time in which an exchange at full speed reads or writes device memory."""
_CONTEXT_POWER: Final = 0.077
_COLLECTIVE_POWER: Final = 0.003
_EXCHANGE_POWER: Final = 0.2
"""What a context draws without a kernel, what NCCL's kernels draw more while they wait, and more than that while they
exchange data, as shares of the default limit minus idle power: an H100 (72 to 700 W) draws 120 W and 122 W."""
_READING_INERTIA: Final = 0.4
"""How much of a change of power the driver's reading follows in a second. On an H100, bursts of 710 to 760 W by energy
are 362 W at most in its readings."""

_PLACES: Final = {name: place for place, name in enumerate(COUNTED)}
_OF_PULSES: Final = {"utilization": 1.0, "computing": 1.0, "sm_active": _COMPUTING_SMS, "tensor_active": _TENSOR_SHARE}
"""What the kernels of a pulse add to these integrals, for each second."""

_ASLEEP: Final = UnderLoad(sm_mhz=0.0, watts=0.0, reasons=0)
"""Of a GPU without anything to do: it has its model's idle clock and power."""


class _Activity(NamedTuple):
    """What a GPU does in a second: shares of the time, or of what its load does at full utilization."""

    computing: float
    communicating: float  # kernels of NCCL
    tensors: float  # computing with the instructions that a healthy GPU needs for the same work
    memory: float
    pcie: float
    nvlink: float
    sm_mhz: float
    watts: float
    reasons: int
    awake: bool


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
        self._reading_watts = gpu.model.power.idle
        self._job_steps = 0.0
        self._totals = [0.0] * len(COUNTED)
        self._throttled = dict.fromkeys(COUNTED_REASONS, 0.0)
        self._quiet_seconds: defaultdict[int, float] = defaultdict(float)
        self._pulses = tuple(pulse_train(event, effect, index) for event, effect in timeline.of(Pulses, index))
        self._miscounts = any(
            True for kind in (MiscountedPowerCap, FrozenThrottleCounter) for _ in timeline.of(kind, index)
        )
        # A replacement card starts cold.
        for step in range(since or -WARM_UP_SECONDS, since + 1):
            self._enter(step)
        first = self.gauges
        life = float(gpu.powered_seconds)
        self._totals = [rate * life for rate in rates(first)]
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

    def counter(self, gauge: str) -> float:
        """Integral of a gauge over time, since the driver was loaded: joules of power, seconds of a share."""
        rate: float = getattr(self.gauges, gauge)
        bursts = _OF_PULSES.get(gauge, 0.0) * self._bursts(self.gauges, self.gauges.step, self.seconds)
        return self._totals[_PLACES[gauge]] + rate * self._into_step() + bursts

    def link_seconds(self, link: int) -> float:
        """How long a link has carried traffic, in seconds at full speed."""
        down = link in self._links_down()
        quiet = self.gauges.nvlink * self._into_step() if down else 0.0
        return self.counter("nvlink") - self._quiet_seconds[link] - quiet

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

    def _into_step(self) -> float:
        return min(max(self.seconds - self.gauges.step, 0.0), float(STEP_SECONDS))

    def _settle(self) -> None:
        gauges = self.gauges
        self._totals = [total + rate * STEP_SECONDS for total, rate in zip(self._totals, rates(gauges), strict=True)]
        end = gauges.step + STEP_SECONDS
        for link in self._links_down():
            self._quiet_seconds[link] += gauges.nvlink * STEP_SECONDS
        if self._pulses:
            for name, share in _OF_PULSES.items():
                self._totals[_PLACES[name]] += share * self._bursts(gauges, gauges.step, end)
        if self._pulses or gauges.reasons or self._miscounts:
            for reason in COUNTED_REASONS:
                self._throttled[reason] += self._throttled_between(reason, gauges.step, end)

    def _links_down(self) -> Collection[int]:
        return self.timeline.conditions(self.index, self.gauges.step).links_down

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
        asked = _wandering(load.utilization, load.jitter, self._noise(step))
        encoder = decoder = 0.0
        if load.encoder or load.decoder:
            video_noise = self._noise(step + _VIDEO_PHASE)
            encoder = _wandering(load.encoder, load.video_jitter, video_noise)
            decoder = _wandering(load.decoder, load.video_jitter, video_noise)
        shares = self.timeline.shares(self.index, step)
        if shares is not None and not shares.absent:
            does = self._in_job(conditions, shares.second(self._job_steps), asked, step)
            self._job_steps += shares.steps
        else:
            does = self._alone(conditions, 0.0 if shares else asked, step, video=encoder > 0.0 or decoder > 0.0)
            does = does._replace(nvlink=0.0) if shares else does
        target = conditions.ambient_celsius + does.watts * model.thermal.celsius_per_watt
        self._celsius += (target - self._celsius) * self._inertia
        lanes = conditions.link_width * _GENERATION_BYTES_PER_LANE[conditions.link_generation]
        self._reading_watts += (does.watts - self._reading_watts) * (1.0 if shares is None else _READING_INERTIA)
        utilization = min(1.0, does.computing + does.communicating)
        memory = min(1.0, does.memory)
        gauges = Gauges(
            step=step,
            utilization=utilization,
            memory_utilization=memory,
            encoder=encoder,
            decoder=decoder,
            power_watts=does.watts,
            celsius=self._celsius,
            reasons=does.reasons,
            performance_state=model.load_state if does.awake else model.idle_state,
            sm_mhz=int(does.sm_mhz) // _CLOCK_GRAIN_MHZ * _CLOCK_GRAIN_MHZ if does.awake else model.clocks.sm_idle,
            memory_mhz=model.clocks.memory_under_load if does.awake else model.clocks.memory_idle,
            video_mhz=model.clocks.video_max if does.awake else model.clocks.video_idle,
            receive=min((load.pcie_receive_bytes_per_second or 0.0) * does.pcie, lanes),
            transmit=min((load.pcie_transmit_bytes_per_second or 0.0) * does.pcie, lanes),
            computing=does.computing,
            sm_active=_COMPUTING_SMS * does.computing + _COLLECTIVE_SMS * does.communicating,
            tensor_active=(_TENSOR_SHARE if load.tensor is None else load.tensor) * does.tensors,
            dram_active=(_BANDWIDTH_SHARE if load.bandwidth is None else load.bandwidth) * memory,
            nvlink=does.nvlink,
            smoothing_watts=self._reading_watts - does.watts,
        )
        self.history.append(gauges._replace(**conditions.readings.gauges))

    def _alone(self, conditions: GpuConditions, asked: float, step: int, *, video: bool) -> _Activity:
        """A GPU without a job; its NVLink traffic is proportional to its power."""
        load, power = conditions.load, self.gpu.model.power
        awake = asked >= _BUSY or video or load.resting_watts is not None
        share = 0.0 if asked < _BUSY or load.pauses(step) else asked
        running = _ASLEEP
        if awake:
            running = conditions.under_load(share, step, self._heat_relief(conditions))
        watts, reasons = running.watts, running.reasons
        if not share:
            watts = self._resting(power.idle if load.resting_watts is None else load.resting_watts, step)
            reasons |= 0 if video else GPU_IDLE
        activity = share / load.utilization if load.utilization else 0.0
        spins = bool(load.spinning)
        drawn = conditions.readings.gauges.get("power_watts", watts)
        return _Activity(
            computing=0.0 if spins else share,
            communicating=share if spins else 0.0,
            tensors=0.0 if spins else share,
            memory=(load.memory_utilization or 0.0) * activity,
            pcie=activity,
            nvlink=0.0 if spins else drawn / power.default_limit,
            sm_mhz=running.sm_mhz,
            watts=watts,
            reasons=reasons,
            awake=awake,
        )

    def _in_job(self, conditions: GpuConditions, shares: Shares, asked: float, step: int) -> _Activity:
        """A GPU of a job: what it does depends on the job's other GPUs, too.

        Clock and throttle reasons are those of one moment of the second: power is only capped while kernels compute.
        """
        load, model = conditions.load, self.gpu.model
        span = model.power.default_limit - model.power.idle
        relief = self._heat_relief(conditions)
        computing, waiting = (conditions.under_load(share, step, relief) for share in (asked, 0.0))
        context = model.power.idle + _CONTEXT_POWER * span if load.resting_watts is None else load.resting_watts
        resting = self._resting(context, step)
        communicating = shares.exchanging + shares.spinning
        watts = shares.starving * resting + shares.computing * computing.watts
        watts += communicating * (resting + _COLLECTIVE_POWER * span) + shares.traffic * _EXCHANGE_POWER * span
        moment = phase(step)
        now = computing if 0.0 <= moment - shares.starving < shares.computing else waiting
        speed = self.timeline.speed(self.index, step)
        usual = asked / load.utilization if load.utilization else 0.0
        return _Activity(
            computing=asked * shares.computing,
            communicating=communicating,
            tensors=asked * shares.work / speed if speed else 0.0,
            memory=(load.memory_utilization or 0.0) * usual * shares.work + _EXCHANGE_MEMORY * shares.traffic,
            pcie=usual * shares.work,
            nvlink=shares.traffic,
            sm_mhz=now.sm_mhz,
            watts=watts,
            reasons=now.reasons | (GPU_IDLE if moment < shares.starving else 0),
            awake=True,
        )

    def _resting(self, watts: float, step: int) -> float:
        return watts * (1.0 + self.gpu.model.idle_noise * self._noise(step))

    def _heat_relief(self, conditions: GpuConditions) -> int:
        """MHz by which the driver lowers the clock to stay below the maximum operating temperature."""
        if conditions.thermal:
            return 0
        ceiling = self.gpu.model.thermal.gpu_max
        if self._celsius > ceiling:
            self._relief_mhz = min(self._relief_mhz + _CLOCK_GRAIN_MHZ, self.gpu.model.clocks.sm_under_load)
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
