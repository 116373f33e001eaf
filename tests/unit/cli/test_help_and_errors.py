"""`gpu-triage help`, and errors of all commands: what is wrong, and what to write instead."""

from collections.abc import Iterator

import click
import pytest
from tests.gathered import every

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.options.values import OneOf, StrictBool


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_cli(group, arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("words", [(), ("check",), ("baseline",), ("baseline", "write"), ("simulate",), ("help",)])
def test_help_shows_what_the_flag_shows(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert said(capsys, "help", *words) == said(capsys, *words, "--help")


def test_help_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  help          Show the help of a command" in said(capsys, "help")[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("help chek", "no such command chek; did you mean check?"),
        ("help baseline wrote", "no such command wrote; did you mean write?"),
        ("help check now", "gpu-triage check has no commands; leave out now"),
        ("web-password --cost 64k", "--cost: '64k' is invalid; write a whole number from 4 to 16"),
        ("advise --params 7B --gpus 64k", "--gpus: '64k' is invalid; write a whole number from 1 to 64"),
        ("check --format xml", "--format: 'xml' is invalid; write text, json or lines"),
        ("check --fail-on bad", "--fail-on: 'bad' is invalid; write critical, warning or info"),
        ("serve --log.level loud", "--log.level: 'loud' is invalid; write debug, info, warning or error"),
        ("serve --expect.pcie-width 3", "--expect.pcie-width: '3' is invalid; write 1, 2, 4, 8, 12, 16 or 32"),
        ("check --from", "Option '--from' requires an argument; write --from FILE..."),
        ("check --format", "Option '--format' requires an argument; write --format text|json|lines"),
        ("fleet", "--prometheus is missing; write --prometheus URL"),
        ("baseline diff", "FILE is missing; write gpu-triage baseline diff FILE"),
    ],
)
def test_errors_say_what_to_write(capsys: pytest.CaptureFixture[str], line: str, expected: str) -> None:
    code, out, err = said(capsys, *line.split())
    assert (code, out) == (2, "")
    assert err == f"gpu-triage: error: {expected}\n"


def commands(command: click.Command, ctx: click.Context) -> Iterator[click.Context]:
    yield ctx
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from commands(found, click.Context(found, parent=ctx, info_name=name))


def test_no_parameter_has_a_type_with_messages_that_name_no_remedy() -> None:
    unclear = (
        f"{ctx.command_path} {parameter.opts[0]}: {parameter.type}"
        for ctx in every(commands(group, click.Context(group, info_name="gpu-triage")))
        for parameter in ctx.command.params
        if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType | click.Choice)
        and not isinstance(parameter.type, OneOf | StrictBool)
    )
    assert list(unclear) == []
