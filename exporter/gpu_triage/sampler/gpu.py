"""One GPU's rounds: the job its lane runs, and the sampler's record of the GPU."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.errors import DriverUnavailable, GpuUnavailable, HostReadFailed
from gpu_triage.machine import Machine, Moment
from gpu_triage.read.metrics.contract import AnyGpuCollector, GpuLabels
from gpu_triage.read.metrics.rounds import ExpectedLink, GpuRound
from gpu_triage.sampler.lanes import DEADLINE, Lane, Step
from gpu_triage.sampler.outcomes import Outcome, checked
from gpu_triage.sampler.schedule import Schedule

Reader = Callable[[GpuRound], Any]


@dataclass(eq=False, slots=True)
class GpuRecord:
    """A GPU that this process has seen at some point. Only the sampler's thread changes it.

    Attributes:
        key: its UUID, or a substitute if the UUID is unknown.
        labels: its index and UUID as published.
        schedule: when its collectors are due.
        lane: where its rounds run; None while it is missing.
        device: its handle in the current session; None if it is not enumerated.
        error: why it does not respond; None if it does.
        readers: its collectors' readers by name, with their running totals.
        rounds: number of rounds started.
        absent_since: monotonic second at which it was last found missing; None while it is present.
        pci_bus_id: its last known PCI address, in the form sysfs uses; None if unknown.
        first_seen_at: monotonic second of the first driver poll that found it.
        last_seen_at: monotonic second of the latest driver poll that found it.
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
    """Overall result of one GPU's round.

    Attributes:
        key: the GPU.
        device: the handle that was queried; results for a handle of an earlier session are ignored.
        error: why the GPU did not respond; None if it did.
        driver: driver-wide failure that ended the round; None without one.
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
        device: handle to query.
        peers: the other GPUs that respond.
        collectors: what to run, each with its reader.
        machine: procfs, sysfs, clock and so on.
        versions: of the driver.
        deadline_seconds: readings that took longer are dropped, because their age is unknown.
        mark: to be called at the start of each step.
        publish: takes each outcome.
        finish: takes the result.
        recorded_link: what the GPU's PCIe link supports according to the baseline; None without one.
        whole: whether the round has enough queries that a lack of any answer means the GPU does not respond.
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
        """Run the round. Stops early if the GPU or the driver is gone."""
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
            # The GPU is enumerated, but every query fails: this happens when the device cgroup loses access.
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
            # The only broad except in this path: a bug in one collector must not cost the others their samples.
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
    """Each collector with this GPU's reader, which is created on first use."""
    pairs = []
    for collector in collectors:
        if collector.name not in record.readers:
            record.readers[collector.name] = make[collector.name]()
        pairs.append((collector, record.readers[collector.name]))
    return tuple(pairs)
