"""The baseline at run time: reload it when its file changes, record it on request, compare it with current readings.

The file has its own lane, because it may be on a network file system that hangs, unless it is in the state directory.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from traceback import format_exc

from gpu_triage.documents.files import FileIdentity, identity_of
from gpu_triage.driver.nvml.session import Device
from gpu_triage.errors import BaselineError, DocumentError, StateError
from gpu_triage.log import fields
from gpu_triage.machine import Moment
from gpu_triage.read.baseline.differences import BASELINE, BOARD, SLOT, BaselineReading, compare, match
from gpu_triage.read.baseline.host_facts import Baseline, GpuFacts, HostFacts, read_baseline, timestamp, write_baseline
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.metrics.contract import HOST_LABELS, ExpectedLink, GpuLabels
from gpu_triage.sampler.host_readings import HostReadings
from gpu_triage.sampler.lanes import Lane, Step, overdue
from gpu_triage.sampler.outcomes import HOST, Context
from gpu_triage.sampler.state_directory import StateDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BaselineNews:
    """Result of one attempt to read or write the baseline file."""

    recorded: Baseline | None
    identity: FileIdentity | None = None  # of the file it was read from
    error: DocumentError | StateError | None = None
    missing: bool = False  # whether the baseline still has to be recorded
    duration_seconds: float | None = 0.0  # of the attempt; None before the first


class BaselineWatch:
    """The baseline and the latest comparison."""

    def __init__(
        self, context: Context, lane: Lane, report: Callable[[BaselineNews], None], state: StateDirectory | None
    ) -> None:
        self._config = config = context.config
        learned = None if state is None or not config.baseline_from_host else state.path(BASELINE.name)
        self._path = config.baseline_file or learned
        self.enabled = self._path is not None
        self.learns = config.baseline_from_host  # whether it records the baseline itself
        self.lane = lane  # where files are read and written
        self._clock = context.machine.clock
        self._state = state
        self._report = report
        # The latest; the error of a failed write lasts until one succeeds.
        self._news = BaselineNews(None, duration_seconds=None)
        self._candidate: HostFacts | None = None
        self._candidate_since = self._look_at = self._compare_at = 0.0
        self._reload = False
        self._last_success_at: Moment | None = None
        self._differs: dict[tuple[str, str], bool] = {}

    @property
    def recorded(self) -> Baseline | None:
        return self._news.recorded

    def reload(self) -> None:
        """Request that the next step reread the file even if it has not changed; from any thread or signal handler."""
        self._reload = True

    def submit(self, now: float) -> None:
        if not self.enabled or (now < self._look_at and not self._reload) or not self.lane.ready():
            return
        self._look_at = now + self._config.sample_medium_seconds
        known = replace(self._news, identity=None) if self._reload else self._news
        self._reload = False
        self.lane.submit(partial(self._visit, None, known))

    def _learn(self, facts: HostFacts | None, now: float) -> None:
        """Record the host once it has stayed unchanged for a while: services set limits and links after boot."""
        if facts is None or self._candidate is None or facts != replace(self._candidate, at=facts.at):
            self._candidate, self._candidate_since = facts, now
        if facts is None or now - self._candidate_since < 2 * self._config.sample_slow_seconds or not self.lane.ready():
            return
        self._candidate, self._news = None, replace(self._news, missing=False)
        self.lane.submit(partial(self._visit, facts, self._news))

    def take(self, news: BaselineNews) -> tuple[str, ...]:
        """Apply the result of an attempt; returns the names of the errors to count."""
        error, before = news.error, self._news.error
        if error is not None and (before is None or before.reason != error.reason):
            log.warning("baseline unusable", extra=fields(error=error.reason, cause=str(error)))
        # A file that is still missing must not clear the error of the failed write.
        error = before if news.missing and error is None else error
        if error is None:
            self._last_success_at = self._clock.now()
        if (found := news.recorded) is not self.recorded:
            self._differs.clear()
            self._compare_at = 0.0
            if found is not None:
                log.info("baseline in use", extra=fields(sha256=found.sha256, recorded=timestamp(found.facts.at)))
        self._news = replace(news, error=error)
        return () if news.error is None else (news.error.reason,)

    def compare(self, view: HostReadings, known: Iterable[str], now: Moment) -> None:
        """Record the baseline or compare the host with it, if due; results of silent `known` GPUs are kept."""
        if self._news.missing:
            self._learn(view.facts(now.wall) if view.limitations(well=True) is None else None, now.monotonic)
        if self.recorded is None or now.monotonic < self._compare_at:
            return
        self._compare_at = now.monotonic + self._config.sample_medium_seconds
        facts = view.facts(now.wall)
        kept = {*known}.difference(gpu.uuid for gpu in facts.gpus)
        differs = {place: each for place, each in self._differs.items() if place[0] in kept}
        for each in compare(self.recorded.facts, facts):
            if each.field not in (BOARD, SLOT):
                key = HOST if each.gpu is None or each.gpu.now is None else each.gpu.now.uuid
                differs[key, each.field] = each.was != each.now
        self._differs = differs

    def reading(self, labels_of: Callable[[str], GpuLabels | None]) -> BaselineReading | None:
        if self.recorded is None:
            return None
        mismatches = {
            (*labels, field): differs
            for (key, field), differs in self._differs.items()
            if (labels := HOST_LABELS if key == HOST else labels_of(key)) is not None
        }
        return BaselineReading({(self.recorded.sha256, timestamp(self.recorded.facts.at)): True}, mismatches)

    def health(self, now: float, deadline_seconds: float) -> CollectorHealth:
        stuck, lasted = overdue(self.lane.busy_since, now, deadline_seconds), self._news.duration_seconds
        success = None if lasted is None and not stuck else not stuck and self._news.error is None
        interval_seconds = self._config.sample_medium_seconds
        return CollectorHealth(BASELINE.name, success, lasted, interval_seconds, self._last_success_at)

    def link_of(self, device: Device) -> ExpectedLink | None:
        """What a GPU's PCIe link supports according to the baseline: that of the GPU, else that in its slot."""
        recorded = () if self.recorded is None else self.recorded.facts.gpus
        pairs = match(recorded, [GpuFacts(device.uuid, device.pci_bus_id or "")])
        link = next((pair.recorded.pcie for pair in pairs if pair.now and pair.recorded), None)
        return None if link is None else ExpectedLink(link.generation, link.trained_width or link.width)

    def _visit(self, facts: HostFacts | None, known: BaselineNews) -> None:
        """Write the facts to the file, if any, and read it, unless it is the known one."""
        self.lane.mark(Step(BASELINE.name))
        began, path = self._clock.now().monotonic, self._path
        assert path is not None  # noqa: S101 - as it is enabled
        try:
            if facts is not None:
                if self._state is not None:
                    self._state.lock()
                write_baseline(path, facts)
            # Taken before reading, so that a change during the read is detected at the next check.
            present = identity_of(path)
            same = known.recorded is not None and present is not None and present == known.identity
            news = BaselineNews(known.recorded if same else read_baseline(path), present)
        except Exception as unusable:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            bug = BaselineError(format_exc(), reason="exception")
            error = unusable if isinstance(unusable, DocumentError | StateError) else bug
            absent = self.learns and facts is None and error.reason == "missing"
            news = BaselineNews(None, error=None if absent else error, missing=absent)
        self._report(replace(news, duration_seconds=self._clock.now().monotonic - began))
