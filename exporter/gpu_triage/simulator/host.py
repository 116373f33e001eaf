"""A simulated host: its GPUs and everything around them, at the present instant of a clock."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from gpu_triage.machine import Blocked, Clock, RealClock
from gpu_triage.simulator.conditions import Timeline
from gpu_triage.simulator.gpu_state import GpuState
from gpu_triage.simulator.host_clock import host_clock
from gpu_triage.simulator.host_effects import WrongClock
from gpu_triage.simulator.host_state import HostState
from gpu_triage.simulator.scenario import Scenario

SHORTEST_VIRTUAL_DELAY_SECONDS: Final = 1.0
"""On a virtual clock, calls that would take less return at once: its steps are no finer."""


class SimulatedHost:
    """What a scenario describes, at the clock's present instant.

    Attributes:
        scenario: what is simulated.
        timeline: its events, resolved.
        lock: held by whoever reads or advances `gpus`.
        clock: the host's: that of the simulation, and its wall clock wrong where the scenario says so.
        gpus: state by index of the scenario, of the card that is in there now; call `advance` first.
        host: CPUs, disks and networks.
    """

    def __init__(self, scenario: Scenario, clock: Clock, starting_at: float = 0.0) -> None:
        self.scenario = scenario
        self.timeline = Timeline(scenario)
        self.lock = threading.RLock()
        self.gpus = tuple(GpuState(i, gpu, self.timeline, scenario.seed) for i, gpu in enumerate(scenario.gpus))
        self._clock = clock
        is_wrong = any(True for _ in self.timeline.host(WrongClock))
        self.clock = host_clock(clock, self._wrong_by) if is_wrong else clock
        start = clock.now()
        self._start_monotonic = start.monotonic - starting_at
        self._start_wall = start.wall - starting_at
        self.host = HostState(scenario, self.timeline, max(1.0, self._start_monotonic))
        self._advanced_to = -1.0
        self._to_come = deque(scenario.replacements)
        self._released = threading.Event()

    def seconds(self) -> float:
        """Scenario time now."""
        return max(0.0, self._clock.now().monotonic - self._start_monotonic)

    def wall(self, seconds: float) -> float:
        """Seconds since the Unix epoch at a scenario time, as the wall clock is set now."""
        return self._start_wall + seconds + self._set_by_seconds()

    def stamps(self, times: Iterable[float]) -> list[int]:
        """Microseconds since the Unix epoch at several scenario times, as the wall clock is set now."""
        set_by_seconds, start = self._set_by_seconds(), self._start_wall
        return [round((start + seconds + set_by_seconds) * 1_000_000) for seconds in times]

    def _wrong_by(self, monotonic: float) -> float:
        seconds = max(0.0, monotonic - self._start_monotonic)
        wrong = self.timeline.host(WrongClock)
        return sum(effect.offset_seconds for event, effect in wrong if event.active(seconds))

    def _set_by_seconds(self) -> float:
        now = self.clock.now()
        set_by_seconds = now.wall - self._start_wall - (now.monotonic - self._start_monotonic)
        # To the millisecond: what is left below that is how floating point adds up, no step of the clock.
        return round(set_by_seconds, 3)

    def uptime(self, seconds: float) -> float:
        """Seconds since boot at a scenario time, as the monotonic clock and the kernel log count them."""
        return max(0.0, self._start_monotonic + seconds)

    def advance(self) -> float:
        """Bring every GPU to the present; returns the scenario time. The caller holds the lock."""
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
        """Let the calling thread wait, as a driver call would that does not return.

        On the real clock it waits (without the GIL) until then or until `release`; any other clock has no
        time to wait with.

        Raises:
            Blocked: not on the real clock.
        """
        if not isinstance(self._clock, RealClock):
            raise Blocked(self._clock.now().monotonic + seconds)
        self._released.wait(None if math.isinf(seconds) else seconds)

    def delay(self, seconds: float) -> None:
        """Let the calling thread wait for a call that is only slow; as `block`, but for what is too short.

        Raises:
            Blocked: not on the real clock, and the delay is worth a virtual clock's notice.
        """
        if isinstance(self._clock, RealClock) or seconds >= SHORTEST_VIRTUAL_DELAY_SECONDS:
            self.block(seconds)

    @property
    def released(self) -> bool:
        """Whether blocked calls have been let go."""
        return self._released.is_set()

    def release(self) -> None:
        """Let every blocked call return, now and from now on."""
        self._released.set()
