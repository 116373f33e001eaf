"""``python -m tests.docstring_names``: names in backticks in docstrings of the product that do not exist.

A name exists if its own file has it, another file defines it outside of functions, a string of the product consists of
it, or the standard library or the driver's bindings have it. Names between double backticks are of other programs.
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pynvml

EXPORTER = Path(__file__).resolve().parents[1] / "exporter"
QUOTED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
NAME = re.compile(r"[A-Za-z_][\w.]*")
ELSEWHERE = {*dir(builtins), *sys.stdlib_module_names, *dir(pynvml)}


class Unknown(NamedTuple):
    path: Path
    line: int
    name: str


def unknown(paths: Iterable[Path]) -> list[Unknown]:
    """Names in docstrings of these files that do not exist."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    shared = ELSEWHERE | {
        name for path, tree in trees.items() for name in (path.stem, path.parent.name, *_defined(tree))
    }
    return [
        Unknown(path, line, name)
        for path, tree in trees.items()
        for own in (shared | set(_used(tree)),)
        for line, name in _quoted(tree)
        if not set(name.split(".")) <= own
    ]


def _quoted(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names in backticks in docstrings, those below attributes and constants too, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value
            for match in QUOTED.finditer(text):
                yield node.lineno + text.count("\n", 0, match.start()), match[1]


def _defined(tree: ast.Module) -> Iterator[str]:
    """What other files can use: names outside of functions, attributes of objects, and strings that are names."""
    scopes: list[ast.Module | ast.ClassDef] = [tree]
    while scopes:
        for node in scopes.pop().body:
            if isinstance(node, ast.ClassDef):
                scopes.append(node)
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and NAME.fullmatch(each.value):
            yield from each.value.split(".")


def _used(tree: ast.Module) -> Iterator[str]:
    """Every name in a file's code: variables, attributes, arguments and modules."""
    for node in ast.walk(tree):
        for field in ("name", "id", "attr", "arg", "asname", "module"):
            if isinstance(found := getattr(node, field, None), str):
                yield from found.split(".")


if __name__ == "__main__":
    nowhere = unknown(EXPORTER.rglob("*.py"))
    for each in nowhere:
        sys.stdout.write(f"{each.path.relative_to(EXPORTER.parent)}:{each.line}: there is no `{each.name}`\n")
    sys.exit(bool(nowhere))
