"""How soon a state of a machine has its class, what is taken for what, and how steady classes are.

The states are those of tests/states. Everything runs on a virtual clock, through the same code as in the daemon, so the
figures are the same on every machine.
"""

import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from random import Random
from typing import Any, Final

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.states.play import PHASES_SECONDS, Changes, Seen, play, steady_day
from tests.states.states import FAMILIES, STATES

WITHIN_SECONDS: Final = (10, 20, 60)
CONFUSED_SECONDS: Final = 60
"""After how long what was found is held against what was wanted; later for a state with a longer promise."""
FAST_SECONDS: Final = (1.0, 5.0)
"""The fast tiers of the days; the others have their defaults."""
DAYS: Final = ("h100-8", "training-day")
"""Scenarios in which nothing is wrong: full load all day, and a job with bursts, epochs and checkpoints."""
PROCESSES: Final = 2


def changes_of(number: int, phase: float) -> Mapping[int, Changes]:
    """The classes that one of the states had: a state itself does not pass between processes."""
    return play(STATES[number], phase).changes


def speed(kind: str, seen: Iterable[Seen]) -> dict[str, object]:
    """How soon GPUs that had to change their class had it."""
    plays = [each for each in seen if each.state.must_change]
    seconds = sorted(each.seconds for each in plays)
    return {
        "states<": kind,
        "onsets": len(plays),
        **{f"within {most} s": _share(sum(each <= most for each in seconds), len(plays)) for most in WITHIN_SECONDS},
        "median": _percentile(seconds, 0.5),
        "90 %": _percentile(seconds, 0.9),
    }


def steadiness(seen: Sequence[Seen]) -> Iterator[str]:
    """Where a class did not last, and how soon an exporter that starts in a state has it."""
    stay = [each for each in seen if not each.state.must_change and not each.state.unseen_before]
    unseen = sorted(each.seconds for each in seen if each.state.unseen_before)
    left = sorted({each.state.name for each in seen if each.flips} | {each.state.name for each in stay if each.seconds})
    yield f"Left again, or changed in {len(stay)} onsets without a change to make: {', '.join(left) or 'none'}."
    known = f"{_percentile(unseen, 0.9)} for 90 %, {_percentile(unseen, 1.0)} at most" if unseen else "not played"
    yield f"After {len(unseen)} starts in a state: {known}."


def _share(some: int, of: int) -> str:
    return f"{some / of:.0%}" if of else ""


def _percentile(ascending: Sequence[float], share: float) -> str:
    """A value that was measured, and that this share of them does not exceed."""
    if not ascending:
        return ""
    value = ascending[math.ceil(share * len(ascending)) - 1]
    return "never" if math.isinf(value) else f"{value:.0f} s"


def _pairs(seen: Seen) -> Iterator[tuple[str, str]]:
    after = max(CONFUSED_SECONDS, seen.state.promised)
    return ((wanted, seen.at(gpu, after)) for gpu, wanted in seen.state.classes.items())


def mistakes(seen: Iterable[Seen]) -> Iterator[str]:
    """What was found instead of the class that was wanted, by state."""
    wrong = Counter(
        (each.state.name, *pair) for each in seen for pair in sorted(set(_pairs(each))) if pair[0] != pair[1]
    )
    for (name, wanted, found), count in wrong.items():
        yield f"- {name}: `{found}` instead of `{wanted}`, at {count} onset{'' if count == 1 else 's'}"


@click.command(help=__doc__)
@click.option("--only", default="", help="Kinds and states with this in their name.")
@click.option("--onsets", default=3, show_default=True, help="How many of each state, at random phases of the tiers.")
@click.option("--seed", default=1, show_default=True, help="Of the phases.")
@click.option("--hours", default=1.0, show_default=True, help="Of each day on which nothing is wrong.")
@TO_SCREEN
def main(only: str, onsets: int, seed: int, hours: float, *, to_screen: bool) -> None:
    phases = Random(seed)
    jobs = [
        (number, phases.uniform(0.0, PHASES_SECONDS))
        for number, state in enumerate(STATES)
        for _ in range(onsets)
        if only in f"{state.kind} {state.name}"
    ]
    # What befalls the simulated host would be an alarm in the log of this program.
    with ProcessPoolExecutor(PROCESSES, initializer=logging.disable) as pool:
        # The days first: they take longest.
        days = {(name, tier): pool.submit(steady_day, name, tier, hours) for tier in FAST_SECONDS for name in DAYS}
        played = {pool.submit(changes_of, *job): job[0] for job in jobs}
        futures: list[Future[Any]] = [*days.values(), *played]
        with click.progressbar(length=len(futures), file=sys.stderr) as bar:
            for _ in as_completed(futures):
                bar.update(1)
    seen = [Seen(STATES[number], future.result()) for future, number in played.items()]
    soon = [each for each in seen if each.state.promised <= CONFUSED_SECONDS]
    groups = {"all": seen, "all but hangs": soon} | {
        kind: [each for each in seen if each.state.kind == kind]
        for kind in FAMILIES
        if to_screen or any(each.state.kind == kind and each.seconds > WITHIN_SECONDS[-1] for each in seen)
    }
    changed = (f"{sum(day.result().values())} (`{name}`, {tier:g} s)" for (name, tier), day in days.items())
    lines = (
        *(conditions(), ""),
        *table(speed(kind, each) for kind, each in groups.items() if any(play.state.must_change for play in each)),
        *("", *(list(mistakes(seen)) or ["Wrong: none."]), ""),
        *steadiness(seen),
        *("", f"Changes in {hours:g} h: {', '.join(changed)}."),
    )
    report("attribution", lines, to_screen=to_screen)
