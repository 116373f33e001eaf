"""What the benchmark of attribution measured, and the section of docs/benchmarks.md about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.bench.attribution_faults import BACK_SECONDS, START_SECONDS, Fault
from tests.bench.markdown import paragraph, row, table

MOST_CHANGES: Final = 2
"""Of the class of one GPU in a day on which nothing is wrong."""
PHASE_SECONDS: Final = 4
"""By how much a fast tier of 5 s instead of 1 s may be later, for what it is the first to see."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How a GPU came to its class.

    Attributes:
        seconds: until it was in that class for good; infinite if it never was.
        detours: other classes on the way.
    """

    seconds: float
    detours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribution:
    """How one fault was seen, at the worst of some phases.

    Attributes:
        fault: which.
        fast_seconds: the fast tier.
        onset: from the fault to its class.
        end: from the end of the fault back to the class before; None where that is not asked.
    """

    fault: Fault
    fast_seconds: int
    onset: Settled
    end: Settled | None

    @property
    def detours(self) -> tuple[str, ...]:
        """Other classes on the way there and back."""
        return self.onset.detours + (self.end.detours if self.end else ())


@dataclass(frozen=True, slots=True)
class Start:
    """How soon an exporter that starts has the class of a fault that began three minutes earlier."""

    fault: Fault
    fast_seconds: int
    start: Settled


@dataclass(frozen=True, slots=True)
class Day:
    """How often the class of each GPU changed, by GPU, on a host where nothing is wrong."""

    scenario: str
    hours: float
    fast_seconds: int
    changes: Mapping[str, int]


def promised(fault: Fault, fast_seconds: int) -> int | None:
    """Seconds within which a fault has its class."""
    return None if fault.promised is None else fault.promised + (PHASE_SECONDS if fast_seconds > 1 else 0)


def document(attributions: Iterable[Attribution], starts: Iterable[Start], days: Iterable[Day]) -> str:
    """The section."""
    return "\n".join(
        [
            "## Attribution",
            "",
            *paragraph(_PROSE),
            *_table(list(attributions), list(starts)),
            "",
            *paragraph(_DAY_PROSE),
            *_day_table(days),
            "",
        ]
    )


def _table(attributions: list[Attribution], starts: list[Start]) -> Iterator[str]:
    tiers = sorted({each.fast_seconds for each in attributions})
    columns = [f"{what}, {tier} s" for what in ("class", "back", "start") for tier in tiers]
    yield from table("class<", "what happens<", "promised", *columns, "detours<")
    faults = [*(each.fault for each in attributions), *(each.fault for each in starts)]
    for fault in dict.fromkeys(faults):
        mine = {each.fast_seconds: each for each in attributions if each.fault == fault}
        at_start = {each.fast_seconds: each.start.seconds for each in starts if each.fault == fault}
        cells = [
            *(_cell(mine[tier].onset.seconds, promised(fault, tier)) if tier in mine else "" for tier in tiers),
            *(_end_cell(mine[tier].end) if tier in mine else "" for tier in tiers),
            *(_cell(at_start[tier], START_SECONDS) if tier in at_start else "" for tier in tiers),
        ]
        detours = ", ".join(dict.fromkeys(name for each in mine.values() for name in each.detours))
        limit = "" if fault.promised is None else f"{fault.promised} s"
        yield row(fault.name, fault.what, limit, *cells, detours)


def _day_table(days: Iterable[Day]) -> Iterator[str]:
    yield from table("scenario<", "hours", "fast interval", "changes per GPU<")
    for day in days:
        changes = ", ".join(_most(count) for count in day.changes.values())
        yield f"| `{day.scenario}` | {day.hours:g} | {day.fast_seconds} s | {changes} |"


def _cell(seconds: float, limit: int | None) -> str:
    text = "never" if math.isinf(seconds) else f"{seconds:.0f} s"
    return f"**{text}**" if limit is not None and seconds > limit else text


def _end_cell(end: Settled | None) -> str:
    return "" if end is None else _cell(end.seconds, BACK_SECONDS)


def _most(changes: int) -> str:
    return f"**{changes}**" if changes > MOST_CHANGES else str(changes)


_PROSE: Final = f"""How soon a fault of one simulated L40S or its host has its bottleneck class on `/metrics`
    (*class*), how soon after its end the class is `compute` again (*back*, promised within {BACK_SECONDS} s), and how
    soon an exporter that starts in the middle of it has the class (*start*, promised within {START_SECONDS} s). Fast
    intervals of 1 s, the default, and of 5 s, with which everything may take {PHASE_SECONDS} s more; the worst of
    eight phases. *Detours* are other classes on the way. `python -m tests.bench attribution` plays
    this on a virtual clock: the figures
    are the same on every machine. A figure beyond what is promised is **bold**. An Xid counts for ten minutes, so
    there is no way back after one; what hangs can only be recognized by an exporter that saw it work."""

_DAY_PROSE: Final = f"""Changes of the class on a day on which nothing is wrong, at full load and with bursts, pauses,
    checkpoints and evaluations. At most {MOST_CHANGES} changes per GPU are promised."""
