"""`gpu-triage help`, and errors of all commands: what is wrong, and what to write instead."""

from collections.abc import Iterator

import click
import pytest
from tests.command_line import Run
from tests.gathered import every

from gpu_triage.cli.main import group
from gpu_triage.options.values import OneOf, StrictBool


@pytest.mark.parametrize("words", [(), ("check",), ("baseline",), ("baseline", "write"), ("simulate",), ("help",)])
def test_help_shows_what_the_flag_shows(run: Run, words: tuple[str, ...]) -> None:
    assert run("help", *words) == run(*words, "--help")


def test_help_is_listed(run: Run) -> None:
    assert "  help          Show the help of a command" in run("help").out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("help chek", "no such command chek; did you mean check?"),
        ("help baseline wrote", "no such command wrote; did you mean write?"),
        ("help check now", "gpu-triage check has no commands; leave out now"),
        ("web-password --cost 64k", "--cost: '64k' is invalid; write a whole number from 4 to 16"),
        ("advise --params 7B --gpus 64k", "--gpus: '64k' is invalid; write a whole number from 1 to 64"),
        ("top --every 0", "--every: '0' has no unit; write a duration from 1s to 1m"),
        ("serve --sample.fsat 5s", "no such option --sample.fsat; did you mean --sample.fast?"),
        ("serve --no-colector.host", "no such option --no-colector.host; did you mean --no-collector.host?"),
        ("serve --zzzzzz", "no such option --zzzzzz; gpu-triage serve --help-all lists them"),
        ("serve --sample.fast", "Option '--sample.fast' requires an argument; write --sample.fast DURATION"),
        ("serve --collector.host=1", "Option '--collector.host' does not take a value; write --[no-]collector.host"),
        ("serve now", "Got unexpected extra argument (now); gpu-triage serve --help shows what is right"),
        ("check --format xml", "--format: 'xml' is invalid; write text, json or lines"),
        ("check --fail-on bad", "--fail-on: 'bad' is invalid; write critical, warning or info"),
        ("check --from", "Option '--from' requires an argument; write --from FILE..."),
        ("check --format", "Option '--format' requires an argument; write --format text|json|lines"),
        ("fleet", "--prometheus is missing; write --prometheus URL"),
        ("baseline diff", "FILE is missing; write gpu-triage baseline diff FILE"),
    ],
)
def test_errors_say_what_to_write(run: Run, line: str, expected: str) -> None:
    assert run(*line.split()) == (2, "", f"gpu-triage: error: {expected}\n")


REFUSED = {
    "advise": [
        ("--params 7", "--params: '7' has no unit; write 7M for millions or 7B for billions"),
        ("--params 3B --step-time 250", "--step-time: '250' has no unit; write 250ms or 250s"),
        ("--params 3B --step-time 0s", "write a duration from 1ms to 24h"),
        ("--params 3B --gradient-bits 8", "'8' is invalid; write 32 or 16"),
        ("--params 3B --gpus 65", "write a whole number from 1 to 64"),
        ("--step-time 1s", "--params"),
    ],
    "baseline write": [
        ("--simulate-at 5m", "name a scenario with --simulate"),
        ("--simulate-at soon --simulate dual-a10", "--simulate-at: "),
        ("--within 1 --simulate dual-a10", "--within: "),
        ("--within 99999999h --simulate dual-a10", "write a duration from 1s to 1h"),
        ("--simulate nowhere", "no scenario 'nowhere'"),
    ],
    "check": [
        ("--simulate-at 3m", "name a scenario with --simulate"),
        ("--for 3", "--for: '3' has no unit; write 3s"),
        ("--for 1s", "write a duration from 2s to 1h"),
        ("--simulate idle-downshift --simulate-at soon", "--simulate-at: 'soon' is no duration"),
        ("--from dmesg.txt --for 5s", "--from measures nothing: leave out --for and --patience"),
        ("--from dmesg.txt --patience 5s", "--from measures nothing"),
        ("--from x --simulate dual-a10", "give one of them"),
        ("--redact", "name them with --from"),
        ("dmesg.txt", "--from"),
        ("--web.listen-address :1", "no such option --web.listen-address"),
    ],
    "explain": [("", "give one alert, finding or Xid, or --list"), ("--list GpuLost", "give one alert")],
    "fleet --prometheus http://x": [("--at yesterday", "is no time"), ("--at 2026-11-22T10:00:00", "has no offset")],
    "judge": [
        ("", "there is nothing to judge; name a recording with --replay, or a scenario with --simulate"),
        ("--replay /dev/null --for 1m", "--for is for scenarios; a recording is replayed to its end"),
        ("--replay /dev/null", "/dev/null: cannot be read"),
        ("--simulate dual-a10 --set thermal.hw.wait=5", "--set: thermal.hw.wait: '5' is invalid"),
        ("--simulate dual-a10 --set thermal.hv.wait=5m", "--set: there is no finding 'thermal.hv'"),
        ("--simulate dual-a10 --set 5m", "'5m' is invalid; write a finding, a setting of it and a value"),
    ],
    "report --prometheus http://x --at 0": [
        ("--output report.pdf", "end the name in .html"),
        ("--over 30", "is no period"),
        ("--over 53w", "is no period"),
        ("--since 6h --over 5d", "give one of them"),
    ],
    "top": [
        ("--once --url http://gpu-07 --simulate dual-a10", "give one of them"),
        ("--simulate dual-a10", "top needs a terminal; give --once"),
        ("--every 10ms", "write a duration from 1s to 1m"),
    ],
}


@pytest.mark.parametrize(
    ("line", "said"), [(f"{command} {flags}", said) for command, cases in REFUSED.items() for flags, said in cases]
)
def test_options_that_make_no_sense_are_refused_in_one_line(run: Run, line: str, said: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


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
