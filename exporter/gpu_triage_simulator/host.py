"""A simulated host: its GPUs and everything around them, at the current time of a clock."""

import math
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from gpu_triage.machine import CallBlocked, Clock, RealClock
from gpu_triage_simulator.clocks import FastClock, host_clock
from gpu_triage_simulator.conditions import Timeline
from gpu_triage_simulator.gpu_state import GpuState
from gpu_triage_simulator.host_effects import WrongClock
from gpu_triage_simulator.host_state import HostState
from gpu_triage_simulator.observer_effects import ExporterDown, Reboot
from gpu_triage_simulator.scenario import Scenario

SHORTEST_VIRTUAL_DELAY_SECONDS: Final = 1.0
"""On a virtual clock, shorter calls return immediately, because its steps are at least this long."""


class SimulatedHost:
    """The host that a scenario describes, at the clock's current time.

    Attributes:
        scenario: what is simulated.
        timeline: its events, resolved.
        lock: must be held while reading or advancing `gpus`.
        clock: the host's: the simulation's clock, plus any wall clock error of the scenario.
        pace: how many times faster than the real clock it runs, unless it is a virtual one.
        gpus: state by scenario index, for the card now in that slot; call `advance` first.
        host: CPUs, disks and networks.
    """

    def __init__(self, scenario: Scenario, clock: Clock, starting_at: float = 0.0) -> None:
        self.scenario = scenario
        self.timeline = Timeline(scenario)
        self.lock = threading.RLock()
        self.gpus = tuple(GpuState(i, gpu, self.timeline, scenario.seed) for i, gpu in enumerate(scenario.gpus))
        self._clock = clock
        self.pace = clock.pace if isinstance(clock, FastClock) else 1
        is_wrong = any(True for _ in self.timeline.host(WrongClock))
        self.clock = host_clock(clock, self._wrong_by) if is_wrong else clock
        start = clock.now()
        self._start_monotonic = start.monotonic - starting_at
        self._start_wall = start.wall - starting_at
        self.host = HostState(scenario, self.timeline, max(1.0, self._start_monotonic))
        self._advanced_to = -1.0
        self._to_come = deque(scenario.replacements)
        self._released = threading.Event()
        self._boots = _boots(scenario)

    def seconds(self) -> float:
        return max(0.0, self._clock.now().monotonic - self._start_monotonic)

    def boots(self, seconds: float) -> tuple[float, ...]:
        """Scenario times up to `seconds` at which the host had booted, after its first boot, oldest first."""
        return tuple(at for at in self._boots if at <= seconds)

    def wall(self, seconds: float) -> float:
        """Unix seconds at a scenario time, as the wall clock is set now."""
        return self._start_wall + seconds + self._set_by_seconds()

    def stamps(self, times: Iterable[float]) -> list[int]:
        """Unix microseconds at several scenario times, as the wall clock is set now."""
        set_by_seconds, start = self._set_by_seconds(), self._start_wall
        return [round((start + seconds + set_by_seconds) * 1_000_000) for seconds in times]

    def _wrong_by(self, monotonic: float) -> float:
        seconds = max(0.0, monotonic - self._start_monotonic)
        wrong = self.timeline.host(WrongClock)
        return sum(effect.offset_seconds for event, effect in wrong if event.active(seconds))

    def _set_by_seconds(self) -> float:
        now = self.clock.now()
        set_by_seconds = now.wall - self._start_wall - (now.monotonic - self._start_monotonic)
        # Rounded to milliseconds: smaller differences are floating-point error, not a clock step.
        return round(set_by_seconds, 3)

    def uptime(self, seconds: float) -> float:
        """Seconds since boot at a scenario time, as counted by the monotonic clock and the kernel log."""
        return max(0.0, self._start_monotonic + seconds)

    def advance(self) -> float:
        """Advance every GPU to the current time; returns the scenario time. The caller holds the lock."""
        seconds = self.seconds()
        if seconds != self._advanced_to:
            self._replace_cards(seconds)
            for gpu in self.gpus:
                gpu.advance(seconds)
            self._advanced_to = seconds
        return seconds

    def _replace_cards(self, seconds: float) -> None:
        while self._to_come and self._to_come[0].since <= seconds:
            card = self._to_come.popleft()
            state = GpuState(card.index, card.gpu, self.timeline, self.scenario.seed, card.since)
            self.gpus = (*self.gpus[: card.index], state, *self.gpus[card.index + 1 :])

    def block(self, seconds: float) -> None:
        """Block the calling thread, like a driver call that hangs.

        On the real clock, however fast, it waits (without the GIL) for `seconds` or until `release`; a virtual clock
        cannot wait.

        Raises:
            CallBlocked: on a virtual clock.
        """
        if not isinstance(self._clock, RealClock):
            raise CallBlocked(self._clock.now().monotonic + seconds)
        self._released.wait(None if math.isinf(seconds) else seconds / self.pace)

    def delay(self, seconds: float) -> None:
        """Delay the calling thread for a slow call; as `block`, but on a virtual clock short delays are skipped.

        Raises:
            CallBlocked: on a virtual clock, to which the delay is long enough to matter.
        """
        if isinstance(self._clock, RealClock) or seconds >= SHORTEST_VIRTUAL_DELAY_SECONDS:
            self.block(seconds)

    @property
    def released(self) -> bool:
        return self._released.is_set()

    def release(self) -> None:
        """Let all blocked calls return, including future ones."""
        self._released.set()


def _boots(scenario: Scenario) -> tuple[float, ...]:
    """Scenario times at which the host boots after its first boot, oldest first.

    Replacing a card while the exporter is down counts as a reboot, because the host is powered off for it; replacing
    one while the exporter runs is a hot swap.
    """
    down = [event for event in scenario.events if isinstance(event.effect, ExporterDown)]
    replaced_at = {card.since for card in scenario.replacements if not card.reset}
    booted_at = {at for at in replaced_at if any(each.at <= at < (each.until or at + 1) for each in down)}
    booted_at |= {event.until for event in scenario.events if isinstance(event.effect, Reboot) and event.until}
    return tuple(sorted(booted_at))
