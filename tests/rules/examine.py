"""What the rules say of a scenario: every alert at every step, and the bottleneck of every GPU.

The scenario runs through the exporter on a virtual clock, the series it leaves run through the rules in promtool's
virtual time, and what comes out is compared with what the scenario expects.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.promql.expressions import uses
from tests.promql.promtool import Answers, Labels, Run, Sample, ask, selector
from tests.recordings import STEP_SECONDS, published, recorded, seconds_of, thinned
from tests.rules.rulefile import read_rules

from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage_simulator.history import History, history_config
from gpu_triage_simulator.scenario import Scenario

EVALUATION_SECONDS = 30.0
"""How often the most urgent rules are evaluated."""

FIRING = 'ALERTS{alertstate="firing"}'
CLASSES = "gpu_bottleneck"
_LABEL = re.compile(r'(\w+)="([^"]*)"')
UNDECIDED = (
    "count by (instance, gpu) (gpu_up) unless on (instance, gpu) (count by (instance, gpu) (gpu_bottleneck) == 1)"
)
"""GPUs that are known and have no bottleneck class, or several."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What the rules made of a scenario."""

    # firing alerts by scenario time: at every evaluation, and when something is expected
    firing: Mapping[float, tuple[Labels, ...]]
    bottleneck: Mapping[float, Mapping[str, str]]  # class by GPU, by the scenario time of each expectation
    # GPUs that had not exactly one class, by scenario time; every evaluation was asked
    undecided: Mapping[float, tuple[str, ...]]


def examine(
    scenario: Scenario, rules: tuple[Path, ...], *, step_seconds: float, promtool: Path, directory: Path
) -> Examination:
    """What the rules say of a scenario that is scraped so often, up to a little after its last expectation."""
    expected = sorted({float(expectation.at) for expectation in scenario.expectations})
    length, evaluation = seconds_of(scenario), max(step_seconds, EVALUATION_SECONDS)
    steps = [step * evaluation for step in range(int(length / evaluation) + 1)]
    questions = [(FIRING, at) for at in sorted({*steps, *expected})]
    questions += [(UNDECIDED, at) for at in steps] + [(CLASSES, at) for at in expected]
    run = prepare(scenario, rules, step_seconds=step_seconds, seconds=length)
    asked = replace(run, questions=tuple(questions), evaluation_seconds=evaluation)
    return _examination(ask(promtool, asked, directory), numbers_of(run))


def prepare(scenario: Scenario, rules: tuple[Path, ...], *, step_seconds: float, seconds: float) -> Run:
    """A run of the rules over the first `seconds` of a scenario, without any question yet."""
    history = recorded(scenario, seconds=seconds, step_seconds=min(step_seconds, STEP_SECONDS))
    return run_of(thinned(history, step_seconds), scenario, rules)


def run_of(history: History, scenario: Scenario, rules: tuple[Path, ...]) -> Run:
    """A run of the rules over a scenario's history, without any question yet."""
    # What is published least must do for every alert.
    least = replace(history_config(scenario, history.step_seconds), metrics_profile="rules")
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rules)))
    return Run(rules, groups, history.step_seconds, input_series(published(history, least), mentioned(rules)))


def mentioned(rules: tuple[Path, ...]) -> frozenset[str]:
    """Names of all series that the rules, their annotations and the questions of this module read."""
    found = read_rules(rules)
    expressions = [rule.expr for rule in found] + [CLASSES, UNDECIDED]
    expressions += [query for rule in found for query in rule.queries()]
    return frozenset(use.metric for expression in expressions for use in uses(expression))


def input_series(history: History, names: frozenset[str]) -> Mapping[str, Sequence[float]]:
    """The series of these names by selector, on a clock that starts at 0 as promtool's does."""
    times = ("_timestamp_seconds", "_time_seconds", "_mtime_seconds")
    return {
        selector(name, labels): [value - history.start_seconds for value in column] if name.endswith(times) else column
        for (name, labels), column in history.series.items()
        if name in names
    }


def class_of(rank: float) -> str:
    return GPU_BOTTLENECK.states[round(rank)]


def numbers_of(run: Run) -> Mapping[str, str]:
    """The number of each GPU by its UUID, as scenarios call it; alerts know it by its UUID alone."""
    parsed = (dict(_LABEL.findall(series)) for series in run.series)
    return {labels["uuid"]: labels["gpu"] for labels in parsed if labels.get("uuid") and labels.get("gpu")}


def _examination(answers: Answers, numbers: Mapping[str, str]) -> Examination:
    return Examination(
        firing={
            at: tuple(_numbered(sample.labels, numbers) for sample in samples) for at, samples in _of(answers, FIRING)
        },
        bottleneck={
            at: {sample.labels["gpu"]: class_of(sample.value) for sample in samples}
            for at, samples in _of(answers, CLASSES)
        },
        undecided={
            at: tuple(sample.labels["gpu"] for sample in samples) for at, samples in _of(answers, UNDECIDED) if samples
        },
    )


def _numbered(alert: Labels, numbers: Mapping[str, str]) -> Labels:
    number = numbers.get(alert.get("uuid", ""))
    return alert if number is None else {"gpu": number, **alert}


def _of(answers: Answers, question: str) -> Iterator[tuple[float, tuple[Sample, ...]]]:
    return ((at, samples) for (asked, at), samples in answers.samples.items() if asked == question)
