"""The host's rounds: what the host lane runs."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric

from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import AnyHostCollector
from gpu_triage.errors import HostReadFailed
from gpu_triage.hardware.rounds import HostRound
from gpu_triage.machine import Machine
from gpu_triage.sampler.outcomes import HOST, Outcome, checked

HostReader = Callable[[HostRound], Any]


@dataclass(frozen=True, slots=True)
class HostJob:
    """A round of several host collectors.

    Attributes:
        collectors: what to run, with the reader of each.
        machine: the seams.
        mark: to be called before each collector.
        publish: takes each outcome.
    """

    collectors: tuple[tuple[AnyHostCollector, HostReader], ...]
    machine: Machine
    mark: Callable[[], None]
    publish: Callable[[Outcome], None]

    def __call__(self) -> None:
        """Run the round."""
        for collector, reader in self.collectors:
            self.mark()
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
