"""What is generated is up to date and marked as such, and one command renews all of it."""

from pathlib import Path

import pytest
from deploy.generate.__main__ import main
from deploy.generate.steps import STEPS, Step, stale, write

SLOW = {"tutorial": (pytest.mark.slow, pytest.mark.timeout(600))}
"""Its commands play eleven minutes of eight GPUs."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in STEPS])
def test_what_a_step_writes_is_up_to_date(name: str) -> None:
    assert stale(STEPS[name]) == [], "run `make regenerate`"


def test_a_step_writes_its_files_and_deletes_those_that_it_no_longer_makes(tmp_path: Path) -> None:
    step = Step(lambda: {Path("new/a.md"): "a\n", Path("kept/b.md"): "b\n"}, ("kept/*.md",))
    for path in ("kept/b.md", "kept/gone.md", "kept/other.txt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("old\n")
    assert stale(step, tmp_path) == [Path("new/a.md"), Path("kept/b.md"), Path("kept/gone.md")]
    write(step, tmp_path)
    assert stale(step, tmp_path) == []
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert written == {"new/a.md", "kept/b.md", "kept/other.txt"}


def test_every_step_can_be_named_and_the_first_are_the_rules_that_all_others_read() -> None:
    (steps,) = (parameter.type for parameter in main.params if parameter.name == "steps")
    assert {*STEPS, "notifications", "goldens", "bad-night"} == set(steps.choices)  # type: ignore[attr-defined]  # click.Choice
    assert next(iter(STEPS)) == "rules"
