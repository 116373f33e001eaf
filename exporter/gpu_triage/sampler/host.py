"""The host's rounds: the jobs its lanes run, and their schedule."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import AnyHostCollector
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.metrics.rounds import HostRound, PresentGpus
from gpu_triage.sampler.lanes import BLOCKED, DEADLINE, NO_THREAD, Lane, LaneMaker, Step
from gpu_triage.sampler.outcomes import HOST, Outcome, checked
from gpu_triage.sampler.schedule import Schedule, next_due

if TYPE_CHECKING:
    from prometheus_client import Metric

HostReader = Callable[[HostRound], Any]


@dataclass(frozen=True, slots=True)
class HostJob:
    """A round of several host collectors."""

    collectors: tuple[tuple[AnyHostCollector, HostReader], ...]  # what to run, each with its reader
    machine: Machine  # procfs, sysfs, clock and so on
    mark: Callable[[Step], None]  # to be called at the start of each step
    publish: Callable[[Outcome], None]  # takes each outcome
    deadline_seconds: float  # readings that took longer are dropped, because their age is unknown
    gpus: PresentGpus

    def __call__(self) -> None:
        """Run the round."""
        for collector, reader in self.collectors:
            self.mark(Step(collector.name))
            self.publish(self._run(collector, reader))

    def _run(self, collector: AnyHostCollector, reader: HostReader) -> Outcome:
        began = self.machine.clock.now()
        host = HostRound(self.machine, began, gpus=self.gpus)
        samples: tuple[Sample, ...] = ()
        foreign: tuple[Metric, ...] = ()
        reading: object | None = None
        success, detail = True, ""
        try:
            reading = reader(host)
            samples = checked(collector.render(reading), frozenset(collector.metrics))
            foreign = collector.foreign(reading) if collector.foreign is not None else ()
        except HostReadFailed as failed:
            success, detail = False, str(failed)
            host.failures.append(failed.reason)
        except Exception:  # noqa: BLE001 - see below
            # As for GPUs: a bug in one collector must not cost the others their samples.
            success, detail = False, traceback.format_exc()
            host.failures.append("exception")
        ended = self.machine.clock.now()
        duration_seconds = ended.monotonic - began.monotonic
        if success and duration_seconds > self.deadline_seconds:
            success, detail = False, f"its read took {duration_seconds:.1f} s"
            host.failures.append(DEADLINE)
        return Outcome(
            collector.name,
            HOST,
            samples if success else (),
            success,
            tuple(host.failures),
            duration_seconds,
            ended,
            detail,
            foreign if success else (),
            reading if success else None,
        )


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
                pairs = tuple((collector, self._readers[collector.name]) for collector in due)
                job = HostJob(pairs, self._machine, one.lane.mark, self._report, deadline_seconds, gpus)
                one.lane.submit(job, queued=True)

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
                ends_by = self._ends_by.get(collector.name)
                if ends_by is None or now.monotonic <= ends_by:
                    continue
                self._ends_by[collector.name] = next_due(ends_by, now.monotonic, one.schedule.interval_of(collector))
                error, detail, seconds = _held_up(collector.name, one.lane, now.monotonic)
                yield Outcome(collector.name, HOST, (), False, (error,), seconds, now, detail)  # noqa: FBT003


def _held_up(collector: str, lane: Lane, now: float) -> tuple[str, str, float]:
    """Why a round is late: its error, the cause for the log, and how long the round has been running in seconds."""
    since, running = lane.busy_since, lane.step.collector
    if since is None:
        return NO_THREAD, "no thread can be started to read it", 0.0
    lasts = f"has not returned for {now - since:.0f} s"
    if running == collector:
        return DEADLINE, f"its read {lasts}", now - since
    return BLOCKED, f"waits for {running}, whose read {lasts}", 0.0
