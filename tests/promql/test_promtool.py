"""What the examiner believes about promtool, shown on rules small enough to reckon by hand."""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import PromtoolError, Run, ask, selector

RULES = """
groups:
  - name: small
    rules:
      - record: gpu:x:max
        expr: max by (gpu) (x)
"""
GROUPS = ("small",)


@pytest.fixture
def promtool(requires_tool: RequiresTool) -> Path:
    return requires_tool("promtool")


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
