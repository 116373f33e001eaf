"""The judge: what the evidence means, and since when. The daemon, `check` and the page all ask this one."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace

from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.collectors.judgement import JudgedGpu, JudgementReading, PresentFinding
from gpu_triage.config import Config
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.evidence import Evidence
from gpu_triage.diagnosis.findings import Finding
from gpu_triage.diagnosis.ladder import Case, bottleneck_of
from gpu_triage.diagnosis.obstacles import obstacle
from gpu_triage.diagnosis.past import ClassMemory, WorkMemory
from gpu_triage.diagnosis.report import Report, Subject, findings_of, report_of
from gpu_triage.diagnosis.verdicts import Verdict
from gpu_triage.diagnosis.view import GpuView, HostView, view_of
from gpu_triage.machine import Moment


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the last minute means. Immutable.

    Attributes:
        at: when it was made.
        report: the verdict.
        host: the evidence behind it.
    """

    at: Moment
    report: Report
    host: HostView


@dataclass(slots=True)
class _GpuMemory:
    work: WorkMemory = field(default_factory=WorkMemory)
    classes: ClassMemory = field(default_factory=ClassMemory)


@dataclass(slots=True)
class _FindingMemory:
    """A finding that is or was there: since when (Unix seconds), and when it was last seen (monotonic seconds)."""

    since: float
    seen_at: float


class HostJudge:
    """Judges a host again and again, and remembers what no single look tells.

    Args:
        subject: what is judged.
        longest_gap_seconds: between two judgements; what lies between two that are further apart was judged by nobody.
    """

    def __init__(self, subject: Subject, longest_gap_seconds: float = thresholds.WINDOW_SECONDS) -> None:
        self._subject = subject
        self._longest_gap_seconds = longest_gap_seconds
        self._gpus: dict[str, _GpuMemory] = {}
        self._findings: dict[tuple[str, str], _FindingMemory] = {}

    def judge(self, evidence: Evidence, error: str | None = None) -> Judgement:
        """What the evidence means.

        Args:
            evidence: over the window.
            error: the driver's named error, if the evidence does not tell.
        """
        now = evidence.at
        host = view_of(evidence)
        memories = {_key(gpu): self._gpus.get(_key(gpu)) or _GpuMemory() for gpu in host.gpus}
        # A GPU that the exporter no longer knows takes its memory with it.
        self._gpus = memories
        classes = {}
        for gpu in host.gpus:
            memory = memories[_key(gpu)]
            case = Case(gpu, host, memory.work.note(gpu, now.monotonic), memory.classes.name)
            settled = memory.classes.settle(bottleneck_of(case), case, now, self._longest_gap_seconds)
            classes[gpu] = settled, memory.classes
        found = findings_of(host, {gpu: bottleneck for gpu, (bottleneck, _) in classes.items()})
        report = report_of(
            self._subject, host, classes, self._dated(found, now), obstacle(evidence, error or host.driver_error)
        )
        return Judgement(now, report, host)

    def interrupt(self) -> None:
        """Count no class for the time from the last judgement to the next: one in between failed."""
        for memory in self._gpus.values():
            memory.classes.interrupt()

    def _dated(self, found: list[Finding], now: Moment) -> list[Finding]:
        if not self._subject.continuous:
            return found
        dated = []
        for finding in found:
            key = (finding.uuid or finding.subject, finding.check.code)
            known = self._findings.setdefault(key, _FindingMemory(now.wall, now.monotonic))
            known.seen_at = now.monotonic
            dated.append(replace(finding, since=known.since))
        kept_since = now.monotonic - thresholds.SAME_FINDING_SECONDS
        self._findings = {key: each for key, each in self._findings.items() if each.seen_at >= kept_since}
        return dated


def subject_of(config: Config, *, continuous: bool) -> Subject:
    """What is judged under this configuration: this host, a scenario or a recording."""
    if config.replay is not None:
        return Subject(str(config.replay), str(config.replay), continuous)
    return Subject(config.simulate or platform.node() or "this host", None, continuous)


def window_seconds(config: Config) -> float:
    """How far back the judge looks."""
    return max(thresholds.WINDOW_SECONDS, thresholds.WINDOW_ROUNDS * config.sample_medium_seconds)


def reading_of(report: Report) -> JudgementReading:
    """What the collector `judge` publishes of a report."""
    return JudgementReading(
        gpus=tuple(
            JudgedGpu(GpuLabels(gpu.gpu, gpu.uuid), gpu.bottleneck.name, gpu.seconds, _state(gpu.verdict))
            for gpu in report.gpus
        ),
        host_verdict=_state(report.verdict),
        findings=tuple(_present_findings(report)),
    )


def _present_findings(report: Report) -> list[PresentFinding]:
    """Each subject and code once, since the first of them."""
    present: dict[tuple[GpuLabels | None, str], PresentFinding] = {}
    for finding in sorted(report.findings, key=lambda each: each.since or 0.0):
        labels = None if finding.gpu is None else GpuLabels(finding.gpu, finding.uuid)
        check = finding.check
        facts = PresentFinding(labels, check.code, check.severity.value, check.action.value, finding.since or 0.0)
        present.setdefault((labels, check.code), facts)
    return list(present.values())


def _state(verdict: Verdict) -> str | None:
    return None if verdict is Verdict.NOT_READ else verdict.value


def _key(gpu: GpuView) -> str:
    return gpu.uuid or f"index {gpu.gpu}"
