"""The host's rounds: what its lanes run, and when."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_triage.config import Config
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine
from gpu_triage.sampler.lanes import Lane, LaneMaker, Step
from gpu_triage.sampler.outcomes import HOST, Outcome, checked
from gpu_triage.sampler.schedule import Schedule
from gpu_triage.subjects.contract import AnyHostCollector
from gpu_triage.subjects.metric import Sample
from gpu_triage.subjects.rounds import HostRound

if TYPE_CHECKING:
    from prometheus_client import Metric

HostReader = Callable[[HostRound], Any]


@dataclass(frozen=True, slots=True)
class HostJob:
    """A round of several host collectors.

    Attributes:
        collectors: what to run, with the reader of each.
        machine: the seams.
        mark: to be called with each step.
        publish: takes each outcome.
    """

    collectors: tuple[tuple[AnyHostCollector, HostReader], ...]
    machine: Machine
    mark: Callable[[Step], None]
    publish: Callable[[Outcome], None]

    def __call__(self) -> None:
        """Run the round."""
        for collector, reader in self.collectors:
            self.mark(Step(collector.name))
            self.publish(self._run(collector, reader))

    def _run(self, collector: AnyHostCollector, reader: HostReader) -> Outcome:
        began = self.machine.clock.now()
        host = HostRound(self.machine, began)
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
        return Outcome(
            collector.name,
            HOST,
            samples,
            success,
            tuple(host.failures),
            duration_seconds,
            ended,
            detail,
            foreign,
            reading if success else None,
        )


@dataclass(frozen=True, slots=True)
class _HostLane:
    """A lane of the host's, the collectors that run in it, and when."""

    lane: Lane
    schedule: Schedule
    collectors: tuple[AnyHostCollector, ...]


class HostRounds:
    """Starts the host's rounds: in one lane, but for collectors with one of their own. One thread calls it.

    Attributes:
        lanes: where rounds run.
    """

    def __init__(
        self,
        machine: Machine,
        config: Config,
        make_lane: LaneMaker,
        collectors: Iterable[AnyHostCollector],
        report: Callable[[Outcome], None],
    ) -> None:
        self._machine = machine
        self._report = report
        by_lane: dict[str, list[AnyHostCollector]] = {"host": []}
        for collector in collectors:
            # What others wrote may take long to parse.
            alone = collector.own_lane or collector.foreign is not None
            by_lane.setdefault(collector.name if alone else "host", []).append(collector)
        self._readers = {c.name: c.reader(config) for own in by_lane.values() for c in own}
        self._rounds = tuple(_HostLane(make_lane(name), Schedule(config), tuple(own)) for name, own in by_lane.items())
        self.lanes: tuple[Lane, ...] = tuple(one.lane for one in self._rounds)

    def submit(self, now: float) -> None:
        """Start what is due in each lane that is idle."""
        for one in self._rounds:
            due = one.schedule.due(one.collectors, now) if one.lane.ready() else ()
            if due:
                pairs = tuple((collector, self._readers[collector.name]) for collector in due)
                one.lane.submit(HostJob(pairs, self._machine, one.lane.mark, self._report), in_turn=True)
