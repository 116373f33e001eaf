"""``python -m tests.empty_collections``: tests that would pass if what they look through were empty.

Such a test asserts nothing but that each element of a collection is fine, or that none is not: inside a loop, with
`all`, with `not any`, or that a comprehension finds nothing. If nothing says that the collection has elements, the test
passes when it finds none, because of a mistyped path for one. Tables that are written down, in the file or as a
constant of another, have elements; of anything else, `tests.gathered.every` makes sure.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PASSED_ON = {"dict", "enumerate", "frozenset", "list", "reversed", "set", "some", "sorted", "tuple", "zip"}
"""Functions that return as many elements as they are given."""
EMPTY = {"[]", "()", "{}", "set()", "frozenset()"}


def vacuous(text: str) -> list[tuple[int, str]]:
    """The tests of a file that may pass without looking at anything, with their lines."""
    tree = ast.parse(text)
    constants = dict(_assigned(tree.body))
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    return [
        (node.lineno, node.name)
        for node in tests
        if _asserts(node) and not _is_property(node) and not _Test(node, constants).is_solid(node.body)
    ]


class _Test:
    """One test function."""

    def __init__(self, node: ast.FunctionDef, constants: Mapping[str, ast.expr]) -> None:
        table = dict.fromkeys(_parameters(node), ast.Constant(value="given"))
        self._values = {**constants, **dict(_assigned(list(ast.walk(node)))), **table}

    def is_solid(self, body: list[ast.stmt]) -> bool:
        """Whether something is asserted whatever the collections hold."""
        return any(map(self._is_solid, body))

    def _is_solid(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Assert):
            return not self._holds_for_none(node.test)
        if isinstance(node, ast.For):
            return self._has_elements(node.iter) and _asserts(node)
        if isinstance(node, ast.With) and any(".raises(" in ast.unparse(item) for item in node.items):
            return True
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
            return True  # fails unless there are as many
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return isinstance(node.value.func, ast.Name)  # a function of the tests, which asserts by itself
        blocks = ("body", "orelse", "finalbody") if isinstance(node, ast.With | ast.If | ast.Try | ast.While) else ()
        return any(self.is_solid(getattr(node, block, [])) for block in blocks)

    def _holds_for_none(self, test: ast.expr) -> bool:
        """Whether an assertion holds for an empty collection."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="any"), args=[looked])):
                return not self._has_elements(looked)
            case ast.Call(func=ast.Name(id="all"), args=[looked]):
                return not self._has_elements(looked)
            case ast.UnaryOp(op=ast.Not(), operand=found):
                return self._is_search(found)
            case ast.Compare(left=found, ops=[ast.Eq()], comparators=[nothing]) if ast.unparse(nothing) in EMPTY:
                return self._is_search(found)
        return False

    def _is_search(self, node: ast.expr) -> bool:
        """Whether an expression is what was found in something that may be empty."""
        if isinstance(node, ast.Name) and node.id in self._values:
            return self._is_search(self._values[node.id])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PASSED_ON and node.args:
            return self._is_search(node.args[0])
        return isinstance(node, COMPREHENSIONS) and not self._has_elements(node)

    def _has_elements(self, node: ast.expr) -> bool:  # noqa: PLR0911 - a case for each kind of expression
        """Whether there is something in a collection, as far as the text of the file shows."""
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return any(not isinstance(each, ast.Starred) or self._has_elements(each.value) for each in elements)
            case ast.Dict(keys=parts) | ast.Constant(value=str(parts)):
                return bool(parts)
            case ast.Name(id=name):
                return self._has_elements(self._values[name]) if name in self._values else name.isupper()
            case ast.Attribute(attr=name):
                return name.isupper()
            case ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys")):
                return self._has_elements(value)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                given = name in PASSED_ON and bool(arguments) and self._has_elements(arguments[0])
                return given or name in {"every", "captured"} or (name == "range" and ast.unparse(node) != "range(0)")
            case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right):
                return self._has_elements(left) or self._has_elements(right)
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self._has_elements(value)
        return isinstance(node, COMPREHENSIONS) and self._has_elements(node.generators[0].iter)


def _parameters(node: ast.FunctionDef) -> Iterator[str]:
    """Arguments that are written down in a table above the test."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and "parametrize" in ast.unparse(decorator.func):
            names = ast.literal_eval(decorator.args[0])
            yield from names.split(",") if isinstance(names, str) else names


def _assigned(nodes: list[ast.AST] | list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Assert) for each in ast.walk(node))


def _is_property(node: ast.FunctionDef) -> bool:
    """Whether Hypothesis chooses what is looked at."""
    return any("given(" in ast.unparse(each) for each in node.decorator_list)


def main() -> int:
    """Exit status: 0 if there is no such test."""
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}: {name} may look at nothing; see tests/gathered.py\n"
        for path in sorted(TESTS.rglob("test_*.py"))
        for line, name in vacuous(path.read_text(encoding="utf-8"))
    ]
    sys.stdout.write("".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
