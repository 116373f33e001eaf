"""How soon each fault has its class, and how steady classes are.

Everything runs on a virtual clock, through the same code as in the daemon, so the figures are the same on every
machine.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.rig import Rig

from gpu_triage.options.config import Config
from gpu_triage.read.exporter import judgment
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage.sampler.outcomes import HOST
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS
from gpu_triage_simulator.effects import (
    ApplicationClock,
    Hang,
    Link,
    Lost,
    PowerBrake,
    PowerLimit,
    RecoveryAction,
    ResetRequired,
    ThermalThrottle,
    Xid,
)
from gpu_triage_simulator.host_effects import Cpu, Disk, Kill, Network, Nfs, Pressure, Start, Swap
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.scenario import Event

SICK_SECONDS: Final = 10
HUNG_SECONDS: Final = 300
OTHER_SECONDS: Final = 60
BACK_SECONDS: Final = 90
START_SECONDS: Final = 60


FAST_SECONDS: Final = (1, 5)
"""The fast tiers that are measured; the others have their defaults."""
PHASE_SECONDS: Final = 4
"""By how much a fast tier of 5 s instead of 1 s may be later, for what it is the first to see."""
WORK_SECONDS: Final = 180
"""How long the job works before its fault."""
LONGER_SECONDS: Final = 30
"""How long is looked on after the class should be there: it has to stay."""
UNPROMISED_SECONDS: Final = 160
"""How long what has no promise may take."""
OFFSETS: Final = (0, 1, 2, 3, 4, 17, 38, 59)
"""Seconds by which onset and end move against the tiers: every phase of the medium one, some of the slow one."""
DAY_GPUS: Final = 2
DAYS: Final = ("h100-8", "training-day")
"""Scenarios in which nothing is wrong: full load all day, and a job with bursts, epochs and checkpoints."""
MOST_CHANGES: Final = 2
"""Of the class of one GPU in a day on which nothing is wrong."""
_ON_GPUS: Final = frozenset(GPU_EFFECTS.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the GPU or its host."""

    name: str  # the class it leads to
    what: str  # in words
    effects: tuple[Any, ...]  # all at once
    promised: int | None = OTHER_SECONDS  # seconds to the class; None where nothing is promised
    ends: bool = True  # whether the class ends with the fault: an Xid counts for ten minutes
    # whether the class takes what was before, so that an exporter that starts then cannot know it
    remembered: bool = False


_WAITS: Final = Load(utilization=0.35, memory_utilization=0.2)
_RESTS: Final = Load(utilization=0.0, memory_utilization=0.0, jitter=0.0, resting_watts=80.0)
_DISK: Final = "nvme0n1"
_MOUNT: Final = "/mnt/datasets"

HEALTHY: Final = Fault("compute", "a job at work", ())
FAULTS: Final = (
    Fault("sick", "falls off the bus", (Lost(),), SICK_SECONDS, ends=False),
    Fault("sick", "Xid 48", (Xid(48),), SICK_SECONDS, ends=False),
    Fault("sick", "needs a reset", (ResetRequired(),), SICK_SECONDS),
    Fault("sick", "the driver's calls hang", (Hang(),), SICK_SECONDS, remembered=True),
    Fault("sick", "the driver asks for a recovery action", (RecoveryAction(1),), SICK_SECONDS),
    Fault("thermal", "hw_thermal, half of the time", (ThermalThrottle("hw", 1900, 0.5),)),
    Fault(
        "thermal",
        "hw_thermal, half of the time, at 75 % busy",
        (ThermalThrottle("hw", 1900, 0.5), Load(utilization=0.75)),
    ),
    Fault("thermal", "sw_thermal, a quarter of the time", (ThermalThrottle("sw", 1900, 0.25),)),
    Fault("power_brake", "half of the time", (PowerBrake(1900, 0.5),)),
    Fault("pcie_link", "half of the lanes", (Link(width=8),)),
    Fault("pcie_link", "generation 1 of 4", (Link(generation=1),)),
    Fault("power_cap", "limit at 180 of 350 W", (PowerLimit(180.0),)),
    Fault("clock_cap", "application clock at 1,500 of 2,520 MHz", (ApplicationClock(1500),)),
    Fault("hung", "no kernel any more, memory held", (_RESTS,), HUNG_SECONDS, remembered=True),
    Fault("memory", "20 MB/s read back from swap", (_WAITS, Swap(in_bytes_per_second=2e7, used_gib=8.0))),
    Fault("memory", "pressure, without swap", (_WAITS, Pressure("memory", 0.3, 0.1))),
    Fault("storage", "a disk busy 97 % of the time", (_WAITS, Disk(_DISK, busy=0.97))),
    Fault("storage", "iowait of 25 %", (_WAITS, Cpu(user=0.1, iowait=0.25))),
    Fault("storage", "NFS takes 110 ms", (_WAITS, Nfs(_MOUNT, reads_per_second=90.0, read_seconds=0.11))),
    Fault(
        "storage",
        "a dead NFS server: no kernel any more",
        (_RESTS, Nfs(_MOUNT, reads_per_second=0.0), Pressure("io", 0.99, 0.4), Cpu(user=0.06, iowait=0.14)),
        remembered=True,
    ),
    Fault("cpu", "the node's CPUs busy 98 % of the time", (_WAITS, Cpu(node=0, user=0.95, system=0.03))),
    Fault("cpu", "one CPU busy all the time", (_WAITS, Cpu(user=0.2, saturated_cpus="3"))),
    Fault("network", "95 % of line rate", (_WAITS, Network("eno1", receive_bytes_per_second=2.97e9))),
    Fault("numa", "a process on the other node", (Load(utilization=0.4), Kill((4100,)), Start((4101,)))),
    Fault(
        "communication",
        "kernels that spin",
        (Load(utilization=1.0, memory_utilization=0.05, intensity=0.15, jitter=0.0),),
    ),
    Fault("unattributed", "busy 40 % of the time, nothing scarce", (Load(utilization=0.4),), None),
    Fault("idle", "the job ends", (Load(utilization=0.0), Kill((4100,))), None),
)


class Settled(NamedTuple):
    """How a GPU came to its class."""

    seconds: float  # until it was in that class for good; infinite if it never was
    detours: tuple[str, ...]  # other classes on the way


@dataclass(frozen=True, slots=True)
class Attribution:
    """How one fault was seen."""

    fault: Fault
    fast_seconds: int
    onset: Settled  # from the fault to its class
    end: Settled | None  # from the end of the fault back to the class before; None where it does not end

    @property
    def promised(self) -> int | None:
        """Seconds within which it has its class."""
        limit = self.fault.promised
        return None if limit is None else limit + (PHASE_SECONDS if self.fast_seconds > 1 else 0)

    @property
    def detours(self) -> tuple[str, ...]:
        """Other classes on the way there and back."""
        return self.onset.detours + (self.end.detours if self.end else ())


class Watch:
    """Runs an exporter, and notes the class of every GPU as it is published.

    Attributes:
        changes: by GPU, the second from which on it had a class, and the class; the first class included.
    """

    def __init__(self, running: Rig) -> None:
        self._running = running
        self.changes: dict[str, list[tuple[float, str]]] = defaultdict(list)

    def run_to(self, seconds: float) -> None:
        """Sample up to a second after the exporter's start."""
        running, interval, seen = self._running, self._running.config.sample_fast_seconds, None
        while running.elapsed < seconds:
            running.sampler.step()
            running.sampler.publish()
            outcome = running.sampler.store.get(judgment.NAME, HOST)
            new, seen = outcome is not seen, outcome
            for sample in outcome.samples if new and outcome else ():
                if sample.spec is GPU_BOTTLENECK:
                    changes, name = self.changes[sample.labels[0]], GPU_BOTTLENECK.states[int(sample.value)]
                    if not changes or changes[-1][1] != name:
                        changes.append((running.elapsed, name))
            running.clock.advance(interval)
            running.elapsed += interval

    def settled(self, gpu: str, name: str, begins: float, ends: float) -> Settled:
        """How a GPU came to a class in a stretch of time that begins with what should lead to it."""
        changes = [(at, to) for at, to in self.changes[gpu] if at < ends]
        if not changes or changes[-1][1] != name:
            return Settled(math.inf, tuple(dict.fromkeys(to for at, to in changes if at > begins)))
        since = changes[-1][0]
        return Settled(max(0.0, since - begins), tuple(dict.fromkeys(to for at, to in changes if begins < at < since)))


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


def attribute(fast_seconds: int, fault: Fault, offset: int) -> Attribution:
    """One fault, at one phase of the tiers."""
    onset_at = WORK_SECONDS + offset
    end_at = onset_at + (fault.promised or UNPROMISED_SECONDS) + LONGER_SECONDS
    over_at = end_at + BACK_SECONDS + LONGER_SECONDS
    with watching(host_with(fault, onset_at, end_at), fast_seconds) as watch:
        watch.run_to(over_at if fault.ends else end_at)
    onset = watch.settled("0", fault.name, onset_at, end_at)
    end = watch.settled("0", HEALTHY.name, end_at, over_at) if fault.ends else None
    return Attribution(fault, fast_seconds, onset, end)


def attribute_worst(fast_seconds: int, fault: Fault) -> Attribution:
    """One fault, with the latest onset and the latest end at any of the phases, and all detours."""
    seen = [attribute(fast_seconds, fault, offset) for offset in OFFSETS]
    ends = [each.end for each in seen if each.end]
    return replace(seen[0], onset=_latest([each.onset for each in seen]), end=_latest(ends) if ends else None)


def _latest(seen: list[Settled]) -> Settled:
    return Settled(
        max(each.seconds for each in seen), tuple(dict.fromkeys(name for each in seen for name in each.detours))
    )


def start_under(fast_seconds: int, fault: Fault) -> float:
    """Seconds until an exporter that starts while the fault is there has its class."""
    with watching(host_with(fault, WORK_SECONDS, None), fast_seconds, 2.0 * WORK_SECONDS) as watch:
        watch.run_to(START_SECONDS + LONGER_SECONDS)
    return watch.settled("0", fault.name, 0.0, math.inf).seconds


def steady_day(name: str, fast_seconds: int, hours: float) -> Mapping[str, int]:
    """Changes of class by GPU, of the first GPUs of a shipped scenario in which nothing is wrong."""
    scenario = load_scenario(name)
    few = replace(
        scenario,
        gpus=scenario.gpus[:DAY_GPUS],
        processes=tuple(process for process in scenario.processes if process.gpu < DAY_GPUS),
        expectations=(),
    )
    with watching(few, fast_seconds) as watch:
        watch.run_to(hours * 3600)
    return {gpu: len(changes) - 1 for gpu, changes in watch.changes.items()}


def row(seen: list[Attribution], starts: list[float]) -> dict[str, str]:
    """The row of one fault, at each fast tier; a figure beyond what is promised is bold."""
    fault = seen[0].fault
    return {
        "class<": fault.name,
        "what happens<": fault.what,
        "promised": "" if fault.promised is None else f"{fault.promised} s",
        **{f"class, {each.fast_seconds} s": _cell(each.onset.seconds, each.promised) for each in seen},
        **{f"back, {each.fast_seconds} s": _cell(each.end and each.end.seconds, BACK_SECONDS) for each in seen},
        **{f"start, {tier} s": _cell(at, START_SECONDS) for tier, at in zip_longest(FAST_SECONDS, starts)},
        "detours<": ", ".join(dict.fromkeys(name for each in seen for name in each.detours)),
    }


def _cell(seconds: float | None, limit: float | None) -> str:
    if seconds is None:
        return ""
    text = "never" if math.isinf(seconds) else f"{seconds:.0f} s"
    return f"**{text}**" if limit is not None and seconds > limit else text


@click.command(help=__doc__)
@click.option("--only", default="", help="Faults and days with this in their name.")
@click.option("--hours", default=24.0, show_default=True, help="Of each day on which nothing is wrong.")
@TO_SCREEN
def main(only: str, hours: float, *, to_screen: bool) -> None:
    faults = [fault for fault in FAULTS if only in f"{fault.name} {fault.what}"]
    remembered = [fault for fault in faults if not fault.remembered]
    # What befalls the simulated host would be an alarm in the log of this program.
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        # The days first: they take longest.
        days = [(name, tier) for tier in FAST_SECONDS for name in DAYS if only in name]
        changed = [pool.submit(steady_day, *day, hours) for day in days]
        starts = [pool.map(partial(start_under, tier), remembered) for tier in FAST_SECONDS]
        seen = [pool.map(partial(attribute_worst, tier), faults) for tier in FAST_SECONDS]
        by_fault = dict(zip(remembered, map(list, zip(*starts, strict=True)), strict=True))
        rows = [row(list(each), by_fault.get(each[0].fault, [])) for each in zip(*seen, strict=True)]
    changes = [
        {"scenario<": f"`{name}`", "hours": f"{hours:g}", "fast interval": f"{tier} s"}
        | {f"changes, GPU {gpu}": str(count) for gpu, count in day.result().items()}
        for (name, tier), day in zip(days, changed, strict=True)
    ]
    lines = [conditions(), "", *table(rows), "", *table(changes)]
    report("attribution", lines, to_screen=to_screen)
