"""What slows a job down, and what to do first, in one sentence each.

The slowest GPU and the slowest host are compared with the median of the others only, so that the slower one of a pair
can be named. GPUs of another model are left out, because their clocks and power differ anyway.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, NamedTuple

from gpu_triage.cli.fleet.fleet_view import HostKey
from gpu_triage.cli.job.job_view import GOOD, NO_CAUSE, WAITS, Job, JobFinding, JobGpu, shares_of
from gpu_triage.documents import packaged_toml
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.report.headline import STATES


class Readings(NamedTuple):
    """Means of one GPU, or of the GPUs of one host; None if not known."""

    clock_hertz: float | None
    power_watts: float | None
    busy_ratio: float | None
    own_cause_ratio: float | None  # share of its time in classes with a cause of its own, 0-1
    waiting_ratio: float | None  # share of its time in the class communication, 0-1


CLOCK_SHARE: Final = 0.07  # GPUs of one model differ by up to about 5 % at their power limit
BUSY_SHARE: Final = 0.2
CAUSED_SHARE: Final = 0.1
WAITING_SHARE: Final = 0.3  # by how much of its time a GPU must wait less than the others: they wait for it
MOST_OF_A_HOST: Final = 0.75  # if so many of its GPUs are outliers, the host is one

WAITS_BY: Final = ("busy", "waiting")
OF_WAITS: Final = {"computing": "waiting", "starving": "busy", "clock": "clock", "network": "network"}
"""Reasons of a standing by what the rules say why the others wait."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a GPU or a host compares with the others of the job."""

    gpus: tuple[JobGpu, ...]  # it, or all of the host
    own: Readings  # its readings, and the medians of the others
    others: Readings  # likewise
    others_count: int  # how many these are
    # Readings by which it is slower than GPUs or hosts differ anyway, the clearest first: caused, clock, busy, waiting.
    reasons: tuple[str, ...]
    score: float  # the larger, the slower; from 1 on it is an outlier
    is_host: bool  # whether hosts are compared, not GPUs

    @property
    def host(self) -> HostKey:
        return self.gpus[0].host

    @property
    def subject(self) -> str:
        """Display name: ``GPU 3 of gpu-07:9836``, ``gpu-07:9836``."""
        return str(self.host) if self.is_host else self.gpus[0].subject


class Comparison(NamedTuple):
    """The slowest GPU and host; None if there is no other to compare with."""

    gpu: Standing | None
    host: Standing | None
    culprit: Standing | None  # what the job waits for, one of the two; None if neither is an outlier
    alike: int = 0  # how many others are outliers for the same reason


def compare(job: Job) -> Comparison:
    """The slowest GPU and host; the culprit is what the rules recorded, where they know the job's pace."""
    gpus = _standings([(gpu,) for gpu in job.gpus], is_host=False, known=job.loss is not None)
    hosts = _standings([*job.hosts.values()], is_host=True, known=job.loss is not None)
    awaited = job.loss.main if job.loss is not None else None
    if job.loss is not None and awaited is not None and job.loss.awaited[awaited]:
        for each in (*gpus, *hosts):
            if (each.host, "" if each.is_host else each.gpus[0].uuid) == (awaited.host, awaited.uuid):
                told = replace(each, reasons=tuple(dict.fromkeys((OF_WAITS[awaited.why], *each.reasons))))
                return Comparison(None if each.is_host else told, told if each.is_host else None, told)
    slowest = max(gpus, key=lambda each: each.score, default=None)
    host = max(hosts, key=lambda each: each.score, default=None)
    slow = [each.host for each in gpus if each.reasons]
    if host is not None and host.reasons and slow.count(host.host) >= max(2, MOST_OF_A_HOST * len(host.gpus)):
        culprit, others = host, hosts
    elif slowest is not None and slowest.reasons:
        culprit, others = slowest, gpus
    else:
        return Comparison(slowest, host, None)
    alike = sum(each.reasons[:1] == culprit.reasons[:1] for each in others) - 1
    return Comparison(slowest, host, culprit, alike)


def _standings(groups: Sequence[tuple[JobGpu, ...]], *, is_host: bool, known: bool) -> list[Standing]:
    """How each group compares; where it is `known` for what the job waits, waiting is not guessed from means."""
    by_models: defaultdict[tuple[str, ...], list[tuple[JobGpu, ...]]] = defaultdict(list)
    for group in groups:
        by_models[tuple(sorted({gpu.name for gpu in group}))].append(group)
    found = []
    for alike in by_models.values():
        readings = [_readings(group) for group in alike]
        ordered = [sorted(value for value in values if value is not None) for values in zip(*readings, strict=True)]
        for group, own in zip(alike, readings, strict=True) if len(alike) > 1 else ():
            others = Readings(*map(_median_without, ordered, own))
            scores = {name: each for name, each in _scores(own, others).items() if not known or name not in WAITS_BY}
            reasons = sorted((name for name in scores if scores[name] >= 1), key=lambda name: -scores[name])
            score = max(scores.values(), default=0.0)
            found.append(Standing(group, own, others, len(alike) - 1, tuple(reasons), score, is_host))
    return found


def _median_without(ordered: Sequence[float], value: float | None) -> float | None:
    """The median of sorted values without one of them, if it is not None; None if nothing is left."""
    skipped = len(ordered) if value is None else bisect_left(ordered, value)
    count = len(ordered) - (value is not None)
    if count == 0:
        return None
    middle = ((count - 1) // 2, count // 2)
    return fmean(ordered[place + (place >= skipped)] for place in middle)


def _scores(own: Readings, others: Readings) -> dict[str, float]:
    """How far it is behind by each reading, in multiples of what is normal; missing if not known."""
    scores = {}
    if own.own_cause_ratio is not None and others.own_cause_ratio is not None:
        scores["caused"] = (own.own_cause_ratio - others.own_cause_ratio) / CAUSED_SHARE
    if own.clock_hertz is not None and others.clock_hertz:
        scores["clock"] = (1 - own.clock_hertz / others.clock_hertz) / CLOCK_SHARE
    if own.busy_ratio is not None and others.busy_ratio is not None:
        scores["busy"] = (others.busy_ratio - own.busy_ratio) / BUSY_SHARE
    if own.waiting_ratio is not None and others.waiting_ratio is not None:
        scores["waiting"] = (others.waiting_ratio - own.waiting_ratio) / WAITING_SHARE
    return scores


def _readings(gpus: Sequence[JobGpu]) -> Readings:
    shares = shares_of(gpus)
    own = sum(share for name, share in shares.items() if name not in NO_CAUSE)
    return Readings(
        clock_hertz=_mean(gpu.clock_hertz for gpu in gpus),
        power_watts=_mean(gpu.power_watts for gpu in gpus),
        busy_ratio=_mean(gpu.busy_ratio for gpu in gpus),
        own_cause_ratio=own if shares else None,
        waiting_ratio=shares.get(WAITS, 0.0) if shares else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


LOST_SHARE: Final = 0.1  # A class that takes less of the job's time is not what makes it slow
STRAGGLER_SHARE: Final = 0.1  # Ranks of a synchronous job do not differ by more
PACE_SHARE: Final = 0.2  # A job so far below its own best pace is slow; checkpoints and evaluations cost less
_MOST_NAMED: Final = 3

_WORDS: Final = packaged_toml(__package__, "advice.toml")
OF_CLASS: Final[Mapping[str, str]] = _WORDS["finding-of-class"]
OF_OTHERS: Final[Mapping[str, str]] = _WORDS["others"]
_FIRST: Final[Mapping[str, str]] = _WORDS["first"]
STRAGGLER: Final = "clock.straggler"
_HUNG: Final = OF_CLASS["hung"]
_UNUSED: Final = "work.allocated_idle"


class Advice(NamedTuple):
    slow: str  # what slows the job down
    about: str  # the GPU or host to act on; "" for the job itself
    code: str  # the finding that the advice is from; "" if none
    first: str  # what to do first
    remarkable: bool = True  # whether anything slows it down


def advice_on(job: Job, comparison: Comparison) -> Advice:
    """What the comparison, the classes and the steps show; what to do first is a finding's, if one explains that."""
    culprit, seconds = comparison.culprit, 0.0 if job.pace is None else job.pace.stopped_seconds
    name = leading_class(job) if culprit is None else _main_class(culprit.gpus, NO_CAUSE)
    advice = _of_whole(job, comparison, name) if culprit is None else _of_culprit(culprit, comparison.alike, name)
    slow = advice.slow + (f"; no step for {length_of_time(seconds)}" if seconds else "")
    if culprit is None and job.odd_thread is not None:
        slow += f"; {job.odd_thread}"
        advice = Advice(slow, job.odd_thread.subject, _HUNG, _FIRST["rank"])
    finding = _explanation(job, culprit, name)
    return advice._replace(slow=slow) if finding is None else _of_finding(slow, finding, job)


def _of_culprit(culprit: Standing, alike: int, name: str | None) -> Advice:
    subject = culprit.subject
    if alike:
        subject += f", like {alike} other {'host' if culprit.is_host else 'GPU'}{'s' * (alike != 1)},"
    they_wait = "; the others wait for it" if "waiting" in culprit.reasons else ""
    if name is not None:
        share = shares_of(culprit.gpus)[name]
        return _of_class(f"{subject} is {STATES[name]} for {share:.0%} of its time{they_wait}", name, culprit.subject)
    own, others = culprit.own, culprit.others
    if own.clock_hertz is not None and others.clock_hertz and "clock" in culprit.reasons:
        them = "the others" if culprit.others_count > 1 else "the other"
        below = f"{subject} runs {1 - own.clock_hertz / others.clock_hertz:.0%} below the SM clock of {them}"
        slow = f"{below}{they_wait or ', and a synchronous job runs at its pace'}"
    elif own.busy_ratio is not None and others.busy_ratio is not None and "busy" in culprit.reasons:
        busy = f"busy for {own.busy_ratio:.0%} of its time, the others for {others.busy_ratio:.0%}"
        slow = f"{subject} is {busy}{they_wait}"
    elif "network" in culprit.reasons:
        slow = f"the others wait for {culprit.subject}: its network fails, or sends again, more than theirs"
    else:
        slow = f"the others wait for {culprit.subject}: they spin at low power, and it does not"
    if "clock" in culprit.reasons:
        return Advice(slow, culprit.subject, STRAGGLER, BY_CODE[STRAGGLER].advice.anywhere)
    return Advice(slow, culprit.subject, "", _FIRST["rank"])


def _of_whole(job: Job, comparison: Comparison, name: str | None) -> Advice:
    """Advice if no GPU and no host is slower than the others."""
    time, pace = job.time, job.pace
    if name is not None:
        share = shares_of(job.gpus)[name]
        return _of_class(f"its GPUs are {STATES[name]} for {share:.0%} of their time{_where(job, name)}", name)
    if time.unknown > time.total / 2:
        slow = f"for {time.unknown / time.total:.0%} of its time nothing is known about its GPUs"
        return Advice(slow, "", "", _FIRST["unknown"])
    # What the findings are about may hold it back nevertheless.
    but = f", but there is {job.findings[0].code} of {job.findings[0].subject}" if job.findings else ""
    unhindered = f"its GPUs lost no time to a bottleneck{but}"
    if pace is not None and not pace.stopped_seconds:
        rank, usual, lacking = pace.slowest or (None, 0.0, 0.0)
        if rank is not None and lacking > STRAGGLER_SHARE:
            slow = f"{rank.subject} makes {rank.per_second:.3g} steps a second, the median is {usual:.3g}"
            return Advice(slow, rank.subject, "", _FIRST["rank"])
        if (pace.below_best or 0.0) > PACE_SHARE:
            slow = f"it is {pace.below_best:.0%} below its own best pace, and {unhindered}"
            return Advice(slow, "", "", OF_OTHERS["unattributed"])
    alike = "no two are of one model" if comparison.gpu is None else "none of them is slower than the others"
    slow = unhindered if len(job.gpus) == 1 else f"{unhindered}, and {alike}"
    if pace is not None and pace.stopped_seconds:
        return Advice(slow, "", _HUNG, BY_CODE[_HUNG].advice.anywhere)
    return Advice(slow, "", "", _FIRST["profile"], remarkable=False)


def _of_class(slow: str, name: str, about: str = "") -> Advice:
    code = OF_CLASS.get(name, "")
    return Advice(slow, about, code, BY_CODE[code].advice.anywhere if code else OF_OTHERS[name])


def _of_finding(slow: str, finding: JobFinding, job: Job) -> Advice:
    check = finding.check
    do = OF_OTHERS["sick"] if check is None else check.advice.anywhere
    alike = [each for each in job.findings if (each.host, each.code) == (finding.host, finding.code)]
    about = finding.host.part(ranges(each.gpu for each in alike if each.gpu)) if finding.gpu else finding.subject
    if not finding.lasts:
        about += f" ({finding.code} ended {length_of_time(max(0.0, job.found.asked_at - finding.last))} ago)"
    return Advice(slow, about, finding.code, do)


def leading_class(job: Job) -> str | None:
    """The class that the job lost most time to; None if that is little. Gaps do not count."""
    return _main_class(job.gpus, GOOD)


def _main_class(gpus: Iterable[JobGpu], others: Collection[str]) -> str | None:
    """The class, none of these `others`, that took most of the GPUs' time; None if that is little."""
    shares = shares_of(gpus)
    return next((name for name in shares if name not in others and shares[name] >= LOST_SHARE), None)


def _where(job: Job, name: str) -> str:
    """The hosts that a class is on, unless it is on most."""
    hosts = dict.fromkeys(gpu.host for gpu in job.gpus if shares_of((gpu,)).get(name, 0.0) >= LOST_SHARE)
    if not hosts or len(hosts) > len(job.hosts) / 2:
        return ""
    return f", on {first_few([*map(str, hosts)], _MOST_NAMED)}{' hosts' if len(hosts) > _MOST_NAMED else ''}"


def _explanation(job: Job, culprit: Standing | None, name: str | None) -> JobFinding | None:
    """The finding to act on first; `name` is the class of the culprit, or else of the job."""
    # What has lasted comes before what has just begun; and the owner of a job that hangs need not free a GPU.
    own = (each for each in job.findings if not _explained(each, job.findings))
    used = (each for each in own if each.code != _UNUSED or not _stands(job))
    causes = sorted(used, key=lambda each: each.pending)
    critical = [each for each in causes if each.rank >= Severity.CRITICAL.rank]
    if culprit is not None:
        about_it = sorted(
            (each for each in causes if _is_about(each, culprit, name)),
            key=lambda each: (each.pending, each.topic != name, -each.rank),
        )
        # Where the rules know what the others wait for, what is critical elsewhere does not explain it.
        elsewhere = critical if job.loss is None else []
        ordered = _serious(about_it) or elsewhere or about_it
    elif critical or job.odd_thread is not None:
        ordered = critical
    else:
        ordered = _serious(causes) if name is None else [each for each in causes if each.topic == name]
    return next(iter(ordered), None)


def _serious(findings: Iterable[JobFinding]) -> list[JobFinding]:
    return [each for each in findings if each.rank >= Severity.WARNING.rank]


def _stands(job: Job) -> bool:
    if job.pace is not None:
        return bool(job.pace.stopped_seconds)
    return leading_class(job) == "hung" or (job.loss is not None and job.loss.pace == 0)


def _explained(finding: JobFinding, findings: Iterable[JobFinding]) -> bool:
    check = BY_CODE.get(finding.code)  # None: another release may have other findings
    causes = () if check is None else check.explained_by
    return any(each.code in causes and each.subject == finding.subject for each in findings)


def _is_about(finding: JobFinding, culprit: Standing, name: str | None) -> bool:
    if finding.gpu or finding.uuid:
        return (finding.host, finding.gpu, finding.uuid) in {(gpu.host, gpu.gpu, gpu.uuid) for gpu in culprit.gpus}
    # What concerns a whole host explains one slow GPU of several only if it is about the class of that GPU.
    return finding.host == culprit.host and (culprit.is_host or finding.topic == name)
