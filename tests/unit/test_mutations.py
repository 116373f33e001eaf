"""Mutations are found where they are, each changes the program, and a seed draws of each kind from many folders."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.mutations import KINDS, REPOSITORY, drawn, mutations_of

SOURCE = '''\
"""Not 1 < 2 and 3."""
WAIT_SECONDS: Final = 0.5
x = max(a + 2, b if é else c)
if not x >= share * ease and (
    y in z
    or w
):
    pass
name = "1 + 1" + f"{x}"
kept = config.sample_fast_seconds
'''


def test_every_fault_is_found_where_it_is_and_text_is_left_alone() -> None:
    found = list(mutations_of(Path("a.py"), SOURCE))
    assert all(ast.dump(ast.parse(each.applied(SOURCE))) != ast.dump(ast.parse(SOURCE)) for each in found)
    assert {f"{each.line} {each.kind} {' '.join(each.after.split())}" for each in found} == {
        "2 threshold 0.25",
        "3 bound min",
        "3 arithmetic (a - 2)",
        "3 choice (c if é else b)",
        "4 comparison (x > (share * ease))",
        "4 comparison (x <= (share * ease))",
        "4 hysteresis (share / ease)",
        "4 condition ((x >= share * ease))",
        "4 condition (not x >= share * ease or (y in z or w))",
        "4 condition (not x >= share * ease)",
        "4 condition ((y in z or w))",
        "5 comparison (y not in z)",
        "5 condition ((y in z) and w)",
        "5 condition (w)",
        "5 condition ((y in z))",
        "10 threshold config.sample_medium_seconds",
    }


@pytest.mark.full
@pytest.mark.slow
def test_a_seed_draws_the_same_of_each_kind_from_many_folders() -> None:
    mutations = drawn(60, 1)
    assert mutations == drawn(60, 1) != drawn(60, 2)
    assert min(Counter(mutation.kind for mutation in mutations)[kind] for kind in KINDS) >= 60 // len(KINDS)
    assert len({mutation.folder for mutation in mutations}) >= 10
    assert all((REPOSITORY / stage[0]).exists() for each in mutations for stage in each.stages())
    assert {mutation.folder.parts[0] for mutation in drawn(20, 1, ["judge", "record"])} == {"judge", "record"}
