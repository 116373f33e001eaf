"""What to do first about a slow job, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpu_triage.cli.job.cause import PACE_SHARE, leading_class, own_class, slow_in_words, subject_of
from gpu_triage.cli.job.compare import Comparison, Standing
from gpu_triage.cli.job.view import WAITS, Job, JobFinding
from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.table import BY_CODE, EXPLAINED_BY, Severity

OF_CLASS: Final = {
    "thermal": "thermal.hw",
    "power_brake": "power.brake",
    "pcie_link": "pcie.width",
    "power_cap": "power.cap",
    "clock_cap": "clock.policy",
    "hung": "work.hung",
    "memory": "memory.starved",
    "storage": "storage.starved",
    "cpu": "cpu.starved",
    "network": "network.starved",
    "numa": "numa.mismatch",
    WAITS: "work.low_power",
}
"""The finding that advises on a class, for when no finding was published."""
STRAGGLER: Final = "clock.straggler"
_HUNG: Final = OF_CLASS["hung"]
_RANK: Final = "Look at what runs there first (py-spy dump, its log), then at the host with gpu-triage check."
_SICK: Final = "Run gpu-triage check on its host."
_PROFILE: Final = "Profile the job: nothing outside of it holds its GPUs back."
_INSIDE: Final = (
    "Look inside the job (py-spy dump on its ranks, its log): its GPUs wait for something that is not seen here."
)
_UNKNOWN: Final = "See why Prometheus has no data of its hosts: gpu-triage fleet shows exporters that do not answer."


class Advice(NamedTuple):
    """The answer.

    Attributes:
        slow: what slows the job down.
        about: the GPU or host to act on; "" for the job itself.
        code: the finding that the advice is from; "" if none.
        first: what to do first.
        remarkable: whether anything slows it down.
    """

    slow: str
    about: str
    code: str
    first: str
    remarkable: bool


def advice_on(job: Job, comparison: Comparison) -> Advice:
    """What slows the job down, and what to do first.

    A finding about what the others wait for comes first, then critical findings, then what the comparison and the
    classes show, then other warnings.
    """
    culprit = comparison.culprit
    causes = [each for each in job.findings if not _explained(each, job.findings)]
    about_culprit = [each for each in causes if culprit is not None and _is_about(each, culprit, comparison)]
    urgent = [each for each in causes if each.rank >= Severity.CRITICAL.rank]
    serious = [each for each in about_culprit if each.rank >= Severity.WARNING.rank]
    slow = slow_in_words(job, comparison)
    for each in _fitting(serious, culprit) or urgent or _fitting(about_culprit, culprit):
        return _of_finding(slow, each, job)
    if culprit is not None:
        return _of_culprit(slow, culprit, comparison)
    name = leading_class(job)
    for each in causes:
        if name is not None and each.check is not None and each.check.topic == name:
            return _of_finding(slow, each, job)
    if name is not None:
        return _of_class(slow, name)
    for each in causes:
        if each.rank >= Severity.WARNING.rank:
            return _of_finding(slow, each, job)
    return _of_pace(slow, job)


def _of_pace(slow: str, job: Job) -> Advice:
    """Advice if neither findings nor classes nor the comparison show anything."""
    time, pace = job.time, job.pace
    if time.unknown > time.total / 2:
        return Advice(slow, "", "", _UNKNOWN, remarkable=True)
    if pace is not None and pace.stopped_seconds:
        return Advice(slow, "", _HUNG, BY_CODE[_HUNG].advice.decision, remarkable=True)
    if pace is not None and pace.straggler is not None:
        return Advice(slow, pace.straggler.subject, "", _RANK, remarkable=True)
    if pace is not None and (pace.below_best or 0.0) > PACE_SHARE:
        return Advice(slow, "", "", _INSIDE, remarkable=True)
    return Advice(slow, "", "", _PROFILE, remarkable=False)


def _fitting(findings: list[JobFinding], culprit: Standing | None) -> list[JobFinding]:
    """The findings in the order of how well they explain an outlier."""
    name = "" if culprit is None else own_class(culprit) or ""

    def order(finding: JobFinding) -> tuple[bool, int]:
        return (finding.check is None or finding.check.topic != name, -finding.rank)

    return sorted(findings, key=order)


def _explained(finding: JobFinding, findings: Iterable[JobFinding]) -> bool:
    causes = EXPLAINED_BY.get(finding.code, ())
    return any(each.code in causes and each.subject == finding.subject for each in findings)


def _is_about(finding: JobFinding, culprit: Standing, comparison: Comparison) -> bool:
    if finding.gpu or finding.uuid:
        return (finding.host, finding.gpu, finding.uuid) in {(gpu.host, gpu.gpu, gpu.uuid) for gpu in culprit.gpus}
    # What concerns a whole host explains one slow GPU of several only if it is about the class of that GPU.
    own = finding.check is not None and finding.check.topic == own_class(culprit)
    return finding.host == culprit.host and (comparison.culprit_is_host or own)


def _of_finding(slow: str, finding: JobFinding, job: Job) -> Advice:
    check = finding.check
    do = _SICK if check is None else check.advice.decision
    about = finding.subject
    if finding.gpu:
        alike = [each for each in job.findings if (each.host, each.code) == (finding.host, finding.code)]
        about = f"GPU {ranges(each.gpu for each in alike if each.gpu)} of {finding.host}"
    if not finding.lasts:
        about += f" ({finding.code} ended {length_of_time(max(0.0, job.found.asked_at - finding.last))} ago)"
    return Advice(slow, about, finding.code, do, remarkable=True)


def _of_culprit(slow: str, culprit: Standing, comparison: Comparison) -> Advice:
    about = subject_of(culprit, is_host=comparison.culprit_is_host)
    name = own_class(culprit)
    if name is not None:
        return _of_class(slow, name, about)
    if "clock" not in culprit.reasons:
        return Advice(slow, about, "", _RANK, remarkable=True)
    return Advice(slow, about, STRAGGLER, BY_CODE[STRAGGLER].advice.decision, remarkable=True)


def _of_class(slow: str, name: str, about: str = "") -> Advice:
    code = OF_CLASS.get(name, "")
    do = BY_CODE[code].advice.decision if code else _INSIDE if name == "unattributed" else _SICK
    return Advice(slow, about, code, do, remarkable=True)
