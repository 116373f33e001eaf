"""What the examiner believes about promtool, shown on rules small enough to reckon by hand."""

import math
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Alert, PromtoolError, Run, ask, selector

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
