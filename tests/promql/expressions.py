"""What a PromQL expression talks about: metrics, matchers, and the labels that its result may carry."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import promql_parser as promql

SET_OPERATORS = frozenset({"and", "or", "unless"})
_SCALAR: frozenset[str] = frozenset()


class LabelError(Exception):
    """An expression uses a label that the series at hand cannot have."""


class RecordError(Exception):
    """The labels of a recorded series are not known, because the rule that records it is wrong."""


@dataclass(frozen=True, slots=True)
class Use:
    """One selector of an expression."""

    metric: str  # its name
    matchers: tuple[tuple[str, str, str], ...]  # label, operator (``=``, ``!=``, ``=~``, ``!~``) and value
    inside: tuple[str, ...]  # functions and aggregations around it, the nearest first
    ranged: bool  # whether it selects a range of time


_OPERATORS = (  # the parser's enumeration cannot be hashed
    (promql.MatchOp.Equal, "="),
    (promql.MatchOp.NotEqual, "!="),
    (promql.MatchOp.Re, "=~"),
    (promql.MatchOp.NotRe, "!~"),
)


@cache
def uses(expr: str) -> tuple[Use, ...]:
    """Every selector of an expression.

    Raises:
        ValueError: the expression is not PromQL, or a selector has no metric name.
    """
    return tuple(_uses(promql.parse(expr), ()))


def labels_of(expr: str, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    """Labels that the result of an expression may carry, given those of a metric's series.

    It is an upper bound: a label that is not among them is never there.

    Raises:
        LabelError: the expression groups by, matches on or copies a label that is not there, or matches two sides
            that differ in their labels.
    """
    return _labels(promql.parse(expr), series)


def windows_matched_as_one(expr: str) -> tuple[str, ...]:
    """Metrics of which a window stands on the one side of a many-to-one match, by no aggregation made one series.

    A target that gets another label has two series there for as long as the window reaches back, and a match with two
    fails for all targets.
    """
    return tuple(_windows_matched_as_one(promql.parse(expr)))


def _windows_matched_as_one(node: promql.Expr) -> Iterator[str]:
    if isinstance(node, promql.BinaryExpr):
        modifier = node.modifier
        if modifier is not None and modifier.card == promql.VectorMatchCardinality.ManyToOne:
            yield from _windows(node.rhs)
        elif modifier is not None and modifier.card == promql.VectorMatchCardinality.OneToMany:
            yield from _windows(node.lhs)
    for part in _parts(node):
        yield from _windows_matched_as_one(part)


def _windows(node: promql.Expr) -> Iterator[str]:
    if isinstance(node, promql.MatrixSelector):
        yield node.vector_selector.name or ""
    elif isinstance(node, promql.SubqueryExpr):
        yield from (use.metric for use in _uses(node, ()))
    elif isinstance(node, promql.AggregateExpr):
        if node.modifier is not None and node.modifier.type != promql.AggModifierType.By:
            yield from _windows(node.expr)
    else:
        for part in _parts(node):
            yield from _windows(part)


def _parts(node: promql.Expr) -> list[promql.Expr]:
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, (promql.AggregateExpr, promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        return [node.expr]
    return []


def _uses(node: promql.Expr, inside: tuple[str, ...]) -> Iterator[Use]:
    if isinstance(node, promql.VectorSelector):
        yield _use(node, inside, ranged=False)
    elif isinstance(node, promql.MatrixSelector):
        yield _use(node.vector_selector, inside, ranged=True)
    for place, part in enumerate(_parts(node)):
        around = _name(node)
        yield from _uses(part, (around, *inside) if around and (around != "unless" or place) else inside)


def _name(node: promql.Expr) -> str:
    """Of a function, an aggregation or a subquery, and of `unless`, which is around its right side."""
    if isinstance(node, promql.Call):
        return str(node.func.name)
    if isinstance(node, promql.BinaryExpr):
        return "unless" if str(node.op) == "unless" else ""
    if isinstance(node, promql.AggregateExpr):
        return str(node.op)
    return "subquery" if isinstance(node, promql.SubqueryExpr) else ""


def _use(node: promql.VectorSelector, inside: tuple[str, ...], *, ranged: bool) -> Use:
    if not node.name:
        raise ValueError(f"a selector without a metric name: {node.prettify()}")
    matchers = tuple(
        (m.name, next(sign for op, sign in _OPERATORS if op == m.op), m.value) for m in node.matchers.matchers
    )
    return Use(node.name, matchers, inside, ranged)


def _labels(node: promql.Expr, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    while isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        node = node.expr
    if isinstance(node, (promql.VectorSelector, promql.MatrixSelector)):
        return _selected(node.vector_selector if isinstance(node, promql.MatrixSelector) else node, series)
    if isinstance(node, promql.Call):
        return _called(node, series)
    if isinstance(node, promql.AggregateExpr):
        return _aggregated(node, series)
    return _combined(node, series) if isinstance(node, promql.BinaryExpr) else _SCALAR


def _selected(node: promql.VectorSelector, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    known = series(node.name or "")
    _require((m.name for m in node.matchers.matchers), known, f"{node.name} is selected by")
    return known


def _called(node: promql.Call, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    arguments = [_labels(argument, series) for argument in node.args]
    name = node.func.name
    if name in {"absent", "absent_over_time"}:
        return frozenset(m.name for m in _matchers(node.args[0]) if m.op == promql.MatchOp.Equal)
    if name in {"label_replace", "label_join"}:
        texts = [argument.val for argument in node.args[1:] if isinstance(argument, promql.StringLiteral)]
        sources = texts[2:] if name == "label_join" else texts[2:3]
        _require([source for source in sources if source], arguments[0], f"{name} reads")
        return arguments[0] | {texts[0]}
    if name in {"scalar", "vector", "time"}:
        return _SCALAR
    if name == "histogram_quantile":
        return arguments[-1] - {"le"}
    return frozenset().union(*arguments)


def _matchers(node: promql.Expr) -> list[promql.Matcher]:
    while isinstance(node, (promql.ParenExpr, promql.MatrixSelector)):
        node = node.vector_selector if isinstance(node, promql.MatrixSelector) else node.expr
    return list(node.matchers.matchers) if isinstance(node, promql.VectorSelector) else []


def _aggregated(node: promql.AggregateExpr, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    inner = _labels(node.expr, series)
    added = {node.param.val} if isinstance(node.param, promql.StringLiteral) else set()
    if str(node.op) in {"topk", "bottomk"}:
        return inner
    if node.modifier is None:
        return frozenset(added)
    named = frozenset(node.modifier.labels)
    _require(named, inner, f"{node.op} groups by")
    kept = named if node.modifier.type == promql.AggModifierType.By else inner - named
    return kept | added


def _combined(node: promql.BinaryExpr, series: Callable[[str], frozenset[str]]) -> frozenset[str]:
    left, right = _labels(node.lhs, series), _labels(node.rhs, series)
    if _is_scalar(node.lhs) or _is_scalar(node.rhs):
        return left | right
    operator = str(node.op)
    matching = node.modifier.matching if node.modifier else None
    named = frozenset(matching.labels) if matching else frozenset()
    if matching and matching.type == promql.LabelModifierType.Include:
        _require(named, left, f"the left side of {operator} is matched on")
        _require(named, right, f"the right side of {operator} is matched on")
    else:
        _require(named, left | right, f"{operator} ignores")
    one_to_one = node.modifier is None or node.modifier.card == promql.VectorMatchCardinality.OneToOne
    if operator == "or":
        return left | right
    included = matching is not None and matching.type == promql.LabelModifierType.Include
    unequal = (left ^ right) - named
    if unequal and not included and (one_to_one or operator in SET_OPERATORS):
        raise LabelError(f"{operator} never matches: its sides differ in {', '.join(sorted(unequal))}")
    if operator in SET_OPERATORS:
        return left
    if one_to_one:
        return named if included else left - named
    return _grouped(node.modifier, left, right)


def _grouped(modifier: promql.BinModifier | None, left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    many, one = (left, right)
    if modifier is not None and modifier.card == promql.VectorMatchCardinality.OneToMany:
        many, one = right, left
    copied = frozenset(modifier.group_labels or () if modifier else ())
    _require(copied, one, "a group copies")
    return many | copied


def _is_scalar(node: promql.Expr) -> bool:
    if isinstance(node, (promql.ParenExpr, promql.UnaryExpr)):
        return _is_scalar(node.expr)
    if isinstance(node, promql.Call):
        return bool(node.func.return_type == promql.ValueType.Scalar)
    if isinstance(node, promql.BinaryExpr):
        return _is_scalar(node.lhs) and _is_scalar(node.rhs)
    return isinstance(node, promql.NumberLiteral)


def _require(named: Iterator[str] | frozenset[str] | list[str], known: frozenset[str], what: str) -> None:
    missing = sorted(set(named) - known)
    if missing:
        raise LabelError(f"{what} {', '.join(missing)}; there is only {', '.join(sorted(known)) or 'none'}")


def recorded_labels(
    records: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]], base: Callable[[str], frozenset[str]]
) -> Callable[[str], frozenset[str]]:
    """Labels of any series, recorded ones included.

    Args:
        records: expressions and added labels by the name they are recorded under.
        base: labels of a series that is not recorded; raises KeyError for an unknown one.

    Returns:
        A function that raises KeyError where `base` does, and RecordError for what a faulty rule records.
    """
    known: dict[str, frozenset[str]] = {}

    def of(metric: str) -> frozenset[str]:
        if metric not in records:
            return base(metric)
        if metric not in known:
            try:
                # A record that reads itself has no labels but those of what else it reads.
                others = {use.metric for expr, _ in records[metric] for use in uses(expr)} - {metric}
                known[metric] = frozenset().union(*map(of, others))
                known[metric] = frozenset().union(
                    *(labels_of(expr, of) | frozenset(labels) for expr, labels in records[metric])
                )
            except (KeyError, LabelError) as error:
                known.pop(metric, None)
                raise RecordError(f"{metric} is recorded by a faulty rule") from error
        return known[metric]

    return of
