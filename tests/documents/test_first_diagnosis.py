"""The tutorial shows what its commands print: each of them stands where the generator runs it."""

from __future__ import annotations

from deploy.generate.first_diagnosis import COMMAND, PAGE
from tests.conftest import REPOSITORY


def test_each_command_of_the_tutorial_is_run() -> None:
    shown = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert len(COMMAND.findall(shown)) == shown.count("\n$ gpu-triage ") >= 6
