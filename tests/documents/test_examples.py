"""Examples in docstrings show what the code does."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import gpu_triage

PACKAGE = Path(gpu_triage.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0, "the examples are in no docstring"
    assert results.failed == 0
