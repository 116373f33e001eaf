"""What slows the job down, in one sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from gpu_triage.cli.fleet.view import HostKey
from gpu_triage.cli.job.compare import Comparison, Standing
from gpu_triage.cli.job.pace import Pace
from gpu_triage.cli.job.view import GOOD, WAITS, Job, JobGpu
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.report.headline import STATES

LOST_SHARE: Final = 0.1
"""A class that takes less of the job's time is not what makes it slow."""
PACE_SHARE: Final = 0.2
"""A job so far below its own best pace is slow; checkpoints and evaluations cost less."""
_MOST_NAMED: Final = 3


def subject_of(standing: Standing, *, is_host: bool) -> str:
    """Display name of what is compared: ``GPU 3 of gpu-07:9836``, ``gpu-07:9836``."""
    return str(standing.host) if is_host else standing.gpus[0].subject


def own_class(standing: Standing) -> str | None:
    """The class, with a cause of its own, that took most of its time; None if that is little."""
    seconds = _sums(standing.gpus)
    total = sum(seconds.values())
    causes = {name: value for name, value in seconds.items() if name not in {*GOOD, WAITS, "unattributed"}}
    name = max(causes, key=lambda each: causes[each], default=None)
    return name if name is not None and causes[name] >= LOST_SHARE * total else None


def _sums(gpus: Iterable[JobGpu]) -> defaultdict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for gpu in gpus:
        for name, value in gpu.seconds.items():
            sums[name] += value
    return sums


def slow_in_words(job: Job, comparison: Comparison) -> str:
    """What slows the job down, and that it has stopped."""
    pace = job.pace
    stopped = (
        f"; no step for {length_of_time(pace.stopped_seconds)}" if pace is not None and pace.stopped_seconds else ""
    )
    if comparison.culprit is not None:
        return _slow_part(comparison.culprit, comparison) + stopped
    return _slow_whole(job, comparison) + stopped


def _slow_whole(job: Job, comparison: Comparison) -> str:
    """What slows the job down if no GPU or host is an outlier."""
    name, time, pace = leading_class(job), job.time, job.pace
    if name is not None:
        # The whole is what is known: gaps are counted on their own.
        share = time.by_class[name] / sum(time.by_class.values())
        return f"its GPUs are {STATES[name]} for {share:.0%} of their time{_where(job, name)}"
    if time.unknown > time.total / 2:
        return f"for {time.unknown / time.total:.0%} of its time nothing is known about its GPUs"
    paced = _slow_pace(pace)
    if paced is not None:
        return paced
    if len(job.gpus) == 1:
        return "nothing holds its GPU back"
    if comparison.gpu is None:
        return "nothing holds its GPUs back, and no two are of one model"
    return "nothing holds its GPUs back, and none of them is slower than the others"


def _slow_pace(pace: Pace | None) -> str | None:
    """What the job's own steps show; None if nothing."""
    if pace is None or pace.stopped_seconds:
        return None
    if pace.straggler is not None and pace.slowest is not None:
        rank, usual = pace.straggler, pace.slowest[1]
        return f"{rank.subject} makes {rank.per_second:.3g} steps a second, the median is {usual:.3g}"
    if (pace.below_best or 0.0) > PACE_SHARE:
        return f"it is {pace.below_best:.0%} below its own best pace, and nothing seen holds its GPUs back"
    return None


def _slow_part(culprit: Standing, comparison: Comparison) -> str:
    subject = named = subject_of(culprit, is_host=comparison.culprit_is_host)
    if comparison.alike:
        what = "host" if comparison.culprit_is_host else "GPU"
        subject += f", like {comparison.alike} other {what}{'s' * (comparison.alike != 1)},"
    they_wait = "; the others wait for it" if "waiting" in culprit.reasons else ""
    name = own_class(culprit)
    if name is not None:
        seconds = _sums(culprit.gpus)
        share = seconds[name] / sum(seconds.values())
        return f"{subject} is {STATES[name]} for {share:.0%} of its time{they_wait}"
    own, others = culprit.own, culprit.others
    if own.clock is not None and others.clock and "clock" in culprit.reasons:
        them = "the others" if culprit.others_count > 1 else "the other"
        below = f"{subject} runs {1 - own.clock / others.clock:.0%} below the SM clock of {them}"
        return f"{below}{they_wait or ', and a synchronous job runs at its pace'}"
    if own.busy is not None and others.busy is not None and "busy" in culprit.reasons:
        return f"{subject} is busy for {own.busy:.0%} of its time, the others for {others.busy:.0%}{they_wait}"
    return f"the others wait for {named}: they spin at low power, and it does not"


def _where(job: Job, name: str) -> str:
    """The hosts that a class is on, unless it is on most."""
    hosts: dict[HostKey, None] = {}
    for gpu in job.gpus:
        if gpu.seconds.get(name, 0.0) >= LOST_SHARE * sum(gpu.seconds.values()):
            hosts[gpu.host] = None
    if not hosts or len(hosts) > len(job.hosts) / 2:
        return ""
    more = len(hosts) - _MOST_NAMED
    return f", on {', '.join(map(str, [*hosts][:_MOST_NAMED]))}" + (f" and {more} more hosts" if more > 0 else "")


def leading_class(job: Job) -> str | None:
    """The class that the job lost most time to; None if that is little."""
    by_class = job.time.by_class
    lost = [name for name in by_class if name not in GOOD]
    known = sum(by_class.values())
    return lost[0] if lost and by_class[lost[0]] >= LOST_SHARE * known else None
