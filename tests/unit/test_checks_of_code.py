"""The checks of the tests and of docstrings find what they look for, and nothing else."""

from pathlib import Path

import pytest
from tests.docstring_names import unknown
from tests.empty_collections import vacuous

HEAD = """
TABLE = (1, 2)
FOUND = sorted(folder.glob("*"))
@pytest.mark.parametrize("given", [(1, 2)])
def test_some(given):
"""
FINE_WITHOUT_ELEMENTS = (
    *("for path in folder.glob('*'):\n        assert path", "for path in FOUND:\n        assert path"),
    "with open(x) as file:\n        for line in file:\n            assert line",
    *("assert all(path for path in FOUND)", "assert not any(path for path in FOUND)"),
    "assert [path for path in FOUND if wrong(path)] == []",
    "wrong = {path for path in FOUND}\n    assert sorted(wrong) == []",
)
NEEDS_ELEMENTS = (
    "assert FOUND\n    for path in FOUND:\n        assert path",
    *("for number in TABLE:\n        assert number", "for number in given:\n        assert number"),
    *("for path in every(FOUND):\n        assert path", "for number in range(3):\n        assert number"),
    "assert [path for path in every(FOUND) if wrong(path)] == []",
    "assert {name for name in SHIPPED if wrong(name)} == set()",
    *("assert [one for one, _ in zip(TABLE, FOUND)] == []", "assert [path.name for path in FOUND] == ['a']"),
    *("with pytest.raises(ValueError):\n        read()", "(only,) = FOUND\n    assert only"),
)


@pytest.mark.parametrize("body", [*FINE_WITHOUT_ELEMENTS, *NEEDS_ELEMENTS])
def test_what_is_fine_without_elements_is_found(body: str) -> None:
    assert vacuous(f"{HEAD}    {body}\n") == ([(5, "test_some")] if body in FINE_WITHOUT_ELEMENTS else [])


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
