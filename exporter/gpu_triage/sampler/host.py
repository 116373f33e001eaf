"""The host's rounds: the jobs its lanes run, and their schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import AnyHostCollector
from gpu_triage.read.metrics.rounds import HostRound, PresentGpus
from gpu_triage.sampler.lanes import BLOCKED, DEADLINE, NO_THREAD, Lane, LaneMaker, Step
from gpu_triage.sampler.outcomes import HOST, Outcome, sampled
from gpu_triage.sampler.schedule import Schedule, next_due


@dataclass(frozen=True, slots=True)
class _HostLane:
    """One of the host's lanes, with its schedule and the collectors that run in it."""

    lane: Lane
    schedule: Schedule
    collectors: tuple[AnyHostCollector, ...]


class HostRounds:
    """Starts the host's rounds in a shared lane, or in a collector's own lane. Only one thread calls it."""

    def __init__(
        self,
        machine: Machine,
        config: Config,
        make_lane: LaneMaker,
        collectors: Iterable[AnyHostCollector],
        report: Callable[[Outcome], None],
    ) -> None:
        self._machine = machine
        self._config = config
        self._report = report
        # Deadline of the round of each collector that is due, by collector name.
        self._ends_by: dict[str, float] = {}
        by_lane: dict[str, list[AnyHostCollector]] = {"host": []}
        for collector in collectors:
            # Metrics from other programs may take long to parse.
            alone = collector.own_lane or collector.foreign is not None
            by_lane.setdefault(collector.name if alone else "host", []).append(collector)
        self.shared = tuple(collector.name for collector in by_lane["host"])  # the collectors in the shared lane
        self._readers = {c.name: c.reader(config) for own in by_lane.values() for c in own}
        self._rounds = tuple(_HostLane(make_lane(name), Schedule(config), tuple(own)) for name, own in by_lane.items())
        self.lanes: tuple[Lane, ...] = tuple(one.lane for one in self._rounds)  # where rounds run

    def submit(self, now: float, gpus: PresentGpus) -> None:
        deadline_seconds = self._config.sample_deadline_seconds
        for one in self._rounds:
            for collector in one.schedule.waiting(one.collectors, now):
                self._ends_by.setdefault(collector.name, now + deadline_seconds)
            due = one.schedule.due(one.collectors, now) if one.lane.ready() else ()
            if due:
                one.lane.submit(partial(self._run, one.lane, due, gpus), queued=True)

    def _run(self, lane: Lane, collectors: tuple[AnyHostCollector, ...], gpus: PresentGpus) -> None:
        """A round of several collectors, in their lane."""
        for collector in collectors:
            lane.mark(Step(collector.name))
            given = HostRound(self._machine, self._machine.clock.now(), gpus=gpus)
            reader, deadline_seconds = self._readers[collector.name], self._config.sample_deadline_seconds
            outcome, _ = sampled(collector, reader, given, deadline_seconds=deadline_seconds)
            self._report(outcome)

    def ended(self, collector: str) -> None:
        self._ends_by.pop(collector, None)

    def late(self, now: Moment) -> Iterator[Outcome]:
        """A failed outcome for each collector with a round past its deadline, repeated at each interval.

        It does not matter which collector holds the lane: a round that ran late or could not start has read nothing.
        """
        for one in self._rounds:
            if one.lane.busy_since is None and one.lane.refused_since is None:
                continue  # a round that has just ended reports its own outcome
            for collector in one.collectors:
                name, ends_by = collector.name, self._ends_by.get(collector.name)
                if ends_by is None or now.monotonic <= ends_by:
                    continue
                self._ends_by[name] = next_due(ends_by, now.monotonic, one.schedule.interval_of(collector))
                error, detail, seconds = _held_up(name, one.lane, now.monotonic)
                yield Outcome(
                    name, HOST, (), now, success=False, errors=(error,), duration_seconds=seconds, detail=detail
                )


def _held_up(collector: str, lane: Lane, now: float) -> tuple[str, str, float]:
    """Why a round is late: its error, the cause for the log, and how long the round has been running in seconds."""
    since, running = lane.busy_since, lane.step.collector
    if since is None:
        return NO_THREAD, "no thread can be started to read it", 0.0
    lasts = f"has not returned for {now - since:.0f} s"
    if running == collector:
        return DEADLINE, f"its read {lasts}", now - since
    return BLOCKED, f"waits for {running}, whose read {lasts}", 0.0
