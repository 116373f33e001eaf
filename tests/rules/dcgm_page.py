"""docs/dcgm.md: which alerts work on what ``rules/compat/dcgm.yml`` records, and which stay blind.

``python -m tests.rules.dcgm_page`` writes the table, as part of ``make docs``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import promql_parser as promql
from tests.rules.expressions import Use, uses
from tests.rules.rulefile import REPOSITORY, Rule, alerts, read_rules, rule_files

from gpu_triage.diagnosis.findings.table import BY_CODE

PAGE: Final = REPOSITORY / "docs" / "dcgm.md"
DCGM: Final = REPOSITORY / "rules" / "compat" / "dcgm.yml"
BEGIN, END = "<!-- alerts -->", "<!-- /alerts -->"

_MOST: Final = 4
_WORKS: Final = "works"
_BLIND: Final = "blind"

Expressions = Mapping[str, Sequence[str]]
"""What recorded series are made of, by name; nothing where dcgm-exporter itself says it."""


def sources() -> Expressions:
    """Every series that there is without an exporter of ours: what DCGM brings, and what is recorded from that."""
    found: dict[str, list[str]] = {rule.name: [] for rule in read_rules([DCGM])}
    for rule in read_rules(rule_files()):
        if not rule.alert and rule.name not in found:
            found.setdefault(rule.name, [])
            found[rule.name].append(rule.expr)
    return found


def can_fire(expr: str, known: Expressions) -> bool:
    """Whether an expression can have a result, given these series."""
    return _possible(promql.parse(expr), known, frozenset())


def missing(expr: str, known: Expressions, above: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Metrics without which it is blind, or sees less; `above` are the recorded series that this is part of."""
    names: dict[str, None] = {}
    for use in uses(expr):
        if use.metric not in known:
            names[use.metric] = None
        for below in () if use.metric in above else known.get(use.metric, ()):
            names.update(dict.fromkeys(missing(below, known, above | {use.metric})))
    return tuple(names)


def _possible(node: promql.Expr, known: Expressions, above: frozenset[str]) -> bool:
    if isinstance(node, (promql.VectorSelector, promql.MatrixSelector)):
        selected = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
        return _exists(selected.name or "", known, above) and not _unseen(uses(str(selected)))
    if isinstance(node, promql.BinaryExpr):
        left, right = _possible(node.lhs, known, above), _possible(node.rhs, known, above)
        operator = str(node.op)
        if operator == "or":
            return left or right
        return left if operator == "unless" else left and right
    if isinstance(node, promql.Call):
        return node.func.name == "absent" or all(_possible(each, known, above) for each in node.args)
    if isinstance(node, (promql.AggregateExpr, promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        return _possible(node.expr, known, above)
    return True


def _exists(name: str, known: Expressions, above: frozenset[str]) -> bool:
    if name not in known or name in above:
        return False
    below = known[name]
    return not below or any(_possible(promql.parse(each), known, above | {name}) for each in below)


def _unseen(found: Sequence[Use]) -> tuple[str, ...]:
    """Codes of findings that these select, where DCGM brings none of them."""
    codes = tuple(
        c
        for use in found
        for c in BY_CODE
        for label, _, value in use.matchers
        if label == "code" and re.fullmatch(value, c)
    )
    return () if set(codes) & _seen() else codes


@cache
def _seen() -> frozenset[str]:
    """Codes of findings that are recorded from DCGM."""
    found = [rule for rule in read_rules([DCGM]) if rule.name == "gpu_finding"]
    xids = {f"xid.{xid}" for rule in found if "xid=~" in rule.expr for xid in re.findall(r"[0-9]+", rule.expr)}
    return frozenset({*(rule.labels["code"] for rule in found if "code" in rule.labels), *xids, "xid.unlisted"})


def table() -> str:
    """A row for each alert, those that work first."""
    known = sources()
    by_name: dict[str, list[Rule]] = {}
    for rule in alerts(read_rules(rule_files())):
        by_name.setdefault(rule.name, []).append(rule)
    rows = []
    for name, rules in by_name.items():
        works = any(can_fire(rule.expr, known) for rule in rules)
        unseen = tuple(dict.fromkeys(code for rule in rules for code in _unseen(uses(rule.expr))))
        lacks = unseen or tuple(dict.fromkeys(each for rule in rules for each in missing(rule.expr, known)))
        lacks = tuple(each for each in lacks if not each.startswith("gpu_host_finding"))
        rows.append((not works, name, _WORKS if works else _BLIND, _listed(lacks)))
    lines = (f"| [{name}]({_runbook(name)}) | {state} | {lacks} |" for _, name, state, lacks in sorted(rows))
    return "\n".join(("| Alert | From DCGM alone | Findings or series that it lacks |", "|---|---|---|", *lines))


def page() -> str:
    """The page with its table made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _listed(names: tuple[str, ...]) -> str:
    told = ", ".join(f"`{each}`" for each in names[:_MOST]) or "none"
    return f"{told} and {len(names) - _MOST} more" if len(names) > _MOST else told


def _runbook(name: str) -> str:
    return f"../exporter/gpu_triage/handbook/runbooks/{name}.md"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
