"""One GPU's rounds: the job its lane runs, and the sampler's record of the GPU."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
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
    """A GPU that this process has seen at some point. Only the sampler's thread changes it."""

    key: str  # its UUID, or a substitute if the UUID is unknown
    labels: GpuLabels  # its index and UUID as published
    schedule: Schedule  # when its collectors are due
    lane: Lane | None = None  # where its rounds run; None while it is missing
    device: Device | None = None  # its handle in the current session; None if it is not enumerated
    error: str | None = None  # why it does not respond; None if it does
    readers: dict[str, Reader] = field(default_factory=dict)  # its collectors' readers by name, with running totals
    rounds: int = 0  # number of rounds started
    absent_since: float | None = None  # monotonic second at which it was last found missing; None while it is present
    pci_bus_id: str | None = None  # its last known PCI address, in the form sysfs uses; None if unknown
    first_seen_at: float = 0.0  # monotonic second of the first driver poll that found it
    last_seen_at: float = 0.0  # monotonic second of the latest driver poll that found it


@dataclass(frozen=True, slots=True)
class GpuRoundResult:
    """Overall result of one GPU's round."""

    key: str  # the GPU
    device: Device  # the handle that was queried; results for a handle of an earlier session are ignored
    error: str | None  # why the GPU did not respond; None if it did
    driver: DriverUnavailable | None  # driver-wide failure that ended the round; None without one


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A round of several collectors on one GPU, to be run in its lane."""

    key: str  # the GPU
    labels: GpuLabels  # as published
    device: Device  # handle to query
    peers: tuple[Device, ...]  # the other GPUs that respond
    collectors: tuple[tuple[AnyGpuCollector, Reader], ...]  # what to run, each with its reader
    machine: Machine  # procfs, sysfs, clock and so on
    versions: DriverVersions  # of the driver
    deadline_seconds: float  # readings that took longer are dropped, because their age is unknown
    mark: Callable[[Step], None]  # to be called at the start of each step
    report: Callable[[Outcome | GpuRoundResult], None]  # takes each outcome, then the result
    recorded_link: ExpectedLink | None = None  # what its PCIe link supports according to the baseline; None without one
    whole: bool = True  # whether the round has enough queries that a lack of any answer means the GPU does not respond

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
                self.report(self._run(collector, reader, inquiry))
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
            self.report(GpuRoundResult(self.key, self.device, error, driver))

    def _run(self, collector: AnyGpuCollector, reader: Reader, inquiry: Inquiry) -> Outcome:
        began = self.machine.clock.now()
        try:
            reading = reader(GpuRound(inquiry, self.versions, self.peers, self.machine, began, self.recorded_link))
            samples = checked(collector.render(reading, self.labels), frozenset(collector.metrics))
        except (GpuUnavailable, DriverUnavailable) as gone:
            self.report(self._failed(collector, began, (*inquiry.failures, gone.reason)))
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
