"""The judge at work in the daemon: it looks on at each round of the medium tier."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.catalogue import Sample
from gpu_triage.collectors import judgement
from gpu_triage.config import Config
from gpu_triage.diagnosis.evidence import History
from gpu_triage.diagnosis.judge import HostJudge, Judgement, reading_of, subject_of, window_seconds
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import OutcomeStore


class DaemonJudge:
    """Judges what a sampler publishes. The sampler's thread calls it; `latest` may be read from any.

    Args:
        config: of the exporter.

    Attributes:
        subject: what is judged.
        latest: the last judgement; None before the first.
    """

    def __init__(self, config: Config) -> None:
        self.subject = subject_of(config, continuous=True)
        seconds = window_seconds(config)
        self._history = History(seconds)
        self._judge = HostJudge(self.subject, longest_gap_seconds=seconds)
        self.latest: Judgement | None = None

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """Judge what is published now; returns what that adds to it."""
        self._history.note(store, now)
        self.latest = self._judge.judge(self._history.evidence(now))
        return judgement.render(reading_of(self.latest.report))

    def interrupt(self) -> None:
        """Note that a judgement failed: no time counts until the next."""
        self._judge.interrupt()
