"""Mutations: small faults put into the package one at a time (``python -m tests.mutations``): do the unit tests notice?

The faults are found in the syntax tree of the package: comparisons, conditions, thresholds and lifetimes, hysteresis,
choices, bounds and arithmetic. A seed draws as many of each kind, spread over the folders. Each is tried in a copy of
the working tree: with the unit tests that import its module, then with those of its folder, then with all others, and
of each with the slow ones last.
"""

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, cycle, zip_longest
from pathlib import Path
from queue import SimpleQueue

from deploy.release import files as release

from gpu_triage import __version__

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = Path("exporter")
UNIT = Path("tests/unit")
COUNT, SEED = 60, 1
LONGEST_SECONDS = 3600.0
"""A run that takes longer has noticed: something no longer ends."""

BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
REVERSED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OTHERWISE = {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}
"""Without ``/``, which mostly joins paths: as ``*`` it raises in the first test."""
TIERS = {"sample_fast_seconds": "sample_medium_seconds", "sample_medium_seconds": "sample_fast_seconds"}
EASE = re.compile(r"\bease\b|\bEASE\b")
QUANTITY = re.compile(
    r"second|share|ratio|limit|wait|hold|low|high|most|least|count|bytes|window|deadline|interval|after"
)
KINDS = ("comparison", "condition", "threshold", "hysteresis", "choice", "bound", "arithmetic")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change."""

    kind: str  # one of KINDS
    path: Path  # of the file, below the repository
    line: int  # 1 for the first
    # start, end: offsets into the file's text of what is replaced
    start: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        assert text[self.start : self.end] == self.before
        return text[: self.start] + self.after + text[self.end :]

    @property
    def folder(self) -> Path:
        package, *folders = self.path.relative_to(SOURCES).parent.parts
        return Path(*folders) if package == "gpu_triage" else Path(package.removeprefix("gpu_triage_"), *folders)

    def stages(self, *, near: bool = False) -> Iterator[list[str]]:
        """The tests to run: those that import the module, those of the folder and of what is generated, and all others.

        Of each, those that are not slow come first.
        """
        own = UNIT / self.folder
        while not (REPOSITORY / own).is_dir():
            own = own.parent
        module = ".".join(self.path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        of_module = [name for name, text in _unit_tests().items() if re.search(rf"\b{re.escape(module)}\b", text)]
        of_folder = [str(own), "tests/documents/test_regenerate.py"]
        for marks in ("not slow and not full", "slow and not full"):
            yield from ([*tests, "-m", marks] for tests in (of_module, of_folder) if tests)
        if not near:
            yield [str(UNIT), "tests/documents", f"--ignore={own}", "-m", "not full"]

    def __str__(self) -> str:
        before, after = (" ".join(each.split()) for each in (self.before, self.after))
        return f"{self.path}:{self.line}: {self.kind}: {before} -> {after}"


@cache
def _unit_tests() -> Mapping[str, str]:
    files = sorted((REPOSITORY / UNIT).rglob("test_*.py"))
    return {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in files}


def found_in(path: Path, text: str) -> Iterator[Mutation]:
    """The mutations of a file."""
    starts = [0, *accumulate(len(line.encode()) for line in text.splitlines(keepends=True))]
    raw = text.encode()

    def offset(line: int, column: int) -> int:
        return len(raw[: starts[line - 1] + column].decode())

    tree = ast.parse(text)
    quantities = {id(each) for node in ast.walk(tree) for value in _quantities(node) for each in ast.walk(value)}
    for node in ast.walk(tree):
        for kind, old, new in _changes(node, is_quantity=id(node) in quantities):
            start = offset(old.lineno, old.col_offset)
            end = offset(old.end_lineno or old.lineno, old.end_col_offset or 0)
            yield Mutation(kind, path, old.lineno, start, end, text[start:end], f"({ast.unparse(new)})")


def _changes(node: ast.AST, *, is_quantity: bool) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Each kind of mutation of a node, with what is replaced, and by what."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            for others in (BOUNDARIES, REVERSED, OTHERWISE):
                if other := others.get(type(operator)):
                    yield "comparison", node, ast.Compare(left, [other()], [right])
        case ast.BoolOp(op=operator, values=values):
            yield "condition", node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for dropped in values:
                first, *rest = (value for value in values if value is not dropped)
                yield "condition", node, ast.BoolOp(operator, [first, *rest]) if rest else first
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", node, operand
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as operator, right=right) if EASE.search(
            ast.unparse(right)
        ):
            other_way = ast.Div() if isinstance(operator, ast.Mult) else ast.Mult()
            yield "hysteresis", node, ast.BinOp(left, other_way, right)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC and not _is_text(node):
            yield "arithmetic", node, ast.BinOp(left, ARITHMETIC[type(operator)](), right)
        case _:
            yield from _changes_of_values(node, is_quantity=is_quantity)


def _changes_of_values(node: ast.AST, *, is_quantity: bool) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "choice", node, ast.IfExp(test, orelse, body)
        case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
            yield "bound", function, ast.Name({"min": "max", "max": "min"}[name])
        case ast.Attribute(attr=name, value=value) if name in TIERS:
            yield "threshold", node, ast.Attribute(value, TIERS[name])
        case ast.Constant(value=int() | float() as number) if is_quantity and not isinstance(number, bool):
            yield "threshold", node, ast.Constant(number / 2 if 0 < number < 1 else number * 2 or 1)


def _quantities(node: ast.AST) -> Iterator[ast.expr]:
    """Values with the name of a quantity, or of a constant: thresholds, waits, lifetimes and limits."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.strip("_").isupper() or QUANTITY.search(name):
            yield value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            if name.strip("_").isupper() or QUANTITY.search(name):
                yield value
        case ast.keyword(arg=str(name), value=value) if QUANTITY.search(name):
            yield value
        case ast.Compare(comparators=[value]):
            yield value


def _is_text(node: ast.BinOp) -> bool:
    parts = (node.left, node.right)
    return any(
        isinstance(each, ast.JoinedStr | ast.Tuple | ast.List) or isinstance(getattr(each, "value", None), str)
        for each in parts
    )


def drawn(count: int, seed: int, areas: Sequence[str] = ()) -> list[Mutation]:
    """So many mutations of the package, each kind as often, each from another folder than the one before.

    Args:
        count: fewer are drawn if there are no more.
        seed: which.
        areas: folders of the package to draw from, as ``judge``; all of them without.
    """
    by_place: dict[tuple[str, Path], list[Mutation]] = {}
    for path in sorted((REPOSITORY / SOURCES).rglob("*.py")):
        name = path.relative_to(REPOSITORY)
        for mutation in found_in(name, path.read_text(encoding="utf-8")):
            if not areas or str(mutation.folder).startswith(tuple(areas)):
                by_place.setdefault((mutation.kind, mutation.folder), []).append(mutation)
    chance = random.Random(seed)
    queues = [_in_turn(by_place, kind, chance) for kind in KINDS]
    found: list[Mutation] = []
    for queue in cycle(queues):
        found += [each for each in [next(queue, None)] if each is not None]
        if len(found) == min(count, sum(map(len, by_place.values()))):
            return found
    return found


def _in_turn(
    by_place: Mapping[tuple[str, Path], list[Mutation]], kind: str, chance: random.Random
) -> Iterator[Mutation]:
    """All mutations of a kind, at random, from each folder in turn."""
    folders = sorted(folder for of, folder in by_place if of == kind)
    chance.shuffle(folders)
    left = [chance.sample(by_place[kind, folder], len(by_place[kind, folder])) for folder in folders]
    for turn in zip_longest(*left):
        yield from filter(None, turn)


def failure(copy: Path, tests: Sequence[str]) -> str | None:
    """The first test of a copy of the tree that fails; None if all pass."""
    options = ("-x", "-q", "-p", "no:cacheprovider")
    env = {**os.environ, "PYTHONPATH": str(copy / "exporter")}
    command = ["nice", "-n", "10", sys.executable, "-m", "pytest", *options, *tests]
    try:
        run = subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "a run that does not end"
    if run.returncode in {0, 5}:  # all passed, or there is none
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return found[1] if found else f"pytest, which ends with {run.returncode}"


def copied(where: Path) -> Path:
    """A copy of the working tree's files that git tracks."""
    release.copied(REPOSITORY, where, __version__)
    # Tests of what is generated list the tracked files.
    for arguments in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True)
    return where


def tried(mutation: Mutation, copies: SimpleQueue[Path], note: Callable[[str], None], *, near: bool) -> bool:
    """Whether the unit tests notice a mutation, in one of these copies."""
    copy, begun = copies.get(), time.monotonic()
    file = copy / mutation.path
    before = file.read_text(encoding="utf-8")
    try:
        file.write_text(mutation.applied(before), encoding="utf-8")
        by = next(filter(None, (failure(copy, stage) for stage in mutation.stages(near=near))), None)
        file.write_text(before, encoding="utf-8")
        # Without its parameters: their text may hold anything.
        if by is not None and "::" in by and failure(copy, [by.partition("[")[0]]):
            raise SystemExit(f"{by} fails without any mutation, too: mend it first")
    finally:
        file.write_text(before, encoding="utf-8")
        copies.put(copy)
    told = f"noticed by {by}" if by else "SURVIVED"
    note(f"{mutation}\n    {told}, after {time.monotonic() - begun:.0f} s")
    return by is not None


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit status: 0 if every mutation was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many ({COUNT})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"which ({SEED})")
    parser.add_argument("--area", action="append", default=[], help="a folder of the package, as judge; repeatable")
    parser.add_argument("--only", action="append", default=[], help="those with this text, as sampler/lanes.py:132")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (2)")
    parser.add_argument("--near", action="store_true", help="do not run the unit tests of other folders")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    arguments = parser.parse_args()
    chosen = drawn(arguments.count, arguments.seed, arguments.area)
    chosen = [each for each in chosen if not arguments.only or any(text in str(each) for text in arguments.only)]
    if arguments.list:
        _print("\n".join(map(str, chosen)))
        return 0
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="gpu-triage-mutations-") as folder:
        for number in range(arguments.workers):
            copies.put(copied(Path(folder) / str(number)))
        with ThreadPoolExecutor(arguments.workers) as pool:
            noticed = list(pool.map(lambda each: tried(each, copies, _print, near=arguments.near), chosen))
    survived = [str(each) for each, was in zip(chosen, noticed, strict=True) if not was]
    _print("\n".join([f"{sum(noticed)} of {len(chosen)} noticed; survived:", *survived]))
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
