"""The help of the real command line, for a person who tries a command for the first time; progress on a terminal."""

import io
import re

import click
import pytest
from click.testing import CliRunner
from deploy.generate.man_pages import commands

from gpu_triage.cli.main import group
from gpu_triage.options.option import Option
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.progress import ProgressLine
from gpu_triage_simulator import VirtualClock


def help_of(command: str, columns: int = 100) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(group, [*command.split(), "--help"])
    assert result.exit_code == 0
    return result.output


def test_commands_to_copy_stand_on_lines_of_their_own() -> None:
    lines = help_of("simulate").splitlines()
    for command in (
        "gpu-triage serve --simulate NAME",
        "gpu-triage simulate h100-8-bad-night --history 75m --step 15s --output night.om",
        "promtool tsdb create-blocks-from openmetrics night.om data",
    ):
        assert f"    {command}" in lines


@pytest.mark.parametrize("context", [*commands()], ids=lambda each: each.command_path)
def test_help_has_no_markup_and_explains_each_of_a_commands_own_flags(context: click.Context) -> None:
    shown = context.get_help()
    assert "\\b" not in shown
    assert "\b" not in shown
    own = (each for each in context.command.params if isinstance(each, click.Option) and not isinstance(each, Option))
    assert [each.name for each in own if not each.help and not each.hidden] == []


@pytest.mark.parametrize("command", ["check", "record", "baseline diff"])
def test_a_commands_own_flags_come_first_and_its_arguments_are_no_flags(command: str) -> None:
    sections = [line for line in help_of(command).splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections[0] == "Options:"
    assert "Other:" not in sections
    listed = [line.split()[0] for line in help_of(command).splitlines() if line.startswith("  ") and line.split()]
    assert not {"FILE", "DIR|FILE.tar.gz"} & set(listed)


@pytest.mark.parametrize("command", ["serve", "check", "top", "record", "advise", "baseline write"])
def test_help_is_about_a_screen_and_names_the_way_to_the_rest(command: str) -> None:
    default_samples = help_of(command)
    assert len(default_samples.splitlines()) <= 60
    assert f" {command} --help-all" in " ".join(default_samples.split())
    assert "--simulate SCENARIO" in default_samples


@pytest.mark.parametrize("command", ["serve", "check", "top"])
def test_the_examples_of_the_help_are_commands_that_can_be_given(command: str) -> None:
    _, _, examples = help_of(command).partition("Examples:\n")
    found = re.findall(r"^  gpu-triage (.*)$", examples, re.MULTILINE)
    assert len(found) > 2
    for line in found:
        name, *arguments = line.split()
        target = group.get_command(click.Context(group), name)
        assert target is not None
        target.make_parser(click.Context(target)).parse_args(arguments)


def test_the_essential_options_are_options() -> None:
    for name in ("serve", "check"):
        found = group.get_command(click.Context(group), name)
        assert isinstance(found, OptionsCommand)
        assert found.essential <= {each.key for each in found.params if isinstance(each, Option)}


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    for columns in (80, 100):
        listed = CliRunner().invoke(group, ["--help"], terminal_width=columns).output.partition("Commands:")[2]
        assert "..." not in listed
        assert all(line.endswith((".", ").")) for line in listed.splitlines() if line)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_work_that_takes_long_says_on_a_terminal_how_far_it_is() -> None:
    terminal, clock = Terminal(), VirtualClock()
    with ProgressLine(terminal, lambda: clock.now().monotonic) as line:
        for seconds, done in ((0.5, 5), (2.5, 25), (0.1, 30), (8.9, 90)):
            clock.advance(seconds)
            line.show_share("recording", done, 100)
    shown = ("recording, 25 %, about 9 s left", "recording, 90 %, about 1 s left", "")
    assert terminal.getvalue() == "".join(f"\r\x1b[K{each}" for each in shown)


def test_work_that_takes_no_time_and_a_file_are_told_nothing() -> None:
    for stream, now in ((Terminal(), 0.5), (io.StringIO(), 60.0)):
        with ProgressLine(stream, iter([0.0, now, now]).__next__) as line:
            line.show_share("recording", 5, 100)
        assert stream.getvalue() == ""
