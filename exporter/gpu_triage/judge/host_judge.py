"""The judge, which interprets the evidence and tracks findings over time; alone, and in a running exporter."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from gpu_triage.errors import ConfigError
from gpu_triage.judge.bottleneck.class_history import GpuMemory
from gpu_triage.judge.bottleneck.classes import NOT_IN_A_MOMENT, in_a_moment
from gpu_triage.judge.conditions.clocks import judge_clocks
from gpu_triage.judge.conditions.health import judge_health
from gpu_triage.judge.conditions.host import judge_host
from gpu_triage.judge.conditions.links import judge_links
from gpu_triage.judge.conditions.work import judge_work
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.history import MetricHistory
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.observed import last_reset, observable
from gpu_triage.judge.evidence.remember import remember
from gpu_triage.judge.findings.accepted import compared, in_force, outgrown_text, valid
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.saved import SAVED_FINDINGS, KeptFindings
from gpu_triage.judge.findings.settings import DEFAULT_SETTINGS, JudgeSettings, judge_settings
from gpu_triage.judge.findings.states import FindingStates, Life
from gpu_triage.judge.findings.table import CHECKS, Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import JudgedHost, Report, report_of
from gpu_triage.log import fields
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.options.config import Config
from gpu_triage.options.option import Option
from gpu_triage.options.option_sources import judge_options_now
from gpu_triage.read.exporter import judgment
from gpu_triage.read.exporter.exporter_health import JudgeSettingsHealth
from gpu_triage.read.exporter.judgment import GPU_VERDICT
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.sampler.outcomes import OutcomeStore

log = logging.getLogger(__name__)

_MOST_ABSENT: Final = 64
"""Maximum number of absent GPUs with time per class kept, so that it continues if they come back."""
_ORDER: Final = {check.code: place for place, check in enumerate(CHECKS)}


@dataclass(frozen=True, slots=True)
class Judgment:
    """A verdict on the last window, and the evidence behind it. Immutable."""

    at: Moment
    report: Report
    host: HostEvidence


class HostJudge:
    """Judges a host repeatedly; longer gaps count as not observed. Any thread may replace `settings`, for the next."""

    def __init__(
        self,
        subject: JudgedHost,
        longest_gap_seconds: float = thresholds.WINDOW_SECONDS,
        settings: JudgeSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.settings = settings
        self._subject = subject
        self._longest_gap_seconds = longest_gap_seconds
        self._gpus: dict[str, GpuMemory] = {}
        self._absent_seconds: dict[str, dict[str, float]] = {}
        self.states = FindingStates(longest_gap_seconds)
        self._walls = WallTimes()
        self._logged: set[tuple[str, str]] = set()

    def judge(self, host: HostEvidence, error: str | None = None, more: Iterable[Finding] = ()) -> Judgment:
        """Judge the evidence, with the driver's `error` if it lacks that, and `more` findings from other sources."""
        settings = self.settings
        self.states.checks = settings.checks
        host = replace(host, settings=settings)
        memories = {
            gpu: self._gpus.get(gpu.key) or GpuMemory(self._absent_seconds.pop(gpu.key, None)) for gpu in host.gpus
        }
        self._forget({labels["uuid"] for labels in host.labels_of(GPU_INFO)})
        self._gpus |= {gpu.key: memory for gpu, memory in memories.items()}
        bottlenecks = {gpu: memory.judge(gpu, host, self._longest_gap_seconds) for gpu, memory in memories.items()}
        if self._subject.files:
            bottlenecks = {gpu: in_a_moment(bottleneck, gpu) for gpu, bottleneck in bottlenecks.items()}
        remember(host, self._longest_gap_seconds)
        others = (judge(host) for judge in (judge_clocks, judge_links, judge_host))
        judged: Iterable[Finding] = chain(judge_health(host, bottlenecks), *others, judge_work(host, bottlenecks))
        if self._subject.files:
            judged = (f for f in judged if f.check.code not in NOT_IN_A_MOMENT)
        rows = (replace(f, check=settings.checks[f.check.code]) for f in (*judged, *more))
        named = (f if (gpu := host.silent_gpus.of(f)) is None else f.about(gpu) for f in rows)
        found = sorted(named, key=lambda f: _ORDER[f.check.code])
        present, ended = self.states.judge(
            found, partial(observable, host), host.at.monotonic, partial(last_reset, host), host.known_gpus
        )
        if self._subject.files:
            # When they were written, the driver did not respond, or GPUs were missing. Other findings need time to be
            # confirmed, and files only show snapshots.
            present = tuple(
                replace(life, state=State.CONFIRMED) if life.finding.check.area is Area.DRIVER else life
                for life in present
            )
        completed = self._completed(present, host)
        over = tuple(self._with_life(life, host.at) for life in ended)
        report = report_of(self._subject, host, bottlenecks, memories, completed, ended=over, error=error)
        return Judgment(host.at, report, host)

    def interrupt(self) -> None:
        """Leave the time from the last judgment to the next uncounted, because one in between failed."""
        for memory in self._gpus.values():
            memory.interrupt()

    def _forget(self, known: set[str]) -> None:
        """Drop GPUs that the exporter no longer lists, except for their counters; keep those just not being polled."""
        for key in [key for key in self._gpus if key not in known]:
            self._absent_seconds[key] = self._gpus.pop(key).seconds
        for surplus in tuple(self._absent_seconds)[:-_MOST_ABSENT]:
            del self._absent_seconds[surplus]

    def _completed(self, present: Sequence[Life], host: HostEvidence) -> list[Finding]:
        """Return the findings with state, history, the code of the cause of each, and advice that fits the host."""
        decided = valid(host.memory.decisions, host.at.wall)
        now = host.at.monotonic if self._subject.continuous else None
        present = [compared(life, decided.get(life.key), now) for life in present]
        self.states.note(present)
        lives = {life.key: life for life in present}
        self._logged &= lives.keys()
        completed = []
        for life in present:
            finding = self._with_life(life, host.at)
            if host.is_virtual:
                finding = replace(finding, cause_advice=finding.advice.in_a_virtual_machine)
            keys = ((finding.identity, code) for code in finding.check.explained_by)
            causes = [lives[key] for key in keys if key in lives]
            if text := outgrown_text(life, decided):
                detail = "; ".join(filter(None, (finding.detail, text)))
                finding = replace(finding, measured=f"{finding.measured}; {text}", detail=detail)
            rank = finding.severity.rank
            alerting = [each for each in causes if each.finding.check.alert and each.finding.severity.rank >= rank]
            # What follows from an accepted finding is as quiet.
            accepted = (in_force(each, decided) for each in (life, *alerting))
            finding = replace(finding, accepted=next(filter(None, accepted), None))
            if finding.state is State.CONFIRMED and life.key not in self._logged:
                # One that is known before its cause stays: its alert would end, and fire again without the cause.
                if self._subject.continuous and alerting:
                    finding = replace(finding, state=State.PENDING)
                else:
                    self._logged.add(life.key)
            completed.append(replace(finding, explained_by=causes[0].finding.check.code if causes else ""))
        return sorted(completed, key=lambda f: _ORDER[f.check.code])

    def _with_life(self, life: Life, now: Moment) -> Finding:
        return replace(
            life.finding,
            check=replace(life.finding.check, hold_seconds=life.hold_seconds),
            since=self._walls.of(life.began_at, now) if self._subject.continuous else None,
            state=life.state,
            lasted_seconds=life.lasted_seconds,
            holds=life.holds if life.seen_at == now.monotonic else None,  # else it is restored, and not judged yet
            quiet_seconds=life.quiet_seconds,
            ended_at=None if life.end is None else self._walls.of(life.seen_at, now),
            end="" if life.end is None else life.end.value,
        )


class DaemonJudge:
    """Judges what a sampler publishes, on its thread; any thread may use the attributes. Raises ConfigError."""

    def __init__(self, config: Config, subject: JudgedHost, wall: Callable[[], float] = time.time) -> None:
        self.subject = subject
        self.settings = judge_settings(config.judge)  # from the next judgment on
        self.settings_health = JudgeSettingsHealth(success=True, loaded_at=wall())
        self.latest: Judgment | None = None
        self._config = config
        self._wall = wall
        seconds = max(thresholds.WINDOW_SECONDS, thresholds.WINDOW_ROUNDS * config.sample_medium_seconds)
        self._history = MetricHistory(seconds)
        self._judge = HostJudge(self.subject, seconds)
        self._kept = KeptFindings(self._judge.states, self._history.memory.widest)
        self.saved = SAVED_FINDINGS, self._kept  # what is saved of it, and the kind of file for that

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        """Judge what is currently published, and return the samples to add to it."""
        self._history.note(store, now)
        self._judge.settings = self.settings
        self.latest = self._judge.judge(self._history.evidence(now))
        self._kept.note(now.monotonic)
        return published(self.latest.report)

    def reload(self, options: Sequence[Option]) -> JudgeSettingsHealth:
        """Read the settings (others need a restart) from the file again; if that is invalid, they stay."""
        try:
            self.settings = judge_settings(judge_options_now(self._config, options))
        except ConfigError as error:
            message = "the configuration file cannot be used, the judge's settings stay"
            log.error(message, extra=fields(cause=str(error)))  # noqa: TRY400 - no bug, so no traceback
            self.settings_health = replace(self.settings_health, success=False)
            return self.settings_health
        self.settings_health = JudgeSettingsHealth(success=True, loaded_at=self._wall())
        changed = "; ".join(each.text for each in self.settings.changed) or "all are the defaults"
        log.info("the judge's settings were read", extra=fields(file=self._config.config_file, settings=changed))
        return self.settings_health

    def interrupt(self) -> None:
        """Record that a judgment failed: no time is counted until the next."""
        self._judge.interrupt()


def published(report: Report) -> Iterator[Sample]:
    """Yield the samples of the collector `judge`."""
    for gpu in report.gpus:
        labels, name, bound = (gpu.gpu, gpu.uuid), gpu.bottleneck.name, gpu.bottleneck.bound
        yield judgment.GPU_BOTTLENECK.sample(judgment.GPU_BOTTLENECK.value_of(name), *labels)
        for each, seconds in gpu.seconds.items():
            yield judgment.GPU_BOTTLENECK_SECONDS_TOTAL.sample(seconds, *labels, each)
        if gpu.verdict is not Verdict.NOT_READ:
            yield GPU_VERDICT.sample(GPU_VERDICT.value_of(gpu.verdict.value), *labels)
        if bound is not None:
            yield judgment.GPU_COMPUTE_BOUND.sample(judgment.GPU_COMPUTE_BOUND.value_of(bound.name), *labels)
    if report.verdict is not Verdict.NOT_READ:
        yield judgment.GPU_HOST_VERDICT.sample(GPU_VERDICT.value_of(report.verdict.value))
    yield judgment.GPU_HOST_FINDINGS.sample(len(report.findings))
    for finding in (*report.findings, *report.ended):
        yield from _of_finding(finding)


def _of_finding(finding: Finding) -> Iterator[Sample]:
    check, accepted = finding.check, finding.accepted
    names = (finding.gpu or "", finding.uuid, finding.pci_bus_id)
    about = names if any(names) else ()
    facts = (check.code, check.severity.value, check.action.value)
    state, lasted, value, since = judgment.OF_GPU if about else judgment.OF_HOST
    yield state.sample(finding.state if accepted is None else judgment.ACCEPTED, *about, *facts)
    yield lasted.sample(finding.lasted_seconds, *about, check.code)
    if finding.value is not None:
        yield value.sample(finding.value, *about, check.code)
    if finding.since is not None and finding.state is not State.ENDED:
        detail = finding.detail if finding.state is State.CONFIRMED else ""
        yield since.sample(finding.since, *about, *facts, detail)
    if accepted is not None:
        words = (check.code, accepted.by, accepted.reason)
        yield judgment.GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS.sample(accepted.until, *about, *words)
