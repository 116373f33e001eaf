"""The checks of the code and of the tests find what they look for, and nothing else.

A test of all cases of a rule names those that break it. A test that asserts nothing unless its collection has elements
is found, and a name in a docstring is looked for where a reader would look for it.
"""

from pathlib import Path

import pytest
from tests.docstring_names import unknown
from tests.empty_collections import vacuous
from tests.gathered import every, for_each


def test_all_cases_that_break_the_rule_are_told_by_name() -> None:
    @for_each("number", lambda: range(5))
    def rule(number: int, divisor: int) -> None:
        assert number % divisor, "is a multiple"

    with pytest.raises(pytest.fail.Exception, match=r"(?s)3 of 5 break the rule.*\n2: is a multiple.*\n4: is a"):
        rule(divisor=2)


def test_a_rule_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        every(iter(()))


def test_a_case_that_cannot_be_tried_is_named() -> None:
    @for_each("word", ["12", "a dozen"])
    def rule(word: str) -> None:
        assert int(word)

    with pytest.raises(RuntimeError, match="a dozen"):
        rule()


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
