"""The judge: what the evidence means, and since when. The daemon, `check` and the page all ask this one."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.config import Config
from gpu_triage.diagnosis.bottleneck.memory import GpuMemory
from gpu_triage.diagnosis.bottleneck.moment import NOT_IN_A_MOMENT, in_a_moment
from gpu_triage.diagnosis.evidence import thresholds
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.evidence.history import MetricHistory
from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import CHECKS, EXPLAINED_BY
from gpu_triage.diagnosis.findings.verdicts import Verdict
from gpu_triage.diagnosis.judges.clocks import judge_clocks
from gpu_triage.diagnosis.judges.cpu_settings import judge_cpu_settings
from gpu_triage.diagnosis.judges.health import judge_health
from gpu_triage.diagnosis.judges.kernel import judge_kernel
from gpu_triage.diagnosis.judges.licenses import judge_licenses
from gpu_triage.diagnosis.judges.links import judge_links
from gpu_triage.diagnosis.judges.repeat_offenders import judge_repeat_offenders
from gpu_triage.diagnosis.judges.work import judge_work
from gpu_triage.diagnosis.report.report import Report, Subject, report_of
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.sampler.outcomes import OutcomeStore
from gpu_triage.subjects import judgement
from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.judgement import JudgedGpu, JudgementReading, PresentFinding
from gpu_triage.subjects.metric import Sample

_JUDGES: Final = (
    judge_health,
    judge_repeat_offenders,
    judge_clocks,
    judge_links,
    judge_kernel,
    judge_cpu_settings,
    judge_work,
    judge_licenses,
)
_MOST_FORMER: Final = 64
"""GPUs that are forgotten, and whose seconds go on all the same when they come back."""
_ORDER: Final = {check.code: place for place, check in enumerate(CHECKS)}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the last minute means: the verdict, and the evidence behind it. Immutable."""

    at: Moment
    report: Report
    host: HostEvidence


class HostJudge:
    """Judges a host again and again, and remembers what no single look tells.

    What lies between two judgements that are further apart than `longest_gap_seconds` was judged by nobody.
    """

    def __init__(self, subject: Subject, longest_gap_seconds: float = thresholds.WINDOW_SECONDS) -> None:
        self._subject = subject
        self._longest_gap_seconds = longest_gap_seconds
        self._gpus: dict[str, GpuMemory] = {}
        self._former: dict[str, dict[str, float]] = {}
        # By subject and code: since when, and when it was last seen, in monotonic seconds.
        self._findings: dict[tuple[str, str], tuple[float, float]] = {}
        self._walls = WallTimes()

    def judge(self, host: HostEvidence, error: str | None = None, more: Iterable[Finding] = ()) -> Judgement:
        """What the evidence means.

        Args:
            host: the evidence.
            error: the driver's named error, if the evidence does not tell.
            more: findings that somebody else made of what is no evidence, such as messages of the kernel.
        """
        memories = {gpu: self._memory(_key(gpu)) for gpu in host.gpus}
        self._forget({labels["uuid"] for labels in host.labels_of(GPU_INFO)})
        self._gpus |= {_key(gpu): memory for gpu, memory in memories.items()}
        bottlenecks = {gpu: memory.judge(gpu, host, self._longest_gap_seconds) for gpu, memory in memories.items()}
        if self._subject.files:
            bottlenecks = {gpu: in_a_moment(bottleneck, gpu) for gpu, bottleneck in bottlenecks.items()}
        judged = (f for judge in _JUDGES for f in judge(host, bottlenecks))
        if self._subject.files:
            judged = (f for f in judged if f.check.code not in NOT_IN_A_MOMENT)
        found = sorted((*judged, *more), key=lambda f: _ORDER[f.check.code])
        found = self._completed(found, host.at)
        return Judgement(host.at, report_of(self._subject, host, bottlenecks, memories, found, error=error), host)

    def interrupt(self) -> None:
        """Count no class for the time from the last judgement to the next: one in between failed."""
        for memory in self._gpus.values():
            memory.interrupt()

    def _memory(self, key: str) -> GpuMemory:
        return self._gpus.get(key) or GpuMemory(self._former.pop(key, None))

    def _forget(self, known: set[str]) -> None:
        """Forget GPUs that the exporter no longer knows, but for their counters; not those that are only not asked."""
        for key in [key for key in self._gpus if key not in known]:
            self._former[key] = self._gpus.pop(key).seconds
        for surplus in tuple(self._former)[:-_MOST_FORMER]:
            del self._former[surplus]

    def _completed(self, found: list[Finding], now: Moment) -> list[Finding]:
        """The findings, each with its beginning and with the code of another one that it follows from."""
        present = {(finding.subject, finding.check.code) for finding in found}
        completed = []
        for finding in found:
            key = (finding.uuid or finding.subject, finding.check.code)
            began_at = self._findings.get(key, (now.monotonic, 0.0))[0]
            self._findings[key] = began_at, now.monotonic
            since = self._walls.of(began_at, now) if self._subject.continuous else None
            causes = EXPLAINED_BY.get(finding.check.code, ())
            cause = next((code for code in causes if (finding.subject, code) in present), "")
            completed.append(replace(finding, explained_by=cause, since=since))
        kept_since = now.monotonic - thresholds.SAME_FINDING_SECONDS
        self._findings = {key: each for key, each in self._findings.items() if each[1] >= kept_since}
        return completed


class DaemonJudge:
    """Judges what a sampler publishes at each round of the medium tier. The sampler's thread calls it.

    The `latest` judgement, None before the first, may be read from any thread.
    """

    def __init__(self, config: Config) -> None:
        self.subject = subject_of(config, continuous=True)
        self.latest: Judgement | None = None
        seconds = max(thresholds.WINDOW_SECONDS, thresholds.WINDOW_ROUNDS * config.sample_medium_seconds)
        self._history = MetricHistory(seconds)
        self._judge = HostJudge(self.subject, longest_gap_seconds=seconds)

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """Judge what is published now; returns what that adds to it."""
        self._history.note(store, now)
        self.latest = self._judge.judge(self._history.evidence(now))
        return judgement.render(_reading(self.latest.report))

    def interrupt(self) -> None:
        """Note that a judgement failed: no time counts until the next."""
        self._judge.interrupt()


def subject_of(config: Config, *, continuous: bool) -> Subject:
    """What is judged under this configuration: this host, a scenario or a recording."""
    if config.replay is not None:
        return Subject(str(config.replay), str(config.replay), continuous)
    return Subject(config.simulate or platform.node() or "this host", None, continuous)


def _key(gpu: GpuEvidence) -> str:
    return gpu.uuid or f"index {gpu.gpu}"


def _reading(report: Report) -> JudgementReading:
    """What the collector `judge` publishes: of findings, each subject and code once, since the first of them."""
    present: dict[tuple[GpuLabels | None, str], PresentFinding] = {}
    for finding in sorted(report.findings, key=lambda each: each.since or 0.0):
        labels = None if finding.gpu is None else GpuLabels(finding.gpu, finding.uuid)
        check = finding.check
        facts = PresentFinding(labels, check.code, finding.severity.value, check.action.value, finding.since or 0.0)
        present.setdefault((labels, check.code), facts)
    gpus = tuple(
        JudgedGpu(GpuLabels(gpu.gpu, gpu.uuid), gpu.bottleneck.name, gpu.seconds, _state(gpu.verdict))
        for gpu in report.gpus
    )
    return JudgementReading(gpus, _state(report.verdict), tuple(present.values()))


def _state(verdict: Verdict) -> str | None:
    return None if verdict is Verdict.NOT_READ else verdict.value
