"""Mutations change one operator or constant each, and a seed always draws the same, spread over the package."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.mutations import COUNT, KINDS, REPOSITORY, SEED, drawn, mutations_of

SOURCE = '''\
"""Not 1 < 2 and 3."""
x = (a + 2) * b
if (
    x >= 10
    and y in z
):
    pass
name = "1 + 1" + f"{x}"
é = "é" if é == 1.5 else None
'''


def changed() -> set[str]:
    found = list(mutations_of(Path("a.py"), SOURCE))
    assert all(ast.parse(mutation.applied(SOURCE)) for mutation in found)
    return {f"{mutation.line} {mutation.before} -> {mutation.after}" for mutation in found}


def test_every_operator_and_number_is_found_where_it_stands_and_text_is_left_alone() -> None:
    assert changed() == {
        "2 + -> -",
        "2 * -> /",
        "2 2 -> 3",
        "4 >= -> >",
        "4 10 -> 11",
        "5 and -> or",
        "5 in -> not in",
        "9 == -> !=",
        "9 1.5 -> 2.5",
    }


@pytest.mark.full
@pytest.mark.slow
def test_a_seed_draws_the_same_of_each_kind_from_many_folders() -> None:
    mutations = drawn(COUNT, SEED)
    assert mutations == drawn(COUNT, SEED) != drawn(COUNT, SEED + 1)
    assert Counter(mutation.kind for mutation in mutations) == dict.fromkeys(KINDS, COUNT // len(KINDS))
    assert len({mutation.folder for mutation in mutations}) >= 10
    for mutation in mutations:
        assert (REPOSITORY / mutation.unit_tests).is_dir()
        text = (REPOSITORY / mutation.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutation.applied(text))) != ast.dump(ast.parse(text))
