"""`gpu-triage help`, and errors of all commands: what is wrong, and what to write instead."""

from pathlib import Path

import click
import pytest
import yaml
from deploy.generate.man_pages import commands
from tests.command_line import Run
from tests.gathered import every

from gpu_triage.options.values import OneOf


@pytest.mark.parametrize("words", [(), ("check",), ("baseline",), ("baseline", "write"), ("simulate",), ("help",)])
def test_help_shows_what_the_flag_shows(run: Run, words: tuple[str, ...]) -> None:
    assert run("help", *words) == run(*words, "--help")


ERRORS = yaml.safe_load((Path(__file__).parent / "errors.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("line", "expected"), ERRORS["errors"].items())
def test_errors_say_what_to_write(run: Run, line: str, expected: str) -> None:
    assert run(*line.split()) == (2, "", f"gpu-triage: error: {expected}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [(f"{name} {flags}", said) for name, cases in ERRORS["refused"].items() for flags, said in cases.items()],
)
def test_options_that_make_no_sense_are_refused_in_one_line(run: Run, line: str, said: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_no_parameter_has_a_type_with_messages_that_name_no_remedy() -> None:
    unclear = (
        f"{ctx.command_path} {parameter.opts[0]}: {parameter.type}"
        for ctx in every(commands())
        for parameter in ctx.command.params
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType | click.Choice)
        and not isinstance(parameter.type, OneOf)
    )
    assert list(unclear) == []
