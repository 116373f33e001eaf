"""One GPU's rounds: what its lane runs, and what the sampler remembers of it."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_triage.errors import DriverUnavailable, GpuUnavailable, HostReadFailed
from gpu_triage.machine import Machine, Moment
from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.nvml.session import Device, DriverVersions
from gpu_triage.sampler.lanes import DEADLINE, Lane, Step
from gpu_triage.sampler.outcomes import Outcome, checked
from gpu_triage.sampler.schedule import Schedule
from gpu_triage.subjects.contract import AnyGpuCollector, GpuLabels
from gpu_triage.subjects.rounds import ExpectedLink, GpuRound

Reader = Callable[[GpuRound], Any]


@dataclass(eq=False, slots=True)
class GpuRecord:
    """A GPU ever seen by this process. Only the sampler's thread changes it.

    Attributes:
        key: its UUID, or a stand-in for one whose identity was never told.
        labels: its index and UUID as published.
        schedule: when its collectors are due.
        lane: where its rounds run; None while it is missing.
        device: its handle in the present session; None when it is not enumerated.
        error: why it does not answer; None when it does.
        readers: its collectors' readers by name, with their running totals.
        rounds: how many rounds were begun.
        absent_since: monotonic second at which it was last found missing.
        pci_bus_id: where it was when last seen, as sysfs writes it; None where nobody said.
        first_seen_at: monotonic second of the first look at the driver that found it.
        last_seen_at: of the last one.
    """

    key: str
    labels: GpuLabels
    schedule: Schedule
    lane: Lane | None = None
    device: Device | None = None
    error: str | None = None
    readers: dict[str, Reader] = field(default_factory=dict)
    rounds: int = 0
    absent_since: float | None = None
    pci_bus_id: str | None = None
    first_seen_at: float = 0.0
    last_seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuRoundResult:
    """How a round of one GPU ended, as a whole.

    Attributes:
        key: the GPU.
        device: the handle that was asked; a result of an earlier session's handle no longer counts.
        error: why it did not answer; None when it did.
        driver: what ended the driver as a whole; None when nothing did.
    """

    key: str
    device: Device
    error: str | None
    driver: DriverUnavailable | None


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A round of several collectors on one GPU, to be run in its lane.

    Attributes:
        key: the GPU.
        labels: as published.
        device: to ask.
        peers: the other GPUs that answer.
        collectors: what to run, with the reader of each.
        machine: the seams.
        versions: of the driver.
        deadline_seconds: an answer that took longer is not published: nobody can say of when it is.
        mark: to be called with each step.
        publish: takes each outcome.
        finish: takes the result.
        recorded_link: what the baseline says that the GPU's link can do; None without one.
        whole: whether it asks so much that no answer at all means that the GPU does not answer.
    """

    key: str
    labels: GpuLabels
    device: Device
    peers: tuple[Device, ...]
    collectors: tuple[tuple[AnyGpuCollector, Reader], ...]
    machine: Machine
    versions: DriverVersions
    deadline_seconds: float
    mark: Callable[[Step], None]
    publish: Callable[[Outcome], None]
    finish: Callable[[GpuRoundResult], None]
    recorded_link: ExpectedLink | None = None
    whole: bool = True

    def __call__(self) -> None:
        """Run the round. Ends early where the GPU or the driver is gone."""
        answered = 0
        failures: Counter[str] = Counter()
        error: str | None = None
        driver: DriverUnavailable | None = None
        for collector, reader in self.collectors:
            inquiry = Inquiry(self.device)
            self.mark(Step(collector.name, self.labels, inquiry.call))
            try:
                self.publish(self._run(collector, reader, inquiry))
            except GpuUnavailable as gone:
                error = gone.reason
            except DriverUnavailable as gone:
                driver = gone
            answered += inquiry.answered
            failures.update(inquiry.failures)
            if error is not None or driver is not None:
                break
        if error is None and not answered and failures and self.whole:
            # It is there, but no question gets an answer: a lost device cgroup looks like this.
            error = failures.most_common(1)[0][0]
        if self.whole or error is not None or driver is not None:
            self.finish(GpuRoundResult(self.key, self.device, error, driver))

    def _run(self, collector: AnyGpuCollector, reader: Reader, inquiry: Inquiry) -> Outcome:
        began = self.machine.clock.now()
        try:
            reading = reader(GpuRound(inquiry, self.versions, self.peers, self.machine, began, self.recorded_link))
            samples = checked(collector.render(reading, self.labels), frozenset(collector.metrics))
        except (GpuUnavailable, DriverUnavailable) as gone:
            self.publish(self._failed(collector, began, (*inquiry.failures, gone.reason)))
            raise
        except HostReadFailed as failed:
            return self._failed(collector, began, (*inquiry.failures, failed.reason), str(failed))
        except Exception:  # noqa: BLE001 - see below
            # The one broad except of the path: a bug in one collector must not cost the others their samples.
            return self._failed(collector, began, (*inquiry.failures, "exception"), traceback.format_exc())
        ended = self.machine.clock.now()
        if ended.monotonic - began.monotonic > self.deadline_seconds:
            return self._failed(collector, began, (*inquiry.failures, DEADLINE))
        success = bool(inquiry.answered) or not inquiry.failures
        duration_seconds = ended.monotonic - began.monotonic
        errors = tuple(inquiry.failures)
        return Outcome(collector.name, self.key, samples, success, errors, duration_seconds, ended, reading=reading)

    def _failed(self, collector: AnyGpuCollector, began: Moment, errors: tuple[str, ...], detail: str = "") -> Outcome:
        ended = self.machine.clock.now()
        duration_seconds = ended.monotonic - began.monotonic
        return Outcome(collector.name, self.key, (), False, errors, duration_seconds, ended, detail)  # noqa: FBT003


def readers_of(
    record: GpuRecord, collectors: tuple[AnyGpuCollector, ...], make: Mapping[str, Callable[[], Reader]]
) -> tuple[tuple[AnyGpuCollector, Reader], ...]:
    """Each collector with this GPU's reader for it, made the first time it is asked for."""
    pairs = []
    for collector in collectors:
        if collector.name not in record.readers:
            record.readers[collector.name] = make[collector.name]()
        pairs.append((collector, record.readers[collector.name]))
    return tuple(pairs)
