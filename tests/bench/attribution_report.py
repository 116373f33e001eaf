"""What the benchmark of attribution measured, and docs/benchmarks-attribution.md made of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.bench.attribution_faults import BACK_SECONDS, START_SECONDS, Fault

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
    """The page."""
    return "\n".join(
        [
            _HEAD,
            "## From the fault to its class, and back",
            "",
            _ATTRIBUTION_PROSE,
            *_attribution_table(list(attributions)),
            "",
            "## A start, or a restart, in the middle of it",
            "",
            _START_PROSE,
            *_start_table(list(starts)),
            "",
            "## A day on which nothing is wrong",
            "",
            _DAY_PROSE,
            *_day_table(days),
            "",
        ]
    )


def _attribution_table(attributions: list[Attribution]) -> Iterator[str]:
    tiers = sorted({each.fast_seconds for each in attributions})
    columns = [f"{what}, {tier} s" for what in ("class", "back") for tier in tiers]
    yield f"| class | what happens | promised | {' | '.join(columns)} | detours |"
    yield f"|---|---|---:|{'---:|' * len(columns)}---|"
    for fault in dict.fromkeys(each.fault for each in attributions):
        mine = {each.fast_seconds: each for each in attributions if each.fault == fault}
        onsets = [_cell(mine[tier].onset.seconds, promised(fault, tier)) for tier in tiers]
        ends = [_end_cell(mine[tier].end) for tier in tiers]
        detours = ", ".join(dict.fromkeys(name for each in mine.values() for name in each.detours))
        limit = "" if fault.promised is None else f"{fault.promised} s"
        yield f"| {fault.name} | {fault.what} | {limit} | {' | '.join(onsets + ends)} | {detours} |"


def _start_table(starts: list[Start]) -> Iterator[str]:
    tiers = sorted({each.fast_seconds for each in starts})
    yield f"| class | what happens | {' | '.join(f'{tier} s' for tier in tiers)} |"
    yield f"|---|---|{'---:|' * len(tiers)}"
    for fault in dict.fromkeys(each.fault for each in starts):
        mine = {each.fast_seconds: each.start.seconds for each in starts if each.fault == fault}
        yield f"| {fault.name} | {fault.what} | {' | '.join(_cell(mine[tier], START_SECONDS) for tier in tiers)} |"


def _day_table(days: Iterable[Day]) -> Iterator[str]:
    yield "| scenario | hours | fast tier | changes of class, a GPU |"
    yield "|---|---:|---:|---|"
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


_HEAD: Final = """# Benchmarks: attribution

How soon a fault has its bottleneck class on `/metrics`, and how calm classes are when nothing is wrong. `make
attribution` writes this page; do not edit it. Simulated hosts on a virtual clock, through the code of the daemon: the
figures are the same on every machine. Fast tiers of 1 s (the default) and 5 s, the other tiers at their defaults;
a figure beyond what is promised is **bold**.
"""

_ATTRIBUTION_PROSE: Final = f"""One L40S works for three minutes, then something happens to it or its host, and ends.
Times are until the published class is the right one and stays, at the worst of eight phases of onset and end against
the tiers. With a fast tier of 5 s everything may be {PHASE_SECONDS} s later. Back to `compute` is promised within
{BACK_SECONDS} s; an Xid counts for ten minutes, so what logs one has no way back here. Detours are other classes on the
way.
"""

_START_PROSE: Final = f"""The exporter starts on a host on which the same has been going on for three minutes. Its class
is promised within {START_SECONDS} s. What hangs, and what rests because a server is dead, is not listed: only an
exporter that saw it work can know.
"""

_DAY_PROSE: Final = f"""Two GPUs each. `h100-8` is at full load all day; `training-day` has bursts of 20 s with pauses
of 6 s, or of 36 s with 4 s, a pause between epochs every 45 minutes, a checkpoint every hour and an evaluation every
two. The limit is {MOST_CHANGES} changes per GPU per day.
"""
