"""The baseline at run time: reload it when its file changes, record it on request, compare it with current readings.

The file has its own lane, because it may be on a network file system that hangs, unless it is in the state directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from traceback import format_exc
from typing import Final

from gpu_triage.documents import FileIdentity, identity_of
from gpu_triage.driver.nvml.session import Device
from gpu_triage.errors import ReasonedError
from gpu_triage.log import fields
from gpu_triage.machine import Clock, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.baseline import differences as baseline
from gpu_triage.read.baseline.differences import BOARD, SLOT, BaselineReading, compare
from gpu_triage.read.baseline.host_facts import (
    Baseline,
    HostFacts,
    baseline_in,
    encode,
    read_baseline,
    timestamp,
    write_baseline,
)
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.metrics.contract import HOST_LABELS, GpuLabels
from gpu_triage.read.metrics.rounds import ExpectedLink
from gpu_triage.sampler.host_readings import HostReadings
from gpu_triage.sampler.lanes import Lane, Step, overdue
from gpu_triage.sampler.state_directory import BASELINE, StateDirectory

log = logging.getLogger(__name__)

_HOST_KEY: Final = ""


@dataclass(frozen=True, slots=True)
class BaselineNews:
    """Result of one attempt to read or write the baseline file."""

    recorded: Baseline | None  # the baseline; None if there is no usable one
    identity: FileIdentity | None = None  # of the file it was read from
    error: ReasonedError | None = None  # what went wrong; None on success
    missing: bool = False  # whether the baseline still has to be recorded
    duration_seconds: float = 0.0  # of the attempt


class BaselineWatch:
    """Holds the baseline and the latest comparison. Only the sampler's thread calls it; file I/O runs in its lane.

    Unless it is `enabled`, every call is a no-op.
    """

    def __init__(
        self,
        clock: Clock,
        config: Config,
        lane: Lane,
        report: Callable[[BaselineNews], None],
        state: StateDirectory | None,
    ) -> None:
        self.enabled = config.baseline_file is not None or config.baseline_from_host
        self.lane = lane  # where files are read and written
        self.recorded: Baseline | None = None  # the baseline in use, or None
        self._clock = clock
        self._interval_seconds = config.sample_medium_seconds
        self._settled_seconds = 2 * config.sample_slow_seconds
        self.learns = config.baseline_from_host  # whether it records the baseline itself
        self._wants_facts = False
        self._candidate: HostFacts | None = None
        self._candidate_since = 0.0
        # Only a recorded baseline is written. Without a state directory, it stays in memory.
        self._state = state
        self._path = config.baseline_file or (None if state is None else state.path(BASELINE))
        self._report = report
        self._look_at = 0.0
        self._compare_at = 0.0
        self._reload = False
        self._links: Mapping[str, ExpectedLink] = {}
        self._identity: FileIdentity | None = None
        self._error: ReasonedError | None = None
        self._duration_seconds: float | None = None
        self._last_success_at: Moment | None = None
        self._differs: dict[tuple[str, str], bool] = {}

    def reload(self) -> None:
        """Request that the next step reread the file even if it has not changed; from any thread or signal handler."""
        self._reload = True

    def submit(self, now: float) -> None:
        """Start checking the file if a check is due."""
        if not self.enabled or (now < self._look_at and not self._reload) or not self.lane.ready():
            return
        self._look_at = now + self._interval_seconds
        identity = None if self._reload else self._identity
        self._reload = False
        path, known = self._path, self.recorded
        if path is None:
            self._report(BaselineNews(known, missing=known is None))
        else:
            self.lane.submit(partial(self._visit, path, None, identity, known))

    def _learn(self, facts: HostFacts | None, now: float) -> None:
        """Record the host once it has stayed unchanged for a while: services set limits and bring up links after boot.

        `facts` is None while readings are incomplete or the host is unhealthy.
        """
        same = facts is not None and self._candidate is not None and facts == replace(self._candidate, at=facts.at)
        if not same:
            self._candidate, self._candidate_since = facts, now
        if facts is None or now - self._candidate_since < self._settled_seconds or not self.lane.ready():
            return
        self._candidate, self._wants_facts = None, False
        if (path := self._path) is None:
            self._report(BaselineNews(baseline_in(encode(facts).encode(), "the baseline")))
        else:
            self.lane.submit(partial(self._visit, path, facts, None, None))

    def take(self, news: BaselineNews) -> tuple[str, ...]:
        """Apply the result of an attempt; returns the names of the errors to count."""
        self._duration_seconds = news.duration_seconds
        self._wants_facts = news.missing
        self._log_turn(news)
        if not (news.missing and news.error is None):
            # A file that is still missing must not clear the error of the failed write.
            self._error = news.error
        if self._error is None:
            self._last_success_at = self._clock.now()
        if news.recorded is not self.recorded:
            self.recorded, self._links = news.recorded, _links(news.recorded)
            self._differs.clear()
            self._compare_at = 0.0
        self._identity = news.identity
        return () if news.error is None else (news.error.reason,)

    def compare(self, view: HostReadings, known: Iterable[str], now: Moment) -> None:
        """Record the baseline or compare the host with it, if either is due.

        `known` are the keys of all GPUs ever seen; results for those that do not respond are kept.
        """
        if self._wants_facts:
            whole = view.limitations(well=True) is None
            self._learn(view.facts(now.wall) if whole else None, now.monotonic)
        if self.recorded is None or now.monotonic < self._compare_at:
            return
        self._compare_at = now.monotonic + self._interval_seconds
        facts = view.facts(now.wall)
        kept = {*known}.difference(gpu.uuid for gpu in facts.gpus)
        differs = {place: each for place, each in self._differs.items() if place[0] in kept}
        for each in compare(self.recorded.facts, facts):
            if each.field not in (BOARD, SLOT):
                key = _HOST_KEY if each.gpu is None or each.gpu.now is None else each.gpu.now.uuid
                differs[key, each.field] = each.differs
        self._differs = differs

    def reading(self, labels_of: Callable[[str], GpuLabels | None]) -> BaselineReading | None:
        """The baseline and its mismatches, under the GPUs' current labels; None without a baseline."""
        if self.recorded is None:
            return None
        mismatches = {
            (*labels, field): differs
            for (key, field), differs in self._differs.items()
            if (labels := HOST_LABELS if key == _HOST_KEY else labels_of(key)) is not None
        }
        return BaselineReading({(self.recorded.sha256, timestamp(self.recorded.facts.at)): True}, mismatches)

    def health(self, now: float, deadline_seconds: float) -> CollectorHealth:
        stuck = overdue(self.lane.busy_since, now, deadline_seconds)
        return CollectorHealth(
            name=baseline.NAME,
            interval_seconds=self._interval_seconds,
            success=None if self._duration_seconds is None and not stuck else not stuck and self._error is None,
            duration_seconds=self._duration_seconds,
            last_success_at=self._last_success_at,
        )

    def link_of(self, device: Device) -> ExpectedLink | None:
        """What a GPU's PCIe link supports according to the baseline: the entry of the GPU, else that of its slot."""
        return self._links.get(device.uuid) or self._links.get(device.pci_bus_id or device.uuid)

    def _visit(
        self, path: Path, facts: HostFacts | None, identity: FileIdentity | None, known: Baseline | None
    ) -> None:
        """Write the facts to the file, if any, and read it, unless it is the one of this identity."""
        self.lane.mark(Step(baseline.NAME))
        began = self._clock.now().monotonic
        unwritten = facts
        try:
            if facts is not None:
                if self._state is not None:
                    self._state.lock()
                write_baseline(path, facts)
                unwritten = None
            # Taken before reading, so that a change during the read is detected at the next check.
            present = identity_of(path)
            same = known is not None and present is not None and present == identity
            news = BaselineNews(known if same else read_baseline(path), present)
        except Exception as unusable:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            error = unusable if isinstance(unusable, ReasonedError) else ReasonedError("exception", format_exc())
            absent = self.learns and unwritten is None and error.reason == "missing"
            news = BaselineNews(None, None, None if absent else error, absent or unwritten is not None)
        self._report(replace(news, duration_seconds=self._clock.now().monotonic - began))

    def _log_turn(self, news: BaselineNews) -> None:
        error, before = news.error, self._error
        if error is not None and (before is None or before.reason != error.reason):
            log.warning("baseline unusable", extra=fields(error=error.reason, cause=error.detail))
        elif (found := news.recorded) is not None and found is not self.recorded:
            log.info("baseline in use", extra=fields(sha256=found.sha256, recorded=timestamp(found.facts.at)))


def _links(recorded: Baseline | None) -> Mapping[str, ExpectedLink]:
    """What each PCIe link supports, by the GPU's UUID and by its slot."""
    links = {}
    for gpu in recorded.facts.gpus if recorded is not None else ():
        if gpu.pcie is not None:
            expected = ExpectedLink(gpu.pcie.generation, gpu.pcie.trained_width or gpu.pcie.width)
            links[gpu.uuid] = links[gpu.pci_bus_id or gpu.uuid] = expected
    return links
