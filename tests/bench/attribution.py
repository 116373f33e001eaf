"""How soon each fault has its class, and how calm classes are: ``python -m tests.bench.attribution``.

It writes its section of docs/benchmarks.md. Everything runs on a virtual clock, through the same code as in the daemon,
so the figures are the same on every machine.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from tests.bench.attribution_faults import BACK_SECONDS, FAULTS, START_SECONDS, Fault
from tests.bench.attribution_report import Attribution, Day, Settled, Start, document
from tests.bench.page import write_section
from tests.rig import Rig

from gpu_triage.options.config import Config
from gpu_triage.read.exporter import judgment
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage.sampler.outcomes import HOST
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS
from gpu_triage_simulator.scenario import Event

T = TypeVar("T")

HEALTHY: Final = Fault("compute", "a job at work", ())
FAST_SECONDS: Final = (1, 5)
"""The fast tiers that are measured; the others have their defaults."""
WORK_SECONDS: Final = 180
"""How long the job works before its fault."""
LONGER_SECONDS: Final = 30
"""How long is looked on after the class should be there: it has to stay."""
UNPROMISED_SECONDS: Final = 160
"""How long what has no promise may take."""
OFFSETS: Final = (0, 1, 2, 3, 4, 17, 38, 59)
"""Seconds by which onset and end move against the tiers: every phase of the medium one, some of the slow one."""
DAY_SECONDS: Final = 86_400
DAY_GPUS: Final = 2
DAYS: Final = ("h100-8", "training-day")
"""Scenarios in which nothing is wrong: full load all day, and a job with bursts, epochs and checkpoints."""
_ON_GPUS: Final = frozenset(GPU_EFFECTS.values())


@dataclass(frozen=True, slots=True)
class Change:
    """A GPU's class from a second of scenario time on."""

    at: float
    name: str


class Watch:
    """Runs an exporter, and notes the class of every GPU as it is published.

    Attributes:
        changes: by GPU, the first class included.
    """

    def __init__(self, running: Rig) -> None:
        self._running = running
        self._seen: object = None
        self.changes: dict[str, list[Change]] = {}

    def run_to(self, seconds: float) -> None:
        """Sample up to a second after the exporter's start."""
        running, interval = self._running, self._running.config.sample_fast_seconds
        while running.elapsed < seconds:
            running.sampler.step()
            running.sampler.publish()
            self._note(running.elapsed)
            running.clock.advance(interval)
            running.elapsed += interval

    def settled(self, gpu: str, name: str, begins: float, ends: float) -> Settled:
        """How a GPU came to a class in a stretch of time that begins with what should lead to it."""
        changes = [change for change in self.changes.get(gpu, []) if change.at < ends]
        since = next((change.at for change in reversed(changes) if change.name == name), math.inf)
        came = bool(changes) and changes[-1].name == name
        detours = dict.fromkeys(change.name for change in changes if begins < change.at < since)
        return Settled(max(0.0, since - begins) if came else math.inf, tuple(detours))

    def _note(self, at: float) -> None:
        outcome = self._running.sampler.store.get(judgment.NAME, HOST)
        if outcome is None or outcome is self._seen:
            return
        self._seen = outcome
        for sample in outcome.samples:
            if sample.spec is GPU_BOTTLENECK:
                changes = self.changes.setdefault(sample.labels[0], [])
                name = GPU_BOTTLENECK.states[int(sample.value)]
                if not changes or changes[-1].name != name:
                    changes.append(Change(at, name))


@contextmanager
def watching(scenario: Scenario, fast_seconds: int, starting_at: float = 0.0) -> Iterator[Watch]:
    """An exporter on a host that has been there for so long, with all but the fast tier at its defaults."""
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock, starting_at=starting_at, when_looked_at=True) as simulated:
        yield Watch(Rig(simulated, clock, replace(Config(), sample_fast_seconds=float(fast_seconds))))


def host_with(fault: Fault, at: int, until: int | None) -> Scenario:
    """The benchmark's host, and what happens to it."""
    base = load_scenario(Path(__file__).with_suffix(".toml"))
    events = (Event(at, until, (0,) if type(effect) in _ON_GPUS else (), effect) for effect in fault.effects)
    return replace(base, events=(*base.events, *events))


def attribute(fault: Fault, fast_seconds: int, offset: int) -> Attribution:
    """One fault, at one phase of the tiers."""
    onset_at = WORK_SECONDS + offset
    end_at = onset_at + (fault.promised or UNPROMISED_SECONDS) + LONGER_SECONDS
    over_at = end_at + BACK_SECONDS + LONGER_SECONDS
    with watching(host_with(fault, onset_at, end_at), fast_seconds) as watch:
        watch.run_to(over_at if fault.ends else end_at)
    return Attribution(
        fault,
        fast_seconds,
        watch.settled("0", fault.name, onset_at, end_at),
        watch.settled("0", HEALTHY.name, end_at, over_at) if fault.ends else None,
    )


def start_under(fault: Fault, fast_seconds: int, offset: int = 0) -> Start:
    """An exporter that starts, or starts anew, while the fault is there."""
    with watching(host_with(fault, WORK_SECONDS, None), fast_seconds, 2.0 * WORK_SECONDS + offset) as watch:
        watch.run_to(START_SECONDS + LONGER_SECONDS)
    return Start(fault, fast_seconds, watch.settled("0", fault.name, 0.0, math.inf))


def calm_day(name: str, fast_seconds: int, seconds: float = DAY_SECONDS) -> Day:
    """A day, or less of it, of the first GPUs of a shipped scenario in which nothing is wrong."""
    scenario = load_scenario(name)
    few = replace(
        scenario,
        gpus=scenario.gpus[:DAY_GPUS],
        processes=tuple(process for process in scenario.processes if process.gpu < DAY_GPUS),
        expectations=(),
    )
    with watching(few, fast_seconds) as watch:
        watch.run_to(seconds)
    changes = {gpu: len(changes) - 1 for gpu, changes in watch.changes.items()}
    return Day(name, seconds / 3600.0, fast_seconds, changes)


def attribute_worst(fault: Fault, fast_seconds: int) -> Attribution:
    """One fault, with the latest onset and the latest end at any of the phases, and all detours."""
    seen = [attribute(fault, fast_seconds, offset) for offset in OFFSETS]
    ends = [each.end for each in seen if each.end is not None]
    return replace(seen[0], onset=_latest(each.onset for each in seen), end=_latest(ends) if ends else None)


def _latest(settled: Iterable[Settled]) -> Settled:
    seen = list(settled)
    detours = dict.fromkeys(name for each in seen for name in each.detours)
    return Settled(max(each.seconds for each in seen), tuple(detours))


def main() -> int:
    """Measure and write the section; returns the exit code."""
    # What befalls the simulated host would be an alarm in the log of this program.
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        # The days first: they take longest.
        days = [pool.submit(calm_day, name, fast_seconds) for fast_seconds in FAST_SECONDS for name in DAYS]
        starts = [
            pool.submit(start_under, fault, fast_seconds)
            for fast_seconds in FAST_SECONDS
            for fault in (HEALTHY, *FAULTS)
            if not fault.remembered
        ]
        attributions = [
            pool.submit(attribute_worst, fault, fast_seconds) for fast_seconds in FAST_SECONDS for fault in FAULTS
        ]
        text = document(_all(attributions), _all(starts), _all(days))
    write_section("attribution", text)
    return 0


def _all(futures: list[Future[T]]) -> list[T]:
    return [future.result() for future in futures]


if __name__ == "__main__":
    sys.exit(main())
