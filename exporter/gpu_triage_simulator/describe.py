"""Describes a scenario as text: the host, its GPUs, the timeline of events, and where in it a running one is."""

import dataclasses
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage_simulator.scenario import Event, Scenario


def describe_scenario(scenario: Scenario) -> str:
    """The scenario as human-readable text of several lines, with empty lines only between sections."""
    return "\n".join(_lines(scenario))


def _lines(scenario: Scenario) -> Iterator[str]:
    yield f"{scenario.name}: {scenario.description}"
    nodes = ", ".join(f"node {number} with CPUs {node.cpus}" for number, node in enumerate(scenario.machine.node))
    yield ""
    yield f"Host: NVIDIA driver {scenario.driver.version}; {nodes}; {len(scenario.processes)} GPU processes"
    if not scenario.exporter_view.host_pids:
        procfs = "the host's /proc" if scenario.exporter_view.host_procfs else "a /proc of its own"
        yield f"Exporter: in a PID namespace of its own, with {procfs}"
    for index, gpu in enumerate(scenario.gpus):
        slot = gpu.slot
        place = f"{slot.bus_id}, NUMA node {slot.node}, slot x{slot.width} Gen{slot.generation}"
        yield f"GPU {index}: {gpu.model.name} at {place}"
    for job in scenario.jobs:
        hosts = len({rank.host for rank in job.ranks})
        yield f"Job: {len(job.ranks)} ranks on {hosts} hosts, a step every {job.step_seconds:g} s"
    yield ""
    yield "Timeline:" if scenario.events or any(job.episodes for job in scenario.jobs) else "No events"
    for first, times in _by_number(scenario.events):
        yield f"  {_when(first, times):<18} {_where(first)}{_what(first.effect)}"
    for episode in (each for job in scenario.jobs for each in job.episodes):
        until = None if math.isinf(episode.until) else int(episode.until)
        when, whose = _when(Event(int(episode.at), until, (), None), []), ranges(map(str, sorted(episode.ranks)))
        yield f"  {when:<18} rank {whose}: {episode.trouble.value} (factor={episode.factor:g})"


def _by_number(events: Iterable[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """The first and all occurrences of each event in the file; those cut short by a new card are listed separately."""
    for _, group in itertools.groupby(events, key=lambda event: (event.number, event.gpus)):
        times = list(group)
        yield times[0], times


def _when(event: Event, times: list[Event]) -> str:
    if len(times) > 1:
        period, length = times[1].at - event.at, (event.until or event.at) - event.at
        span = f"{clock_time(event.at)} to {clock_time(times[-1].until or 0)}"
        return f"{span}, every {clock_time(period)} for {clock_time(length)}"
    if event.until is None:
        return "all the time" if event.at == 0 else f"from {clock_time(event.at)}"
    return f"{clock_time(event.at)} to {clock_time(event.until)}"


def _where(event: Event) -> str:
    return f"GPU {', '.join(map(str, event.gpus))}: " if event.gpus else "host: "


def effect_name(effect: Any) -> str:
    """The name of an effect in words: ``thermal throttle``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(effect).__name__).lower()


def _what(effect: Any) -> str:
    words = effect_name(effect)
    facts = ((f.name, getattr(effect, f.name), f.default) for f in dataclasses.fields(effect))
    said = [f"{name}={value}" for name, value, default in facts if value is not None and value != default]
    return f"{words} ({', '.join(said)})" if said else words


def clock_time(seconds: int) -> str:
    """A scenario time as in its file: ``30m``, ``1m05s``."""
    minutes, rest = divmod(seconds, 60)
    if not minutes and rest:
        return f"{rest}s"
    return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"


def progress_of(scenario: Scenario, seconds: float, pace: int) -> str:
    """Scenario time, how long until the next events in real time, and which these are.

    Args:
        seconds: since the scenario's start, by its own clock.
        pace: how many times faster than the real one that clock runs.
    """
    fast = "" if pace == 1 else f", at {pace} times its pace"
    now = f"{clock_time(int(seconds))} into the scenario{fast}."
    moments = (moment for at, until, *_ in _happenings(scenario) for moment in (at, until) if moment is not None)
    coming = min((moment for moment in moments if seconds < moment < math.inf), default=None)
    if coming is None:
        return f"{now} Nothing more happens in it."
    return f"{now} Next, in {length_of_time((coming - seconds) / pace)}: {'; '.join(_changes(scenario, coming))}."


def _happenings(scenario: Scenario) -> Iterator[tuple[float, float | None, str, str]]:
    """Start, end, place and name of every event, and of what happens to the ranks of jobs."""
    for event in scenario.events:
        where = f"GPU {ranges([str(index) for index in event.gpus])}" if event.gpus else "host"
        yield event.at, event.until, where, effect_name(event.effect)
    for episode in (each for job in scenario.jobs for each in job.episodes):
        yield episode.at, episode.until, f"rank {ranges(map(str, sorted(episode.ranks)))}", episode.trouble.value


def _changes(scenario: Scenario, moment: float) -> Iterator[str]:
    """Yield what begins at this moment, then what ends, together for the same GPUs."""
    begun, ended = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for start, end, where, name in _happenings(scenario):
        for at, found in ((start, begun), (end, ended)):
            if at == moment and name not in found[where]:
                found[where].append(name)
    yield from (f"{where}: {', '.join(names)}" for where, names in begun.items() if names)
    for where, names in ended.items():
        if names:
            yield f"{where}: end of {', '.join(names)}"
