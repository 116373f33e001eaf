"""The sampler's own state: health of the collectors, from their rounds and errors."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu_triage.log import fields
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.metrics.contract import AnyGpuCollector, AnyHostCollector
from gpu_triage.sampler.host_gpus import HostGpus
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.sampler.schedule import interval_seconds

log = logging.getLogger(__name__)

_MOST_ERROR_SERIES: Final = 500
_OTHER: Final = "other"
_HOST_ALONE: Final = frozenset({HOST})


class Status:
    """Counts rounds and errors. Only the sampler's thread calls its methods."""

    def __init__(self, config: Config) -> None:
        self.scrapes = 0  # number served so far; set by the web server
        self.web_config: exporter_health.WebConfigHealth | None = None  # set by the web server; None without a file
        self.judge_settings: exporter_health.JudgeSettingsHealth | None = None  # None without a file
        self.errors: Counter[tuple[str, str]] = Counter()  # by collector and error
        self._config = config
        self._last_rounds: dict[str, dict[str, Outcome]] = {}
        self._last_success_at: dict[str, Moment] = {}

    def note(self, outcome: Outcome) -> None:
        """Count an outcome, and log changes between success and failure."""
        self.count(outcome.collector, outcome.errors)
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
            if series not in self.errors and len(self.errors) >= _MOST_ERROR_SERIES:
                series = (collector, _OTHER)
            self.errors[series] += 1

    def keep(self, subjects: frozenset[str]) -> None:
        """Forget the rounds of all others."""
        for rounds in self._last_rounds.values():
            for forgotten in rounds.keys() - subjects:
                del rounds[forgotten]

    def noted(self, subject: str) -> bool:
        """Whether any collector has finished a round of this subject."""
        return any(subject in rounds for rounds in self._last_rounds.values())

    def host_noted(self, collectors: Iterable[str]) -> bool:
        """Whether each of these host collectors has finished a round, or is known to hang."""
        return all(HOST in self._last_rounds.get(name, ()) for name in collectors)

    def health(
        self, collector: AnyGpuCollector | AnyHostCollector, subjects: frozenset[str] = _HOST_ALONE
    ) -> exporter_health.CollectorHealth:
        rounds = [last for subject, last in self._last_rounds.get(collector.name, {}).items() if subject in subjects]
        return exporter_health.CollectorHealth(
            name=collector.name,
            interval_seconds=interval_seconds(self._config, collector.tier),
            success=any(last.success for last in rounds) if rounds else None,
            duration_seconds=max((last.duration_seconds for last in rounds), default=None),
            last_success_at=self._last_success_at.get(collector.name),
        )

    def healths_of_gpus(
        self, collectors: Iterable[AnyGpuCollector], host_gpus: HostGpus
    ) -> list[exporter_health.CollectorHealth]:
        # The last reading of a missing GPU does not count as health of the collector.
        answering = frozenset(record.key for record in host_gpus if record.error is None)
        if answering:
            return [self.health(collector, answering) for collector in collectors]
        # If no GPU responds, no GPU collector works.
        known = frozenset(record.key for record in host_gpus)
        return [replace(self.health(collector, known), success=False) for collector in collectors]

    def _log_turn(self, outcome: Outcome) -> None:
        named = {
            "collector": outcome.collector,
            "gpu": outcome.subject,
            "errors": ",".join(sorted(set(outcome.errors))),
            "cause": "" if outcome.success else outcome.detail,
        }
        facts = fields(**{name: text for name, text in named.items() if text})
        if outcome.success:
            log.info("collector works again", extra=facts)
        else:
            log.warning("collector failed", extra=facts)
