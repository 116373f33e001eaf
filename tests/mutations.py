"""Mutations: small faults put into the package one at a time (``python -m tests.mutations``): do the tests notice?

Of every kind (a comparison, a boolean, an arithmetic operator, a constant) as many are drawn, spread over the package's
folders; a seed always draws the same. Each is tried in a copy of the working tree: first with the unit tests of its
folder, then, if they pass, with the tests that are named.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice, zip_longest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = Path("exporter")
COUNT = 24
SEED = 1
LONGEST_SECONDS = 3600.0
"""A run that takes longer has noticed: something no longer ends."""

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "is": "is not"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "//": "*", "%": "*"}
"""Without ``/``, which mostly joins paths: as ``*`` it raises in the first test."""
BOOLEANS = {"and": "or", "or": "and"}
KINDS = ("comparison", "boolean", "arithmetic", "constant")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change."""

    kind: str  # one of KINDS
    path: Path  # of the file, below the repository
    line: int  # 1 for the first
    # start, end: offsets into the file's text of what is replaced
    start: int
    end: int
    # before, after: the operator or constant
    before: str
    after: str

    def applied(self, text: str) -> str:
        assert text[self.start : self.end] == self.before
        return text[: self.start] + self.after + text[self.end :]

    @property
    def unit_tests(self) -> str:
        """The folder of unit tests for its folder of the package, or for the nearest one above that has some."""
        own = Path("tests") / "unit" / self.folder
        while not (REPOSITORY / own).is_dir():
            own = own.parent
        return str(own)

    @property
    def folder(self) -> Path:
        package, *folders = self.path.relative_to(SOURCES).parent.parts
        return Path(*folders) if package == "gpu_triage" else Path(package.removeprefix("gpu_triage_"), *folders)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind} {self.before} -> {self.after}"


def mutations_of(path: Path, text: str) -> Iterator[Mutation]:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def between(kind: str, left: ast.expr, right: ast.expr, operators: dict[str, str]) -> Iterator[Mutation]:
        """The operator between two operands, whatever parentheses and line breaks are there too."""
        begin = offset(left.end_lineno or left.lineno, left.end_col_offset or 0)
        gap = text[begin : offset(right.lineno, right.col_offset)]
        found = re.fullmatch(r"[\s)]*([<>=!+*/%-]+|in|is|and|or)[\s(]*", gap)
        if found and found[1] in operators:
            at = begin + found.start(1)
            line = text.count("\n", 0, at) + 1
            yield Mutation(kind, path, line, at, begin + found.end(1), found[1], operators[found[1]])

    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from between("comparison", left, right, COMPARISONS)
            case ast.BoolOp(values=[left, right, *_]):
                yield from between("boolean", left, right, BOOLEANS)
            case ast.BinOp(left=left, right=right) if not _is_text(left) and not _is_text(right):
                yield from between("arithmetic", left, right, ARITHMETIC)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                begin, end = (
                    offset(node.lineno, node.col_offset),
                    offset(node.end_lineno or node.lineno, node.end_col_offset or 0),
                )
                yield Mutation("constant", path, node.lineno, begin, end, text[begin:end], repr(value + 1))


def drawn(count: int, seed: int) -> list[Mutation]:
    """So many mutations of the package, each kind as often, each from another folder than the one before."""
    by_place = _by_place()
    chance = random.Random(seed)
    queues = {kind: _in_turn(by_place, kind, chance) for kind in KINDS}
    return [next(queues[kind]) for kind in islice(cycle(KINDS), count)]


@cache
def _by_place() -> Mapping[tuple[str, Path], list[Mutation]]:
    found: dict[tuple[str, Path], list[Mutation]] = {}
    for path in sorted((REPOSITORY / SOURCES).rglob("*.py")):
        name = path.relative_to(REPOSITORY)
        for mutation in mutations_of(name, path.read_text(encoding="utf-8")):
            found.setdefault((mutation.kind, mutation.folder), []).append(mutation)
    return found


def _in_turn(
    by_place: Mapping[tuple[str, Path], list[Mutation]], kind: str, chance: random.Random
) -> Iterator[Mutation]:
    """All mutations of a kind, at random, from each folder in turn."""
    folders = sorted(folder for of, folder in by_place if of == kind and folder != Path())
    chance.shuffle(folders)
    left = [chance.sample(by_place[kind, folder], len(by_place[kind, folder])) for folder in folders]
    for turn in zip_longest(*left):
        yield from filter(None, turn)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def notices(copy: Path, tests: Sequence[str]) -> str | None:
    """The first test of a copy of the tree that fails; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(copy / "exporter")}
    try:
        run = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "a run that does not end"
    if run.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return found[1] if found else f"pytest, which ends with {run.returncode}"


def copied(where: Path) -> Path:
    """A copy of the working tree: what git knows, and what is new."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    copy = where / "tree"
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name, follow_symlinks=False)
    return copy


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit status: 0 if every mutation was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many ({COUNT})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"which ({SEED})")
    parser.add_argument("--only", type=int, action="append", help="the mutation of this number; may be repeated")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    parser.add_argument("tests", nargs="*", help="pytest's arguments for those that unit tests let pass; after --")
    arguments = parser.parse_args()
    chosen = [(n, each) for n, each in enumerate(drawn(arguments.count, arguments.seed), 1)]
    chosen = [(n, each) for n, each in chosen if n in (arguments.only or (n,))]
    if arguments.list:
        for number, mutation in chosen:
            _tell(f"{number:>3} {mutation}")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-triage-mutations-") as folder:
        return 0 if _try_all(chosen, copied(Path(folder)), arguments.tests) else 1


def _try_all(chosen: Sequence[tuple[int, Mutation]], copy: Path, tests: Sequence[str]) -> bool:
    noticed = 0
    for number, mutation in chosen:
        _tell(f"{number:>3} {mutation}")
        begun = time.monotonic()
        file = copy / mutation.path
        before = file.read_text(encoding="utf-8")
        file.write_text(mutation.applied(before), encoding="utf-8")
        by = notices(copy, [mutation.unit_tests]) or (notices(copy, tests) if tests else None)
        file.write_text(before, encoding="utf-8")
        # Without its parameters: their text may hold anything.
        if by is not None and "::" in by and notices(copy, [by.partition("[")[0]]):
            raise SystemExit(f"{by} fails without any mutation, too: mend it first")
        noticed += by is not None
        _tell(f"      {f'noticed by {by}' if by else 'NOT NOTICED'}, after {time.monotonic() - begun:.0f} s")
    _tell(f"{noticed} of {len(chosen)} noticed")
    return noticed == len(chosen)


if __name__ == "__main__":
    sys.exit(main())
