"""Series written by hand, a sample a minute, and what the rules make of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from tests.rules.expressions import uses
from tests.rules.promtool import Alert, Run, ask, selector
from tests.rules.rulefile import read_rules, rule_files

MINUTES = 60
_TARGET = re.compile(r'\b(cluster|instance|job)="([^"]*)"')

Series = Mapping[str, Sequence[float]]


class Firing(Protocol):
    """The minutes at which an alert fires, given these series."""

    def __call__(self, alert: str, series: Series, *, minutes: int = MINUTES) -> frozenset[int]:
        """Ask for the first so many minutes."""


class Told(Protocol):
    """The alerts of a name that fire at a minute, given these series, with their texts."""

    def __call__(self, alert: str, series: Series, minute: int) -> tuple[Alert, ...]:
        """Ask for one minute."""


@cache
def needed_for(alert: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The rule file that has an alert, the one that records what it reads, and their groups in order.

    All the others would be evaluated every minute for nothing.
    """
    files = [path for path in rule_files() if any(rule.name == alert for rule in read_rules((path,)))]
    read = {use.metric for rule in read_rules(files) for use in uses(rule.expr)}
    recording = [path for path in rule_files() if path not in files and read & {r.name for r in read_rules((path,))}]
    chosen = (*recording, *files)
    return chosen, tuple(dict.fromkeys(rule.group for rule in read_rules(chosen)))


def with_time(series: Series) -> Series:
    """These series, and what an exporter always says: the time by each host's clock, which is right here."""
    targets = {tuple(_TARGET.findall(key)): len(values) for key, values in series.items()}
    times = {
        selector("gpu_exporter_time_seconds", target): [minute * 60.0 for minute in range(length)]
        for target, length in targets.items()
        if "instance" in dict(target)
    }
    return {**times, **series}


def told_by(promtool: Path, directory: Path) -> Told:
    """A way to ask this promtool for texts, with a directory for its input."""

    def ask_for(alert: str, series: Series, minute: int) -> tuple[Alert, ...]:
        asked = (alert, minute * 60.0)
        files, groups = needed_for(alert)
        return ask(promtool, Run(files, groups, 60, with_time(series), alerts=(asked,)), directory).alerts[asked]

    return ask_for


def firing_of(promtool: Path, directory: Path) -> Firing:
    """A way to ask this promtool, with a directory for its input."""

    def ask_for(alert: str, series: Series, *, minutes: int = MINUTES) -> frozenset[int]:
        files, groups = needed_for(alert)
        question = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        questions = tuple((question, minute * 60.0) for minute in range(minutes))
        answers = ask(promtool, Run(files, groups, 60, with_time(series), questions), directory)
        return frozenset(round(at / 60) for (_, at), samples in answers.samples.items() if samples)

    return ask_for


def gpu(metric: str, values: Sequence[float], uuid: str = "GPU-1", **labels: str) -> dict[str, Sequence[float]]:
    """A series of one GPU."""
    pairs = {"gpu": "0", "instance": "a", "job": "gpu-triage", "uuid": uuid, **labels}
    return {selector(metric, pairs.items()): values}


def host(metric: str, values: Sequence[float], instance: str = "a", **labels: str) -> dict[str, Sequence[float]]:
    """A series of a host; a label that is given replaces one of its target."""
    pairs = {"instance": instance, "job": "gpu-triage", **labels}
    return {selector(metric, pairs.items()): values}


def counter(a_minute: Iterable[float]) -> list[float]:
    """A counter that grows by so much in each minute."""
    return list(accumulate(a_minute, initial=0.0))[1:]
