"""The tutorial's commands run and print what it shows."""

from __future__ import annotations

import pytest
from docs import first_diagnosis

pytestmark = pytest.mark.slow


def test_the_tutorial_shows_what_its_commands_print() -> None:
    shown = first_diagnosis.PAGE.read_text(encoding="utf-8")
    assert shown.count("$ gpu-triage ") >= 6
    assert first_diagnosis.page() == shown, "run `python -m docs.first_diagnosis`"
