"""Evidence of made-up samples."""

from collections.abc import Iterable, Mapping

from gpu_triage.judge.evidence.history import MetricHistory
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.remember import remember
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.machine import Moment
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

Key = tuple[MetricSpec, tuple[str, ...]]
Readings = Mapping[Key, float]
"""By metric and labels: values of gauges, and what counters gain a second."""


def evidence_of(
    *rounds: tuple[float, Iterable[Sample] | None], window_seconds: float = 60.0, wall: float = 0.0
) -> HostEvidence:
    """What judges see after these rounds of a collector, each at its second; None withdraws what it published.

    It ends at `wall`, Unix seconds; what is remembered of longer is what was seen.
    """
    store, history, now = OutcomeStore(["some"]), MetricHistory(window_seconds), Moment(0.0, wall)
    for at, samples in rounds:
        now = Moment(at, wall - rounds[-1][0] + at)
        if samples is None:
            store.withdraw("some", "subject")
        else:
            made = tuple(samples)
            store.put(Outcome("some", "subject", made, now))
        history.note(store, now)
    host = history.evidence(now)
    remember(host, window_seconds)
    return host


def report_of(*rounds: tuple[float, Iterable[Sample] | None], wall: float = 0.0) -> Report:
    """What a judge that knows of nothing before says after these rounds."""
    return HostJudge(JudgedHost("host", continuous=True)).judge(evidence_of(*rounds, wall=wall)).report


def samples_at(seconds: float, readings: Readings) -> list[Sample]:
    """What these readings are at a second, if they have been so since 0."""
    return [
        spec.sample(value * seconds if spec.name.endswith("_total") else value, *labels)
        for (spec, labels), value in readings.items()
    ]


def steady(readings: Readings, seconds: int = 60) -> HostEvidence:
    """What judges see of readings that have been the same for so long, read every five seconds."""
    return evidence_of(*((float(at), samples_at(at, readings)) for at in range(0, seconds + 5, 5)))
