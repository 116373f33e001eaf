"""Questions put to promtool: series and rules go in, and what the rules make of them comes out.

`promtool test rules` runs rules in virtual time and compares what it sees with what a test expects. These tests expect
nothing, so that promtool prints all it sees; that is read back here.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

Labels = Mapping[str, str]

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LABELS = r'\{(?:\w+="(?:[^"\\]|\\.)*"(?:, )?)*\}'
_SAMPLE = re.compile(rf"({_LABELS}) ([-+.\dEINaf]+)")
_QUESTION = re.compile(r'^    expr: (".*"), time: (\w+),$')
_ALERTS_OF = re.compile(r"^    alertname: (\w+), time: (\w+), $")
_ERROR = re.compile(r"^    (expr|rule): .*, time: \w+, err: ")
_DURATION = re.compile(r"(\d+)(w|d|h|ms|m|s)")
_UNIT_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class PromtoolError(Exception):
    """promtool could not do what it was asked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer and its value; `labels` without ``__name__``."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Alert:
    labels: Labels
    annotations: Labels


@dataclass(frozen=True, slots=True)
class Run:
    """One run of rules over series."""

    rules: tuple[Path, ...]  # rule files
    # names of their groups in the order of evaluation; promtool takes those not named in any order
    groups: tuple[str, ...]
    step_seconds: float  # from one sample to the next
    # values by selector, such as ``up{job="a"}``, the first one at time 0; NaN where there is no sample
    series: Mapping[str, Sequence[float]]
    questions: tuple[tuple[str, float], ...] = ()  # expressions and the times at which to ask them
    # names of alerts and the times at which to render all that fire of that name
    alerts: tuple[tuple[str, float], ...] = ()
    # from one evaluation of every rule to the next, whatever its group's interval; that of samples if None
    evaluation_seconds: float | None = None

    def asking(self, questions: tuple[tuple[str, float], ...] = (), alerts: tuple[tuple[str, float], ...] = ()) -> Run:
        return replace(self, questions=questions, alerts=alerts)


@dataclass(frozen=True, slots=True)
class Answers:
    """What a run brought; an empty answer is an empty tuple."""

    samples: Mapping[tuple[str, float], tuple[Sample, ...]]
    alerts: Mapping[tuple[str, float], tuple[Alert, ...]]


def ask(promtool: Path, run: Run, directory: Path) -> Answers:
    """The answers to every question of a run; `directory` is for the test file.

    Raises:
        PromtoolError: promtool did not accept the rules or the series.
    """
    path = directory / "run.yml"
    path.write_text(json.dumps(_test_file(run)), encoding="utf-8")  # JSON is YAML, and fast
    result = subprocess.run([promtool, "test", "rules", path], check=False, capture_output=True, text=True)
    if result.returncode not in (0, 1) or (result.returncode == 1 and "FAILED:" not in result.stderr):
        raise PromtoolError(f"promtool ended with {result.returncode}: {result.stdout}{result.stderr}"[:4000])
    lines = result.stderr.splitlines()
    errors = [line.strip() for line in lines if _ERROR.match(line)]
    if errors:
        raise PromtoolError("promtool could not evaluate " + "; ".join(errors[:5]))
    samples = dict(_read_samples(lines))
    alerts = dict(_read_alerts(lines))
    # A line that was not understood would be taken for silence.
    if "FAILED:" in result.stderr and not samples and not alerts:
        raise PromtoolError(f"promtool says what is not understood: {result.stderr[:4000]}")
    return Answers(
        {question: samples.pop(question, ()) for question in run.questions},
        {asked: alerts.pop(asked, ()) for asked in run.alerts},
    )


def notation(values: Iterable[float]) -> str:
    """Samples in promtool's notation: runs of equal values together, a stale marker where a series ends."""
    parts: list[str] = []
    seen = False
    for absent, group in groupby(values, key=math.isnan):
        stretch = list(group)
        if absent:
            # As a scrape that no longer finds the series: one marker, then nothing.
            gap = len(stretch) - 1 if seen else len(stretch)
            parts += ["stale"] if seen else []
            parts += [f"_x{gap}"] if gap else []
            continue
        seen = True
        # 0x3 alone would be a hexadecimal number.
        parts += [f"{value!r}+0x{sum(1 for _ in run) - 1}" for value, run in groupby(stretch)]
    return " ".join(parts)


def selector(name: str, labels: Iterable[tuple[str, str]]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"


def duration(seconds: float) -> str:
    """A duration as promtool reads it."""
    return f"{round(seconds * 1000)}ms"


def _test_file(run: Run) -> dict[str, object]:
    return {
        "rule_files": [str(path) for path in run.rules],
        "group_eval_order": list(run.groups),
        "evaluation_interval": duration(run.evaluation_seconds or run.step_seconds),
        "tests": [
            {
                "interval": duration(run.step_seconds),
                "external_url": "http://prometheus:9090",
                "input_series": [
                    {"series": series, "values": notation(values)} for series, values in run.series.items()
                ],
                "promql_expr_test": [{"expr": expr, "eval_time": duration(at)} for expr, at in run.questions],
                "alert_rule_test": [{"alertname": name, "eval_time": duration(at)} for name, at in run.alerts],
            }
        ],
    }


def _read_samples(lines: Sequence[str]) -> Iterator[tuple[tuple[str, float], tuple[Sample, ...]]]:
    for number, line in enumerate(lines):
        question = _QUESTION.match(line)
        if question is None:
            continue
        got = lines[number + 2].strip()
        found = tuple(Sample(_labels(labels), float(value)) for labels, value in _SAMPLE.findall(got))
        yield (json.loads(question[1]), _seconds(question[2])), found


def _read_alerts(lines: Sequence[str]) -> Iterator[tuple[tuple[str, float], tuple[Alert, ...]]]:
    asked: tuple[str, float] | None = None
    labels: Labels = {}
    found: list[Alert] = []
    for line in lines:
        header = _ALERTS_OF.match(line)
        text = line.strip()
        if header is not None:
            if asked:
                yield asked, tuple(found)
            asked, found = (header[1], _seconds(header[2])), []
        elif text.startswith("Labels:{"):
            labels = _labels(text)
        elif text.startswith("Annotations:{"):
            found.append(Alert(labels, _labels(text)))
    if asked:
        yield asked, tuple(found)


def _labels(text: str) -> Labels:
    return {name: json.loads(f'"{value}"') for name, value in _LABEL.findall(text) if name != "__name__"}


def _seconds(text: str) -> float:
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(text)) or 0.0
