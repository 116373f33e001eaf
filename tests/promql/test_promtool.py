"""What the examiner believes about promtool, shown on rules small enough to reckon by hand."""

import json
import math
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Alert, PromtoolError, Run, Sample, ask, notation, selector

RULES = """
groups:
  - name: small
    rules:
      - record: gpu:x:max
        expr: max by (gpu) (x)
      - alert: Hot
        expr: x > 2
        for: 30s
        labels: {severity: warning, odd: 'a"b, {c} 5E+00'}
        annotations: {description: "GPU {{ $labels.gpu }} at {{ $value }} W\\nor \\"more\\""}
"""
GROUPS = ("small",)
GONE = math.nan


@pytest.fixture
def promtool(requires_tool: RequiresTool) -> Path:
    return requires_tool("promtool")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "small.yml"
    path.write_text(RULES)
    return path


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 1.0, 1.0, 2.0], "1.0+0x2 2.0+0x0"),
        ([GONE, GONE, 0.0], "_x2 0.0+0x0"),
        ([0.0, GONE, GONE, GONE, 5.0, GONE], "0.0+0x0 stale _x2 5.0+0x0 stale"),
        ([GONE], "_x1"),
        ([], ""),
        ([-2.5, 1e-05, 1e16, 1768435215.5], "-2.5+0x0 1e-05+0x0 1e+16+0x0 1768435215.5+0x0"),
    ],
)
def test_runs_of_equal_values_are_one_word_and_an_end_leaves_one_marker(values: list[float], text: str) -> None:
    assert notation(values) == text


def test_every_value_reaches_promtool_as_it_is(promtool: Path, rules: Path, tmp_path: Path) -> None:
    values = [0.0, 0.1 + 0.2, 1e-300, -0.0, 2.0**53 - 1, 1768435215.123, 5e-324, 1.7e308, 7.0, 7.0, GONE, 8.0]
    times = [15.0 * step for step in range(len(values))]
    questions = tuple(("x", at) for at in times)
    answers = ask(promtool, Run((rules,), GROUPS, 15, {selector("x", [("gpu", "0")]): values}, questions), tmp_path)
    got = [answers.samples["x", at] for at in times]
    assert got == [() if math.isnan(v) else (Sample({"gpu": "0"}, v),) for v in values]


def test_an_alert_that_fires_is_rendered_and_a_quiet_one_is_not(promtool: Path, rules: Path, tmp_path: Path) -> None:
    series = {selector("x", [("gpu", "0")]): [0.0, 3.5, 3.5, 3.5, GONE]}
    times = (15.0, 45.0, 60.0)
    run = Run(
        (rules,),
        GROUPS,
        15,
        series,
        tuple(('ALERTS{alertstate="firing"}', at) for at in times),
        tuple(("Hot", at) for at in times),
    )
    answers = ask(promtool, run, tmp_path)
    labels = {"alertname": "Hot", "gpu": "0", "odd": 'a"b, {c} 5E+00', "severity": "warning"}
    assert [answers.alerts["Hot", at] for at in times] == [
        (),
        (Alert(labels, {"description": 'GPU 0 at 3.5 W\nor "more"'}),),
        (),
    ]
    assert [len(answers.samples['ALERTS{alertstate="firing"}', at]) for at in times] == [0, 1, 0]


TWICE = {selector("x", [("gpu", "0")]): [3.0], selector("x", [("gpu", "1")]): [3.0]}


@pytest.mark.parametrize(
    ("rules_text", "question", "message"),
    [
        (RULES.replace("max by", "max buy"), "x", r"rules\.yml"),
        (RULES, "x + on() x", "could not evaluate expr"),
        (RULES.replace("max by (gpu) (x)", "x + on() x"), "x", "could not evaluate rule: gpu:x:max"),
    ],
    ids=["refused rules", "a question", "a rule"],
)
def test_a_rejection_is_an_error(rules_text: str, question: str, message: str, promtool: Path, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(rules_text)
    with pytest.raises(PromtoolError, match=message):
        ask(promtool, Run((path,), GROUPS, 15, TWICE, ((question, 0.0),)), tmp_path)


def test_groups_are_evaluated_in_the_order_that_is_asked_for(promtool: Path, tmp_path: Path) -> None:
    chained = tmp_path / "chained.yml"
    names = [f"g{number}" for number in range(8)]
    groups = [
        {"name": name, "rules": [{"record": name, "expr": f"{before} + 1"}]}
        for name, before in zip(names, ["x", *names], strict=False)
    ]
    chained.write_text(json.dumps({"groups": groups}))
    answers = ask(promtool, Run((chained,), tuple(names), 15, {"x": [1.0]}, (("g7", 0.0),)), tmp_path)
    assert answers.samples["g7", 0.0] == (Sample({}, 9.0),)
