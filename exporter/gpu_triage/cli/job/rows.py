"""The answer as sentences and rows, shared by text, JSON and HTML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.render import moment
from gpu_triage.cli.fleet.view import HostKey
from gpu_triage.cli.job.advice import Advice
from gpu_triage.cli.job.cause import subject_of
from gpu_triage.cli.job.compare import Comparison, Standing
from gpu_triage.cli.job.notes import places_in_words
from gpu_triage.cli.job.pace import Pace, by_host
from gpu_triage.cli.job.view import GOOD, Job, JobFinding, JobGpu
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.report.headline import STATES

_HOUR: Final = 3600.0
_WAITING: Final = "waiting for others"
_WORTH_A_ROW: Final = 0.01
_ALIKE_SHARE: Final = 0.05
"""Ranks of a synchronous job make the same number of steps, and scrapes are not at the same instant."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job and how to show it.

    Attributes:
        source: URL of the server.
        warnings: warnings returned by the server.
        limit: most findings, and most hosts, to show.
    """

    job: Job
    comparison: Comparison
    advice: Advice
    notes: tuple[str, ...]
    source: str
    warnings: tuple[str, ...]
    limit: int


class ClassRow(NamedTuple):
    """GPU time in one class, or without data."""

    name: str
    words: str
    seconds: float
    share: float  # of the total
    is_lost: bool


class ReadingRow(NamedTuple):
    """One reading of the slowest GPU or host, and of the others."""

    name: str
    own: str
    others: str
    difference: str


def headline(shown: JobReport) -> str:
    """The answer as one line: the job, its owner, and what slows it down."""
    return f"{shown.job.found.run}: {shown.advice.slow}"


def duration(job: Job) -> str:
    """How long it ran, and when."""
    run, window = job.found.run, job.window
    began = f"{'' if job.start_known and job.end_known else 'at least '}{length_of_time(run.end - run.start)}"
    state = f"running for {began}, since {moment(run.start)}"
    if not job.found.ongoing:
        state = f"ran for {began}, from {moment(run.start)} to {moment(run.end)}"
    part = f"; this is the part from {moment(window.start)} on" if window.start > run.start else ""
    return f"{state}{part}"


def size(job: Job) -> str:
    """Its hosts and GPUs: ``4 hosts, 32 GPUs: 32 x NVIDIA H100 80GB HBM3``."""
    models: defaultdict[str, int] = defaultdict(int)
    for gpu in job.gpus:
        models[gpu.name or "unknown model"] += 1
    named = ", ".join(f"{count} x {name}" for name, count in sorted(models.items(), key=lambda each: -each[1]))
    hosts, gpus = len(job.hosts), len(job.gpus)
    return f"{hosts} host{'s' * (hosts != 1)}, {gpus} GPU{'s' * (gpus != 1)}: {named}"


def class_rows(job: Job) -> Iterator[ClassRow]:
    """GPU time by class, most first, and the time without data."""
    time = job.time
    total = time.total or 1.0
    for name, seconds in time.by_class.items():
        yield ClassRow(name, STATES[name], seconds, seconds / total, name not in GOOD)
    if time.unknown >= job.window.step_seconds:
        yield ClassRow("no data", "not known", time.unknown, time.unknown / total, is_lost=False)


def lost_words(job: Job) -> str:
    """How much of its GPU time is lost: ``lost to a bottleneck: 1.2 of 5.3 GPU hours, 23%``."""
    time = job.time
    share = time.lost / time.total if time.total else 0.0
    return f"lost to a bottleneck: {hours(time.lost)} of {hours(time.total)}, {share:.0%}"


def hours(seconds: float) -> str:
    """GPU hours with one decimal, or GPU minutes below two hours."""
    return f"{seconds / _HOUR:,.1f} GPU h" if seconds >= 2 * _HOUR else f"{seconds / 60:.0f} GPU min"


def compared_with(standing: Standing, *, is_host: bool) -> str:
    """The slowest, whether it is an outlier, and with what it was compared."""
    subject = subject_of(standing, is_host=is_host)
    count = standing.others_count
    others = f"{count} other host{'s' * (count != 1)}" if is_host else f"{count} other GPU{'s' * (count != 1)}"
    out = "" if standing.stands_out else ": no slower than they differ anyway"
    return f"{subject}, against the median of {others}{out}"


def reading_rows(standing: Standing) -> Iterator[ReadingRow]:
    """Clock, power and busy share beside those of the others; an unknown reading is missing."""
    own, others = standing.own, standing.others
    for name, value, median, unit in (
        ("SM clock", own.clock, others.clock, "MHz"),
        ("power", own.power, others.power, "W"),
        ("busy", own.busy, others.busy, ""),
        (_WAITING, own.waiting, others.waiting, ""),
    ):
        if value is not None and (name != _WAITING or max(value, median or 0.0) >= _WORTH_A_ROW):
            known = "not known" if median is None else _reading(median, unit)
            # A share of 2 % against one of 1 % has not doubled in any way that matters.
            yield ReadingRow(name, _reading(value, unit), known, _difference(value, median) if unit else "")


def _reading(value: float, unit: str) -> str:
    """A clock in hertz, a power in watts, or without a unit a share of 0-1."""
    return f"{value / 1e6 if unit == 'MHz' else value:.0f} {unit}" if unit else f"{value:.0%}"


def _difference(value: float, median: float | None) -> str:
    if not median:
        return ""
    ratio = value / median - 1
    return "the same" if abs(ratio) < 0.005 else f"{abs(ratio):.0%} {'below' if ratio < 0 else 'above'}"  # noqa: PLR2004


def pace_lines(job: Job) -> Iterator[str]:
    """The job's steps per second, against its own best, and of the slowest rank."""
    pace = job.pace
    if pace is None:
        yield "not known: the job does not count them (gpu_job_steps_total, docs/textfile.md)"
        return
    yield _pace_now(pace, job)
    slowest = pace.slowest
    if slowest is None:
        return
    rank, median = slowest
    if median and rank.per_second < (1 - _ALIKE_SHARE) * median:
        yield f"slowest: {rank.subject} with {rank.per_second:.3g} a second, the median is {median:.3g}"
    else:
        yield f"all {len(pace.ranks)} counters advance alike, as those of a synchronous job do"
    paces = by_host(pace.ranks)
    slow = min(paces, key=lambda host: paces[host])
    if len(paces) > 1 and median and paces[slow] < (1 - _ALIKE_SHARE) * median:
        yield f"slowest host: {slow} with {paces[slow]:.3g} a second"


def _pace_now(pace: Pace, job: Job) -> str:
    if pace.stopped_seconds:
        until = "now" if job.found.ongoing else "its end"
        best = f"; before that up to {pace.best:.3g} a second" if pace.best else ""
        return f"none for {length_of_time(pace.stopped_seconds)} until {until}{best}"
    if pace.recent is None:
        return "too few scrapes at its end to tell"
    if pace.best is None or pace.below_best is None:
        return f"{pace.recent:.3g} a second"
    stretch = "hour" if pace.stretch_seconds == _HOUR else f"{pace.stretch_seconds // 60} minutes"
    below = "as in" if pace.below_best < _ALIKE_SHARE else f"{pace.below_best:.0%} below"
    return f"{pace.recent:.3g} a second, {below} its best {stretch} ({pace.best:.3g})"


class SharedFinding(NamedTuple):
    """A finding on several GPUs or hosts."""

    first: JobFinding  # the one that began first
    subject: str
    when: str


def finding_rows(job: Job) -> tuple[SharedFinding, ...]:
    """The findings, the most urgent first; those of one kind together."""
    groups: dict[tuple[object, ...], list[JobFinding]] = {}
    for each in job.findings:
        groups.setdefault((each.code, each.urgency, each.state, each.lasts, not each.gpu), []).append(each)
    return tuple(_shared(members, job) for members in groups.values())


def _shared(members: list[JobFinding], job: Job) -> SharedFinding:
    first = min(members, key=lambda each: each.first)
    places = [(each.host, each.gpu or each.uuid) for each in members]
    last = max(each.last for each in members)
    pending = "pending " if first.state is State.PENDING else ""
    until = "" if first.lasts else f", until {moment(last)}"
    from_start = first.first <= job.window.start + job.window.step_seconds
    since = "from its start" if from_start else f"from {moment(first.first)}"
    return SharedFinding(
        first, places_in_words(places), f"{pending}for {length_of_time(last - first.first)}, {since}{until}"
    )


def measured(finding: JobFinding) -> str:
    """What was measured: ``throttled 34% of the time``; "" if nothing was."""
    check = finding.check
    if finding.value is None or check is None or check.measure is None:
        return ""
    return check.measure.said(finding.value)


def by_host_rows(job: Job) -> Iterator[tuple[HostKey, tuple[JobGpu, ...]]]:
    """The GPUs of each host, the one that lost most time to causes of its own first."""
    by: defaultdict[HostKey, list[JobGpu]] = defaultdict(list)
    for gpu in job.gpus:
        by[gpu.host].append(gpu)
    for host in sorted(by, key=lambda host: (-sum(gpu.own_cause for gpu in by[host]), host)):
        yield host, tuple(by[host])


def main_classes(gpus: tuple[JobGpu, ...]) -> str:
    """What GPUs spent most of their time with: ``busy 92%, waiting for storage 8%``."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for gpu in gpus:
        for name, value in gpu.seconds.items():
            seconds[name] += value
    total = sum(seconds.values())
    if not total:
        return "no data"
    ordered = sorted(seconds, key=lambda name: -seconds[name])
    shown = [name for name in ordered if seconds[name] >= 0.01 * total][:3]
    return ", ".join(f"{STATES[name]} {seconds[name] / total:.0%}" for name in shown)
