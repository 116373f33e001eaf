"""What the sampler knows of itself: how collectors fare, who is there, whether it is ready."""

from __future__ import annotations

import logging
import platform
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage import __revision__, __version__
from gpu_triage.collectors.contract import AnyGpuCollector, AnyHostCollector
from gpu_triage.collectors.exporter import CollectorHealth, ExporterReading, WebConfigHealth
from gpu_triage.collectors.identity import IDENTITY
from gpu_triage.collectors.presence import GpuPresence, PresenceReading
from gpu_triage.config import Config
from gpu_triage.machine import Machine
from gpu_triage.sampler.baseline import Expected
from gpu_triage.sampler.driver import DriverWatch
from gpu_triage.sampler.fleet import STALLED, Fleet
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore
from gpu_triage.sampler.schedule import interval_seconds

log = logging.getLogger(__name__)

_MOST_ERROR_SERIES: Final = 500
_OTHER: Final = "other"
_NAME_LABEL: Final = 2
"""Position of `name` among the labels of gpu_info."""


@dataclass(slots=True)
class _Fate:
    """The last round of one collector for one subject."""

    success: bool
    duration_seconds: float


class Status:
    """Keeps count of rounds and errors. Only the sampler's thread calls it, but for `scrapes` and `web_config`.

    Attributes:
        scrapes: answered so far; the web server counts.
        web_config: how its configuration file was loaded; the web server says. None where there is none.
    """

    def __init__(
        self,
        machine: Machine,
        config: Config,
        gpu_collectors: tuple[AnyGpuCollector, ...],
        host_collectors: tuple[AnyHostCollector, ...],
    ) -> None:
        self.scrapes = 0
        self.web_config: WebConfigHealth | None = None
        self._machine = machine
        self._config = config
        self._gpu_collectors = gpu_collectors
        self._host_collectors = host_collectors
        self._errors: Counter[tuple[str, str]] = Counter()
        self._fates: dict[str, dict[str, _Fate]] = {}
        self._last_success_at: dict[str, float] = {}

    def note(self, outcome: Outcome) -> None:
        """Count an outcome, and log it where it turns from success to failure or back."""
        self.count(outcome.collector, outcome.errors)
        fates = self._fates.setdefault(outcome.collector, {})
        before = fates.get(outcome.subject)
        fates[outcome.subject] = _Fate(outcome.success, outcome.duration_seconds)
        if outcome.success:
            self._last_success_at[outcome.collector] = outcome.finished_at.wall
        if outcome.success != (before is None or before.success):
            self._log_turn(outcome)

    def count(self, collector: str, errors: tuple[str, ...]) -> None:
        """Count a collector's errors by name."""
        for error in errors:
            series = (collector, error)
            if series not in self._errors and len(self._errors) >= _MOST_ERROR_SERIES:
                series = (collector, _OTHER)
            self._errors[series] += 1

    def forget(self, subject: str) -> None:
        """Forget how rounds of a GPU went that is remembered no longer."""
        for fates in self._fates.values():
            fates.pop(subject, None)

    def noted(self, subject: str) -> bool:
        """Whether any collector has finished a round of this subject."""
        return any(subject in fates for fates in self._fates.values())

    def presence(
        self,
        fleet: Fleet,
        driver: DriverWatch,
        store: OutcomeStore,
        now: float,
        *,
        recorded: Expected,
        most_since_boot: int | None,
    ) -> PresenceReading:
        """Who is there, as the presence collector renders it; what is not declared is expected as `recorded`."""
        count, p2p = self._config.expect_gpu_count, self._config.expect_p2p
        error = driver.error.reason if driver.error else None
        if self._driver_stalled(fleet, driver, now):
            error = STALLED
        return PresenceReading(
            gpus=tuple(GpuPresence(r.labels, self._name_of(store, r.key), r.error) for r in fleet),
            driver_error=error,
            driver_known=driver.looked or error is not None,
            versions=driver.versions,
            nvml_count=driver.inventory.count if driver.inventory else None,
            pci_count=driver.due_on_bus,
            expected_count=recorded.gpu_count if count is None else count,
            expected_p2p=recorded.p2p if p2p is None else p2p,
            most_since_boot=most_since_boot,
        )

    def exporter(
        self,
        fleet: Fleet,
        driver: DriverWatch,
        hanging: frozenset[str] = frozenset(),
        pushed: tuple[CollectorHealth, ...] = (),
        own: tuple[CollectorHealth, ...] = (),
    ) -> ExporterReading:
        """This process, as the exporter collector renders it.

        Args:
            fleet: the GPUs.
            driver: the driver.
            hanging: collectors of the host that do not come back.
            pushed: of collectors that are not polled, and that there are only with GPUs.
            own: of those that there always are.
        """
        listed = [*(self._host_health(c, hanging) for c in self._host_collectors), *own]
        if (len(fleet) or driver.due_on_bus) and not driver.released:
            # Without an NVIDIA device, or with none in hand on purpose, there is nothing for the others to fail at.
            listed += [self._gpu_health(c, fleet) for c in self._gpu_collectors]
            listed += pushed
        return ExporterReading(
            version=__version__,
            revision=__revision__,
            python_version=platform.python_version(),
            simulated=self._machine.simulated,
            collectors=tuple(listed),
            errors=dict(self._errors),
            scrapes=self.scrapes,
            gpus_released=driver.released,
            web_config=self.web_config,
        )

    def _health(
        self, collector: AnyGpuCollector | AnyHostCollector, subjects: Collection[str] = (HOST,)
    ) -> CollectorHealth:
        fates = [fate for subject, fate in self._fates.get(collector.name, {}).items() if subject in subjects]
        return CollectorHealth(
            name=collector.name,
            interval_seconds=interval_seconds(self._config, collector.tier),
            success=any(fate.success for fate in fates) if fates else None,
            duration_seconds=max((fate.duration_seconds for fate in fates), default=None),
            last_success_at=self._last_success_at.get(collector.name),
        )

    def _host_health(self, collector: AnyHostCollector, hanging: frozenset[str]) -> CollectorHealth:
        health = self._health(collector)
        if health.success is None and collector.name in hanging:
            # One that has worked tells by the age of its last success; this one would tell nothing.
            return replace(health, success=False)
        return health

    def _gpu_health(self, collector: AnyGpuCollector, fleet: Fleet) -> CollectorHealth:
        # What one that is gone answered last says nothing of now.
        answering = {record.key for record in fleet if record.error is None}
        if answering:
            return self._health(collector, answering)
        # With no GPU that answers, what worked last no longer does.
        return replace(self._health(collector, {record.key for record in fleet}), success=False)

    def _driver_stalled(self, fleet: Fleet, driver: DriverWatch, now: float) -> bool:
        """Whether NVML as a whole hangs: its lane is stuck, and no GPU answers past it."""
        since = driver.lane.busy_since
        stuck = since is not None and now - since > self._config.sample_deadline_seconds
        return stuck and all(record.error is not None for record in fleet)

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
