"""Examples in docstrings show what the code does."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import gpu_triage

SOURCES = Path(gpu_triage.__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0, "the examples are in no docstring"
    assert results.failed == 0
