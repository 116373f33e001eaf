"""The sampler's own state: health of the collectors, GPU presence, readiness."""

import logging
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu_triage import __revision__, __version__
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.baseline.host_facts import Baseline
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.gpu.identity import IDENTITY
from gpu_triage.read.gpu.presence import GpuPresence, PresenceReading
from gpu_triage.read.metrics.contract import AnyGpuCollector, AnyHostCollector
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.sampler.driver import STALLED, DriverWatch
from gpu_triage.sampler.host_gpus import GpuRecord, HostGpus
from gpu_triage.sampler.lanes import overdue
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore
from gpu_triage.sampler.schedule import interval_seconds

log = logging.getLogger(__name__)

_MOST_ERROR_SERIES: Final = 500
_OTHER: Final = "other"
_HOST_ALONE: Final = frozenset({HOST})
_NAME_LABEL: Final = 2
"""Position of `name` among the labels of gpu_info."""


class Status:
    """Counts rounds and errors. Only the sampler's thread calls its methods."""

    def __init__(
        self,
        config: Config,
        gpu_collectors: tuple[AnyGpuCollector, ...],
        host_collectors: tuple[AnyHostCollector, ...],
        constants: tuple[Sample, ...],
    ) -> None:
        self.scrapes = 0  # number served so far; set by the web server
        self.web_config: exporter_health.WebConfigHealth | None = None  # set by the web server; None without a file
        self.judge_settings: exporter_health.JudgeSettingsHealth | None = None  # None without a file
        self._config = config
        self._constants = constants
        self._gpu_collectors = gpu_collectors
        self._host_collectors = host_collectors
        self._errors: Counter[tuple[str, str]] = Counter()
        self._last_rounds: dict[str, dict[str, Outcome]] = {}
        self._last_success_at: dict[str, Moment] = {}
        # Cached health by collector, with the subjects it covers; valid until one of the collector's rounds ends.
        self._healths: dict[str, tuple[frozenset[str], exporter_health.CollectorHealth]] = {}

    def note(self, outcome: Outcome) -> None:
        """Count an outcome, and log changes between success and failure."""
        self.count(outcome.collector, outcome.errors)
        self._healths.pop(outcome.collector, None)
        rounds = self._last_rounds.setdefault(outcome.collector, {})
        before = rounds.get(outcome.subject)
        rounds[outcome.subject] = outcome
        if outcome.success:
            self._last_success_at[outcome.collector] = outcome.finished_at
        if outcome.success != (before is None or before.success):
            self._log_turn(outcome)

    def count(self, collector: str, errors: tuple[str, ...]) -> None:
        for error in errors:
            series = (collector, error)
            if series not in self._errors and len(self._errors) >= _MOST_ERROR_SERIES:
                series = (collector, _OTHER)
            self._errors[series] += 1

    def forget(self, subject: str) -> None:
        self._healths.clear()
        for rounds in self._last_rounds.values():
            rounds.pop(subject, None)

    def noted(self, subject: str) -> bool:
        """Whether any collector has finished a round of this subject."""
        return any(subject in rounds for rounds in self._last_rounds.values())

    def host_noted(self, collectors: Iterable[str]) -> bool:
        """Whether each of these host collectors has finished a round, or is known to hang."""
        return all(HOST in self._last_rounds.get(name, ()) for name in collectors)

    def presence(
        self,
        host_gpus: HostGpus,
        driver: DriverWatch,
        store: OutcomeStore,
        now: float,
        *,
        stalled: bool,
        recorded: Baseline | None,
        most_since_boot: int | None,
    ) -> PresenceReading:
        """GPUs and driver; if `stalled`, its last answers are outdated. `recorded` is expected if nothing is set."""
        count, p2p = self._config.expect_gpu_count, self._config.expect_p2p
        error = driver.error.reason if driver.error else None
        if stalled:
            error = STALLED
        return PresenceReading(
            gpus=tuple(
                GpuPresence(r.labels, self._name_of(store, r.key), self._is_up(r, now), r.error) for r in host_gpus
            ),
            driver_up=error is None if driver.looked or error else None,
            driver_error=error,
            versions=driver.versions,
            nvml_count=None if stalled else driver.count,
            pci_count=driver.due_on_bus,
            expected_count=recorded.facts.gpu_count if count is None and recorded else count,
            expected_p2p=recorded.p2p if p2p is None and recorded else p2p,
            most_since_boot=most_since_boot,
        )

    def exporter(
        self,
        host_gpus: HostGpus,
        driver: DriverWatch,
        *,
        calls: tuple[exporter_health.CallInFlight, ...],
        hanging: frozenset[str],
        pushed: tuple[exporter_health.CollectorHealth, ...],
        own: tuple[exporter_health.CollectorHealth, ...],
        state_in_use: bool | None,
        state_saved: bool | None,
        published_at: Moment,
    ) -> exporter_health.ExporterReading:
        """This process; `pushed` collectors exist only with GPUs, `own` always; `hanging` ones are past deadline."""
        listed = [self._health(collector) for collector in self._host_collectors]
        listed += own
        if (len(host_gpus) or driver.due_on_bus) and not driver.released:
            # Without an NVIDIA device, or while the GPUs are released on request, GPU collectors cannot fail.
            # A collector has failed if one of its calls hangs, even if other reads succeeded.
            listed += [
                replace(health, success=False) if health.name in hanging else health
                for health in self._of_gpus(host_gpus)
            ]
            listed += pushed
        return exporter_health.ExporterReading(
            version=__version__,
            revision=__revision__,
            python_version=platform.python_version(),
            constants=self._constants,
            collectors=tuple(listed),
            errors=dict(sorted(self._errors.items())),
            scrapes=self.scrapes,
            gpus_released=driver.released,
            web_config=self.web_config,
            judge_settings=self.judge_settings,
            state_in_use=state_in_use,
            state_saved=state_saved,
            published_at=published_at,
            calls=calls,
        )

    def _health(
        self, collector: AnyGpuCollector | AnyHostCollector, subjects: frozenset[str] = _HOST_ALONE
    ) -> exporter_health.CollectorHealth:
        known = self._healths.get(collector.name)
        if known is not None and known[0] == subjects:
            return known[1]
        rounds = [last for subject, last in self._last_rounds.get(collector.name, {}).items() if subject in subjects]
        health = exporter_health.CollectorHealth(
            name=collector.name,
            interval_seconds=interval_seconds(self._config, collector.tier),
            success=any(last.success for last in rounds) if rounds else None,
            duration_seconds=max((last.duration_seconds for last in rounds), default=None),
            last_success_at=self._last_success_at.get(collector.name),
        )
        self._healths[collector.name] = subjects, health
        return health

    def _of_gpus(self, host_gpus: HostGpus) -> list[exporter_health.CollectorHealth]:
        # The last reading of a missing GPU does not count as health of the collector.
        answering = frozenset(record.key for record in host_gpus if record.error is None)
        if answering:
            return [self._health(collector, answering) for collector in self._gpu_collectors]
        # If no GPU responds, no GPU collector works.
        known = frozenset(record.key for record in host_gpus)
        return [replace(self._health(collector, known), success=False) for collector in self._gpu_collectors]

    def _is_up(self, record: GpuRecord, now: float) -> bool | None:
        """Whether a GPU responds; None if unknown because its lane has lacked a thread for too long."""
        if record.error is not None:
            return False
        lane, deadline = record.lane, self._config.sample_deadline_seconds
        return None if lane is not None and overdue(lane.refused_since, now, deadline) else True

    def _name_of(self, store: OutcomeStore, key: str) -> str:
        identity = store.get(IDENTITY.name, key)
        return identity.samples[0].labels[_NAME_LABEL] if identity and identity.samples else ""

    def _log_turn(self, outcome: Outcome) -> None:
        named = {
            "collector": outcome.collector,
            "gpu": outcome.subject,
            "errors": ",".join(sorted(set(outcome.errors))),
            "cause": "" if outcome.success else outcome.detail,
        }
        fields = {name: text for name, text in named.items() if text}
        if outcome.success:
            log.info("collector works again", extra={"fields": fields})
        else:
            log.warning("collector failed", extra={"fields": fields})
