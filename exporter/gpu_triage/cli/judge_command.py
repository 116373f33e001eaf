"""``gpu-triage judge``: try other wait times, hold times and thresholds on a recorded or simulated host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import click

from gpu_triage.cli.machines import stepped_host
from gpu_triage.cli.one_shot import format_option, host_options
from gpu_triage.cli.timeline import render_json, render_text, timelines
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.settings import Change, JudgeSettings, judge_settings, settings_document
from gpu_triage.log import configure
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.options.option import Option
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.progress import ProgressLine
from gpu_triage.options.values import JUDGE_SETTING, duration
from gpu_triage.record.bundle import read_recording

_SECTIONS: Final = frozenset({"Expectations", "Simulation", "Configuration file"})
_SIMULATED_SECONDS: Final = 3600.0
_STEP_SECONDS: Final = 5.0
"""Polling interval for a simulated host; a recording uses the exporter's."""


def applies(option: Option) -> bool:
    """Whether a daemon option is also a flag of this command."""
    return option.section in _SECTIONS and option.key != "simulate-pace"


@click.command(
    "judge",
    cls=OptionsCommand,
    short_help="Try other waits and thresholds on a recording.",
    examples=(
        ("gpu-triage judge --replay 20260115T032000Z-gpu-3-thermal.hw.tar.gz", "when each finding came and went"),
        ("gpu-triage judge --replay night.tar.gz --set thermal.hw.wait=5m", "the same with a shorter wait"),
        ("gpu-triage judge --simulate h100-8-bad-night --for 30m --set thermal.hw.share=20%", "without a recording"),
        ("gpu-triage judge --print-config > judge.yml", "all settings, with defaults and ranges"),
    ),
    essential=("replay", "simulate", "config.file"),
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    type=JUDGE_SETTING,
    metavar="FINDING.NAME=VALUE",
    help="A wait, hold or threshold to compare with what is configured; can be repeated.",
)
@click.option(
    "--for",
    "seconds",
    type=duration("1s", "24h"),
    metavar="DURATION",
    help="How long to run a scenario.  [default: 1h]",
)
@format_option(text="people", json="programs")
@click.option("--print-config", is_flag=True, help="Print all settings with their defaults, as YAML, and exit.")
@host_options(applies)
def judge_command(
    *,
    config: Config,
    changes: tuple[JudgeOption, ...],
    seconds: float | None,
    form: str,
    print_config: bool,
) -> int:
    """Replay a recording on a virtual clock through the exporter's judge, and print when each finding became
    pending, was confirmed, and ended.

    A finding is pending while its condition holds and has not lasted for its wait. Then it is confirmed: its alert
    fires, and the verdict is that of its severity. It ends when its condition has been gone for its hold.

    With --set, a second judge with these settings looks at the same samples, and the findings that differ come
    first. Put what you like into the section "judge" of the exporter's configuration file.

    A recording of gpu-triage record or of the flight recorder holds minutes. What has a longer wait than that is
    pending at its end.

    Exit code: 0 replayed, whatever was found; 2 the options or the recording cannot be used.
    """  # noqa: D205 - the help shows it as a paragraph
    if print_config:
        click.echo(settings_document(), nl=False)
        return 0
    if config.replay is None and config.simulate is None:
        raise ConfigError("there is nothing to judge; name a recording with --replay, or a scenario with --simulate")
    if config.replay is not None and seconds is not None:
        raise ConfigError("--for is for scenarios; a recording is replayed to its end")
    configure("critical", config.log_format)
    base = judge_settings(config.judge)
    names, settings = [_name(base)], [base]
    if changes:
        chosen = (*config.judge, *(replace(each, place="--set") for each in changes))
        names.append("with these settings")
        settings.append(judge_settings(chosen))
    if config.replay is not None:
        seconds = read_recording(config.replay).seconds
    else:
        step = max(_STEP_SECONDS, config.sample_fast_seconds)
        config = replace(
            config, sample_fast_seconds=step, sample_medium_seconds=max(step, config.sample_medium_seconds)
        )
    total = _SIMULATED_SECONDS if seconds is None else seconds
    with ExitStack() as stack, ProgressLine() as line:
        host = stepped_host(config, stack)
        found = timelines(
            host.machine,
            host.config,
            total,
            settings,
            lambda done: line.show(f"judging, {done / 60:.0f} of {total / 60:.0f} min"),
        )
    render = render_text if form == "text" else render_json
    source = str(config.replay or config.simulate)
    click.echo(render(found, source, names, tuple(_changes(settings))), nl=False)
    return 0


def _name(settings: JudgeSettings) -> str:
    return "as configured" if settings.changed else "default"


def _changes(settings: Sequence[JudgeSettings]) -> Iterator[Change]:
    """Yield how the last settings differ from the first, as changes with the first's values as defaults."""
    first, last = ({(each.code, each.name): each for each in some.changed} for some in (settings[0], settings[-1]))
    for key, change in {**first, **last}.items():
        before, now = (some[key].value if key in some else change.default for some in (first, last))
        if now != before:
            yield replace(change, value=now, default=before)
