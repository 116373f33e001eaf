"""The same finding on several GPUs as one entry, so that eight equal ones do not hide a ninth."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.check import Unit
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.report.life_cycle import life_cycle_of
from gpu_triage.judge.report.words import Words

T = TypeVar("T")

_LOW_IS_WORSE: Final = frozenset({Unit.LANES, Unit.GENERATION, Unit.HERTZ, Unit.CELSIUS})
_ADDRESS: Final = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_AMOUNT: Final = (
    r"(?<![\w.:/(-])[0-9]+(?:\.[0-9]+)?"
    r"(?=%| °C| (?:W|MHz|GB/s|GiB|MiB/s|s|min|h|days|of|lanes|replays|changes|times)\b"
    r"| (?:correctable|corrected|nonfatal|fatal)\b)"
)
"""A number with its unit. Other numbers are names: of GPUs, Xids, processes."""
_PIECES: Final = re.compile(f"({_ADDRESS})|({_AMOUNT})")


class Entry(NamedTuple):
    """One finding as shown, of one or more GPUs."""

    subject: str  # ``GPU 0-1, 4`` or ``host``
    measured: str
    life_cycle: str  # how long it has lasted, and what follows; "" if there is nothing to say


class Fact(NamedTuple):
    """One of several findings of a kind: what differs between them."""

    code: str
    gpu: str | None  # index; None for the host, and for a GPU without an index
    subject: str
    measured: str
    value: float | None
    life_cycle: str
    lasted_seconds: float


def alike(items: Iterable[T], key: Callable[[T], Hashable | None]) -> tuple[tuple[T, ...], ...]:
    """Group items with the same key, in order of the first of each; an item without a key stays alone."""
    groups: dict[Hashable, list[T]] = {}
    for place, item in enumerate(items):
        own = key(item)
        groups.setdefault((place, None) if own is None else (None, own), []).append(item)
    return tuple(map(tuple, groups.values()))


def grouped(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], ...]:
    """Group findings that say the same about GPUs: of one kind, state, cause and advice."""
    return alike(findings, _key)


def entry_of(findings: Sequence[Finding], words: Words) -> Entry:
    return entry([_fact(finding, words) for finding in findings])


def entry(facts: Sequence[Fact]) -> Entry:
    """Merge facts of one kind: values that differ become a range, or the worst with its GPU."""
    longest = max(facts, key=lambda fact: fact.lasted_seconds)
    indices = [fact.gpu for fact in facts if fact.gpu is not None]
    return Entry(
        f"GPU {ranges(indices)}" if len(indices) == len(facts) else facts[0].subject,
        _in_one([fact.measured for fact in facts]) or _worst(facts),
        _in_one([fact.life_cycle for fact in facts]) or longest.life_cycle,
    )


def _key(finding: Finding) -> Hashable | None:
    if finding.gpu is None:
        return None
    return finding.check.code, finding.urgency, finding.state, finding.holds, finding.explained_by, finding.advice


def _fact(finding: Finding, words: Words) -> Fact:
    return Fact(
        finding.check.code,
        finding.gpu,
        finding.subject,
        finding.measured,
        finding.value,
        life_cycle_of(finding).told(words),
        finding.lasted_seconds,
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


def _worst(facts: Sequence[Fact]) -> str:
    """The measured text of the worst, with its GPU."""
    known = [fact for fact in facts if fact.value is not None]
    if len(known) < len(facts):
        return f"{facts[0].measured} (on {facts[0].subject})"
    measure = BY_CODE[facts[0].code].measure if facts[0].code in BY_CODE else None
    sign = -1.0 if measure is not None and measure.unit in _LOW_IS_WORSE else 1.0
    worst = max(known, key=lambda fact: sign * (fact.value or 0.0))
    return f"{worst.measured} (on {worst.subject}, the worst)"
