"""The command `gpu-triage advise`: one GPU or several for a job on this host."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Final

import click

from gpu_triage.cli.advise.answer import as_json, as_text
from gpu_triage.cli.advise.job import Job, JobKind
from gpu_triage.cli.advise.recommendation import recommend
from gpu_triage.cli.machines import stepped_machine
from gpu_triage.cli.measure import MEASURE, applies, measure
from gpu_triage.cli.one_shot import for_option, format_option, host_options, scenario_time, simulate_at_option
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_SOUND
from gpu_triage.judge.report.text import printable
from gpu_triage.log import configure
from gpu_triage.options.command import OptionsCommand
from gpu_triage.options.config import Config

_COUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMBTkmbt]?)")
_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@click.command("advise", cls=OptionsCommand, short_help="Say whether a job should use one GPU or several.")
@click.option("--parameters", required=True, metavar="COUNT", help="Size of the model: 258K, 6.9M, 7B.")
@click.option(
    "--batch-size",
    required=True,
    type=click.IntRange(1, 10_000_000),
    metavar="NUMBER",
    help="Samples of a step, of all GPUs together.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    metavar="NUMBER",
    help="GPUs to compare with one; without it all usable GPUs of one model.",
)
@click.option(
    "--workload",
    type=click.Choice([kind.value for kind in JobKind]),
    default="training",
    show_default=True,
    help="What the job does.",
)
@format_option(text="people", json="programs")
@for_option("5s", MEASURE)
@simulate_at_option
@host_options(applies)
def advise_command(
    *,
    config: Config,
    parameters: str,
    batch_size: int,
    gpus: int | None,
    workload: str,
    form: str,
    seconds: float,
    simulate_at: float | None,
) -> int:
    """Say whether a job should use one GPU or several on this host, why, and what to fix first.

    Looks at the host for some seconds: memory of the GPUs, paths between them, peer access, NVLink, PCIe links,
    what the host can feed. Leaves out GPUs with critical findings. Names its rule, its source and the limits of its
    advice.

    Exit code: 0 with a recommendation, 2 the GPUs could not be checked, or the options cannot be used.
    """
    job = Job(parse_count(parameters), batch_size, gpus, JobKind(workload))
    begin = scenario_time(simulate_at, config)
    configure("critical", config.log_format)
    with ExitStack() as stack:
        judgment = measure(stepped_machine(config, stack, begin), config, seconds)
    if judgment.report.blocked is not None:
        click.echo(f"gpu-triage: could not check: {printable(judgment.report.blocked)}", err=True)
        return EXIT_COULD_NOT_LOOK
    answer = recommend(job, judgment.host, judgment.report)
    lines = [as_json(job, answer)] if form == "json" else [printable(line) for line in as_text(job, answer)]
    click.echo("\n".join(lines))
    return EXIT_SOUND


def parse_count(text: str) -> float:
    """Parse a count such as ``6.9M``.

    Raises:
        ConfigError: not a valid count, or 0.
    """
    match = _COUNT.fullmatch(text)
    count = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if count < 1:
        raise ConfigError(f"--parameters: {text[:60]!r} isn't a parameter count; write 258K, 6.9M or 7B")
    return count
