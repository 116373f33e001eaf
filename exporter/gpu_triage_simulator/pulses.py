"""Pulses shorter than a step: whether one is on, and for how long in total."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from gpu_triage_simulator import effects
from gpu_triage_simulator.scenario import Event


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
