"""The check for tests that pass on an empty collection finds what it looks for, and nothing else."""

import pytest
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
