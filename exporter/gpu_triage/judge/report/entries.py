"""Findings as entries of a report: equal ones of several GPUs as one, each with how long it has lasted."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import EndReason
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLUSTER, OF_SEVERITY, Words

_UNUSUAL_ENDS: Final[Mapping[str, str]] = {
    EndReason.UNSEEN.value: "could not be observed for a day",
    EndReason.RESET.value: "the GPU was reset",
    EndReason.REPLACED.value: "the GPU was replaced",
    EndReason.MOVED.value: "continued under the UUID of its GPU, which was unknown",
}
"""Why a finding ended, except for the usual reason that its condition no longer held."""


class Entry(NamedTuple):
    """One finding as shown, of one or more GPUs."""

    subject: str  # ``GPU 0-1, 4`` or ``host``
    measured: str
    since: float | None  # Unix seconds when it was first observed, if it is not pending; None if unknown
    life_cycle: str  # how long it has lasted, and what follows; "" if there is nothing to say


def grouped(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], ...]:
    """Group findings that say the same about GPUs (of one kind, state, cause and advice), in order of the first."""
    groups: dict[Hashable, list[Finding]] = {}
    for place, each in enumerate(findings):
        quiet = quiet_text(each)
        same = (each.check.code, each.urgency, each.state, each.holds, each.explained_by, each.advice, quiet)
        groups.setdefault(place if each.gpu is None else same, []).append(each)
    return tuple(map(tuple, groups.values()))


def entry_of(findings: Sequence[Finding], words: Words) -> Entry:
    """Return several findings of one kind as one, with the life cycle of the one that has lasted longest."""
    indices = [finding.gpu for finding in findings if finding.gpu is not None]
    began = [each.since for each in findings if each.since is not None and each.state is not State.PENDING]
    return Entry(
        f"GPU {ranges(indices)}" if len(indices) == len(findings) else findings[0].subject,
        _measured(findings),
        min(began, default=None),
        life_cycle(max(findings, key=lambda finding: finding.lasted_seconds), words),
    )


def quiet_text(finding: Finding) -> str:
    """Return how it is accepted; "" if it is not."""
    accepted = finding.accepted
    return "" if accepted is None else accepted_text(accepted.until, accepted.by, accepted.reason)


def accepted_text(until: float, by: str, reason: str) -> str:
    """Return ``by jd until 2026-12-25 00:00 UTC: the riser is on order``."""
    return f"by {by} until {minute(until)}: {reason}"


def minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _measured(findings: Sequence[Finding]) -> str:
    """What was measured; where that differs, the range of the values, and what was measured on the worst GPU."""
    first = findings[0]
    if all(each.measured == first.measured for each in findings):
        return first.measured
    measure, values = first.check.measure, [each.value for each in findings if each.value is not None]
    if measure is None or len(values) < len(findings):
        return f"{first.measured} (on {first.subject})"
    sign = -1.0 if measure.low_is_worse else 1.0
    worst = max(findings, key=lambda finding: sign * (finding.value or 0.0))
    spread = f"{measure.said(*values)}; " if len(set(values)) > 1 else ""
    return f"{spread}{worst.measured} (on {worst.subject}, the worst)"


def life_cycle(finding: Finding, words: Words = CLUSTER) -> str:
    """Return ``has lasted 40 s of 10 min; then critical: drain``; "" if confirmed and its condition holds."""
    said: list[str] = []
    if finding.state is State.PENDING:
        wait = length_of_time(finding.check.wait_seconds)
        lasted = f"has lasted {length_of_time(finding.lasted_seconds)} of {wait}"
        said.append(f"must last {wait}" if finding.since is None else lasted)
        if finding.severity is Severity.CRITICAL and finding.accepted is None:
            said.append(f"then {finding.severity.value}: {words.verdicts[OF_SEVERITY[Severity.CRITICAL]]}")
    if finding.holds is None:
        said.append("cannot be observed now")
    elif not finding.holds:
        hold = length_of_time(finding.check.hold_seconds)
        said.append(f"gone for {length_of_time(finding.quiet_seconds)}, ends after {hold}")
    return "; ".join(said)


def ended_text(finding: Finding, now: float) -> tuple[str, str]:
    """Return ``ended 5 min ago`` and ``lasted 25 min`` of a finding that ended; `now` is in Unix seconds."""
    ago = "" if finding.ended_at is None else f" {length_of_time(max(0.0, now - finding.ended_at))} ago"
    lasted = f"lasted {length_of_time(finding.lasted_seconds)}"
    return f"ended{ago}", ", ".join(filter(None, (lasted, _UNUSUAL_ENDS.get(finding.end, ""))))
