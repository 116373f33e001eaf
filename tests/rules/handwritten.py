"""Series written by hand, a sample a minute, and what the rules make of all cases of a file in one run of promtool."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tests.promql.promtool import Alert, Run, ask, selector
from tests.rules.rulefile import groups_of

FIRING = 'ALERTS{alertstate="firing"}'

Series = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Played:
    """What the rules said of one case."""

    # minutes at which each alert fired, by name, by its other labels
    firing: Mapping[str, Mapping[frozenset[tuple[str, str]], frozenset[int]]]
    shown: Mapping[str, tuple[Alert, ...]]  # the alerts that fired at the minute asked for, by name, with their texts

    def minutes(self, alert: str) -> list[int]:
        return sorted(frozenset().union(*self.firing.get(alert, {}).values()))


def play(
    promtool: Path,
    directory: Path,
    rules: tuple[Path, ...],
    cases: Mapping[str, Series],
    *,
    minutes: int = 60,
    shown: Mapping[str, int],
    evaluation_seconds: float = 60,
    recorded: str = "",
) -> Mapping[str, Played]:
    """What the rules say of each case. Each is a cluster of its name, of which the texts that come back say nothing.

    One whose name is "" has no cluster.

    Args:
        shown: names of alerts of which to render the text, and the minute at which.
        recorded: series that are found among the alerts that fire, by their names, as a regular expression.
    """
    series = {_within(key, name): values for name, each in cases.items() for key, values in each.items()}
    named = f'label_replace({{__name__=~"{recorded}"}}, "alertname", "$1", "__name__", "(.+)")'
    question = f"{FIRING} or {named}" if recorded else FIRING
    questions = tuple((question, minute * 60.0) for minute in range(minutes))
    asked = tuple((alert, minute * 60.0) for alert, minute in shown.items())
    run = Run(rules, groups_of(rules), 60, series, questions, asked, evaluation_seconds)
    answers = ask(promtool, run, directory)
    firing: dict[str, dict[str, dict[frozenset[tuple[str, str]], set[int]]]] = {name: {} for name in cases}
    for (_, at), samples in answers.samples.items():
        for sample in samples:
            labels = {name: value for name, value in sample.labels.items() if name != "alertstate"}
            alerts = firing.get(labels.pop("cluster", ""), {})
            found = alerts.setdefault(labels.pop("alertname"), {})
            found.setdefault(frozenset(labels.items()), set()).add(round(at / 60))
    return {
        name: Played(
            {alert: {labels: frozenset(at) for labels, at in found.items()} for alert, found in firing[name].items()},
            {
                alert: tuple(_without(name, each) for each in found if each.labels.get("cluster", "") == name)
                for (alert, _), found in answers.alerts.items()
            },
        )
        for name in cases
    }


def gpu(metric: str, values: Sequence[float], uuid: str = "GPU-1", **labels: str) -> Series:
    pairs = {"gpu": "0", "instance": "a", "job": "gpu-triage", "uuid": uuid, **labels}
    return {selector(metric, pairs.items()): values}


def host(metric: str, values: Sequence[float], instance: str = "a", **labels: str) -> Series:
    """A series of a host; a label that is given replaces one of its target."""
    pairs = {"instance": instance, "job": "gpu-triage", **labels}
    return {selector(metric, pairs.items()): values}


def over(*spans: tuple[float, int]) -> list[float]:
    """Values, each for so many minutes; NaN where there is no sample."""
    return [value for value, minutes in spans for _ in range(minutes)]


def counter(a_minute: Iterable[float]) -> list[float]:
    return list(accumulate(a_minute, initial=0.0))[1:]


def merged(*parts: Series) -> Series:
    return {key: values for part in parts for key, values in part.items()}


def _within(series: str, cluster: str) -> str:
    return f'{series.removesuffix("}")},cluster="{cluster}"}}' if cluster else series


def _without(cluster: str, alert: Alert) -> Alert:
    texts = (
        {name: text.replace(f"{cluster}/", "") for name, text in alert.annotations.items()}
        if cluster
        else alert.annotations
    )
    return Alert({name: value for name, value in alert.labels.items() if name != "cluster"}, texts)
