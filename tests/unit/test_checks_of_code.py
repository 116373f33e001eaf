"""The checks of the code and of the tests find what they look for, and nothing else; mutations change the program."""

import ast
from pathlib import Path

import pytest
from tests.docstring_names import unknown
from tests.empty_collections import vacuous
from tests.gathered import every
from tests.mutations import mutations_of


def test_a_rule_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        every(iter(()))


HEAD = """
TABLE = (1, 2)
FOUND = sorted(folder.glob("*"))
@pytest.mark.parametrize("given", [(1, 2)])
def test_some(given):
"""


@pytest.mark.parametrize(
    "body",
    [
        "for path in folder.glob('*'):\n        assert path",
        "for path in FOUND:\n        assert path",
        "with open(x) as file:\n        for line in file:\n            assert line",
        "assert all(path for path in FOUND)",
        "assert not any(path for path in FOUND)",
        "assert [path for path in FOUND if wrong(path)] == []",
        "wrong = {path for path in FOUND}\n    assert sorted(wrong) == []",
    ],
)
def test_what_is_fine_without_elements_is_found(body: str) -> None:
    assert vacuous(f"{HEAD}    {body}\n") == [(5, "test_some")]


@pytest.mark.parametrize(
    "body",
    [
        "assert FOUND\n    for path in FOUND:\n        assert path",
        "for number in TABLE:\n        assert number",
        "for number in given:\n        assert number",
        "for path in every(FOUND):\n        assert path",
        "for number in range(3):\n        assert number",
        "assert [path for path in every(FOUND) if wrong(path)] == []",
        "assert {name for name in SHIPPED if wrong(name)} == set()",
        "assert [one for one, _ in zip(TABLE, FOUND)] == []",
        "assert [path.name for path in FOUND] == ['a']",
        "with pytest.raises(ValueError):\n        read()",
        "(only,) = FOUND\n    assert only",
    ],
)
def test_what_needs_elements_is_not(body: str) -> None:
    assert vacuous(f"{HEAD}    {body}\n") == []


OTHER = """
LIMIT = 1
def read(path): ...
"""


@pytest.mark.parametrize(
    ("docstring", "missing"),
    [
        ("Reads like `read`, up to `LIMIT`, with `argument`, `other.read()` and `len`.", []),
        ("As `raed` does.", ["raed"]),
        ("`path` is an argument of another file.", ["path"]),
        ("``ls`` and `ls -l` are of other programs.", []),
        ("A method of `other.gone`.", ["other.gone"]),
    ],
)
def test_a_name_that_nothing_defines_is_found(tmp_path: Path, docstring: str, missing: list[str]) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "this.py").write_text(f'def function(argument):\n    """First.\n\n    {docstring}\n    """\n')
    assert [(each.name, each.line) for each in unknown(tmp_path.glob("*.py"))] == [(name, 4) for name in missing]


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
