"""Findings as entries of a report: equal ones of several GPUs as one, each with how long it has lasted."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.check import Unit
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import EndReason
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLUSTER, OF_SEVERITY, Words

_LOW_IS_WORSE: Final = frozenset({Unit.LANES, Unit.GENERATION, Unit.HERTZ, Unit.CELSIUS})
_ADDRESS: Final = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_AMOUNT: Final = (
    r"(?<![\w.:/(-])[0-9]+(?:\.[0-9]+)?"
    r"(?=%| °C| (?:W|MHz|GB/s|GiB|MiB/s|s|min|h|days|of|lanes|replays|changes|times)\b"
    r"| (?:correctable|corrected|nonfatal|fatal)\b)"
)
"""A number with its unit. Other numbers are names: of GPUs, Xids, processes."""
_PIECES: Final = re.compile(f"({_ADDRESS})|({_AMOUNT})")
_UNUSUAL_ENDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        EndReason.UNSEEN.value: "could not be observed for a day",
        EndReason.RESET.value: "the GPU was reset",
        EndReason.REPLACED.value: "the GPU was replaced",
        EndReason.MOVED.value: "it continues under the GPU's UUID",
    }
)
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
        same = (each.check.code, each.urgency, each.state, each.holds, each.explained_by, each.advice)
        groups.setdefault(place if each.gpu is None else same, []).append(each)
    return tuple(map(tuple, groups.values()))


def entry_of(findings: Sequence[Finding], words: Words) -> Entry:
    """Merge findings of one kind: values that differ become a range, or the worst with its GPU."""
    longest = max(findings, key=lambda finding: finding.lasted_seconds)
    indices = [finding.gpu for finding in findings if finding.gpu is not None]
    began = [each.since for each in findings if each.since is not None and each.state is not State.PENDING]
    return Entry(
        f"GPU {ranges(indices)}" if len(indices) == len(findings) else findings[0].subject,
        _in_one([finding.measured for finding in findings]) or _worst(findings),
        min(began, default=None),
        _in_one([life_cycle(finding, words) for finding in findings]) or life_cycle(longest, words),
    )


def _in_one(texts: Sequence[str]) -> str:
    """Merge texts that differ in amounts and addresses only; "" if anything else differs.

    Example:
        >>> _in_one(["throttled 31% of the time", "throttled 64% of the time"])
        'throttled 31% to 64% of the time'
    """
    split = [_PIECES.split(text) for text in texts]
    if len({len(pieces) for pieces in split}) != 1:
        return ""
    merged = []
    for place, pieces in enumerate(zip(*split, strict=True)):
        distinct = list(dict.fromkeys(pieces))
        if len(distinct) == 1:
            merged.append(distinct[0] or "")
            continue
        # The pattern has two groups: plain text, address and amount follow each other.
        kind = place % 3
        if kind == 0 or None in distinct:
            return ""
        if kind == 1:
            merged.append(", ".join(distinct))
        else:
            ordered = sorted(distinct, key=float)
            percent = "%" if all(piece[place + 1].startswith("%") for piece in split) else ""
            merged.append(f"{ordered[0]}{percent} to {ordered[-1]}")
    return "".join(merged)


def _worst(findings: Sequence[Finding]) -> str:
    """The measured text of the worst, with its GPU."""
    known = [finding for finding in findings if finding.value is not None]
    if len(known) < len(findings):
        return f"{findings[0].measured} (on {findings[0].subject})"
    measure = findings[0].check.measure
    sign = -1.0 if measure is not None and measure.unit in _LOW_IS_WORSE else 1.0
    worst = max(known, key=lambda finding: sign * (finding.value or 0.0))
    return f"{worst.measured} (on {worst.subject}, the worst)"


def life_cycle(finding: Finding, words: Words = CLUSTER) -> str:
    """How long a finding has lasted and must last, and what follows; "" for a confirmed one whose condition holds.

    Example: ``has lasted 40 s of 10 min; then critical: drain``.
    """
    return "; ".join(_life_cycle(finding, words))


def _life_cycle(finding: Finding, words: Words) -> Iterator[str]:
    if finding.state is State.PENDING:
        wait = length_of_time(finding.wait_seconds)
        observed = finding.since is not None
        yield f"has lasted {length_of_time(finding.lasted_seconds)} of {wait}" if observed else f"must last {wait}"
        if finding.severity is Severity.CRITICAL:
            yield f"then {finding.severity.value}: {words.verdicts[OF_SEVERITY[Severity.CRITICAL]]}"
    if finding.holds is None:
        yield "cannot be observed now"
    elif not finding.holds:
        hold = length_of_time(finding.hold_seconds)
        yield f"gone for {length_of_time(finding.quiet_seconds)}, ends after {hold}"


def ended_text(finding: Finding, now: float) -> tuple[str, str]:
    """Return the text before and after a finding that ended: ``ended 5 min ago`` and ``lasted 25 min``.

    `now` is in Unix seconds.
    """
    ago = "" if finding.ended_at is None else f" {length_of_time(max(0.0, now - finding.ended_at))} ago"
    lasted = f"lasted {length_of_time(finding.lasted_seconds)}"
    return f"ended{ago}", ", ".join(filter(None, (lasted, _UNUSUAL_ENDS.get(finding.end, ""))))
