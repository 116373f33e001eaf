"""A name in a docstring is looked for where a reader would look for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docstring_names import unknown

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
