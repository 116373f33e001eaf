"""The tutorial's commands run and print what it shows."""

from __future__ import annotations

import pytest
from docs import first_diagnosis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
"""Eleven minutes of eight GPUs are played."""


def test_the_tutorial_shows_what_its_commands_print() -> None:
    shown = first_diagnosis.PAGE.read_text(encoding="utf-8")
    assert shown.count("$ gpu-triage ") >= 6
    assert first_diagnosis.page() == shown, "run `make regenerate`"
