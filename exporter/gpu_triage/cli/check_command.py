"""The command `gpu-triage check`: its options and exit code."""

from functools import partial

import click

from gpu_triage.cli import one_shot
from gpu_triage.cli.machines import is_made_up
from gpu_triage.cli.measure import MEASURE, applies, judge_recording, measure_configured
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.report.machine_readable import render_json, render_lines
from gpu_triage.judge.report.text import render_text
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration


@click.command(
    "check",
    cls=OptionsCommand,
    short_help="Say what is wrong with this host, and what to do.",
    examples=(
        ("gpu-triage check", "what is wrong with this host"),
        ("gpu-triage check --for 1m --fail-on warning", "look longer, for slow errors; fail on warnings too"),
        ("gpu-triage check --for 3s --expect.gpu-count 8 --format lines", "in a script, such as a Slurm prolog"),
        ("gpu-triage check --from nvidia-bug-report.log.gz dmesg.txt", "read files from another host"),
        ("gpu-triage check --simulate h100-8-bad-night --simulate-at 70m", "see a report without a GPU"),
    ),
)
@one_shot.for_option("10s", MEASURE)
@one_shot.duration_option(
    "--patience",
    "patience",
    duration("1s", "10m"),
    "30s",
    "How long to wait for the driver's first answer; opening GPUs takes seconds each without persistence.",
)
@one_shot.format_option(text="people", json="programs", lines="shell scripts")
@one_shot.fail_on_option
@click.option(
    "--from",
    "paths",
    metavar="FILE...",
    multiple=True,
    help="Measure nothing and judge these files: nvidia-bug-report.log[.gz], nvidia-smi output, dmesg, journal, "
    "lspci -vvv, a recording, or a folder of them; - is standard input.",
)
@click.option(
    "--redact", is_flag=True, help="With --from: replace names, UUIDs and addresses, so that it can be shared."
)
@click.argument("more_paths", nargs=-1, metavar="")
@click.option("--verbose", "-v", is_flag=True, help="Log sampler messages to stderr.")
@one_shot.host_options(applies)
def check_command(
    *,
    config: Config,
    seconds: float,
    patience: float,
    form: str,
    fail_on: str,
    paths: tuple[str, ...],
    more_paths: tuple[str, ...],
    redact: bool,
    verbose: bool,
) -> int:
    """Measure this host for some seconds and say what is wrong with it, in the order of the playbook.

    Prints what was measured, what it means and what to do, then for each GPU its bottleneck and whether it should
    go on taking work: keep, watch or drain, or in plain words where no scheduler is known. Needs no root; lists what
    it could not read.

    One check cannot confirm findings that take minutes: they stay pending, a warning at most. The running exporter
    can. A recording is judged whole.

    Exit code: 0 healthy, 1 findings as severe as --fail-on (by default: the verdict is drain), 2 the GPUs could not
    be checked or, without a report, the options are invalid, 70 an internal error.
    """
    configure(config.log_level if verbose else "critical", config.log_format)
    if more_paths and not paths:
        raise click.UsageError(
            f"Got unexpected extra argument ({more_paths[0]}); to judge files, name them after --from"
        )
    if redact and not paths:
        raise ConfigError("--redact is for files; name them with --from")
    if paths:
        if is_made_up(config):
            raise ConfigError("--from reads files, --simulate and --replay make up a host; give one of them")
        if any(map(one_shot.given, ("seconds", "patience"))):
            raise ConfigError("--from measures nothing: leave out --for and --patience")
        from gpu_triage.cli.offline.files_report import check_files  # noqa: PLC0415 - only this needs the parsers

        report = check_files((*paths, *more_paths), config, redact=redact)
    elif config.replay is not None and not one_shot.given("seconds"):
        report = judge_recording(config)
    else:
        report = measure_configured(config, seconds, patience, last_seconds=seconds).report
    if form == "text":
        one_shot.echo_text(partial(render_text, report))
    else:
        click.echo(render_json(report) if form == "json" else render_lines(report), nl=False)
    return report.exit_code(Severity(fail_on))
