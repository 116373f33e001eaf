"""Where a scenario is, and what happens next in it, as a sentence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage_simulator.describe import clock_time, effect_name
from gpu_triage_simulator.scenario import Scenario


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
