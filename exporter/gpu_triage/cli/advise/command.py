"""The command `gpu-triage advise`: whether a second GPU of this host pays for a job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from gpu_triage.cli.advise.estimate import PARAMETERS, Job
from gpu_triage.cli.advise.recommendation import recommend
from gpu_triage.cli.advise.text import as_json, as_text
from gpu_triage.cli.machines import stepped_host
from gpu_triage.cli.measure import MEASURE, applies, measure
from gpu_triage.cli.one_shot import for_option, format_option, host_options
from gpu_triage.documents import printable
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_SOUND
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration, number_among, whole_number


@click.command(
    "advise",
    cls=OptionsCommand,
    short_help="Say whether a second GPU pays for a training job.",
    essential=("simulate", "config.file"),
    examples=(
        ("gpu-triage advise --params 350M", "from which step time on do two GPUs pay here?"),
        ("gpu-triage advise --params 3B --step-time 900ms", "how much faster are 2, 4 and 8?"),
    ),
)
@click.option(
    "--params",
    "parameters",
    required=True,
    type=PARAMETERS,
    help="Trained parameters, with LoRA those of the adapters: 350M, 3B, 7e9.",
)
@click.option(
    "--step-time",
    "step_seconds",
    type=duration("1ms", "24h"),
    help="Time of one step on one GPU, with its unit: 200ms.",
)
@click.option(
    "--gradient-bits",
    type=number_among(32, 16),
    default="32",
    show_default=True,
    help="Size of an exchanged gradient: 32 with PyTorch's autocast; 16 if the model is held in 16 bits.",
)
@click.option("--grow-batch", is_flag=True, help="Each GPU has the batch of one, instead of a share of it.")
@click.option("--gpus", type=whole_number(1, 64), help="Most GPUs to use.")
@format_option(text="people", json="programs")
@for_option("5s", MEASURE)
@host_options(applies)
def advise_command(*, config: Config, form: str, seconds: float, **given: Any) -> int:
    """Say whether a second GPU of this host pays for a training job, and show the calculation.

    Looks at the host for some seconds. Names sick links, then estimates from the path between the GPUs as read, the
    gradients to exchange and the step time of one GPU how much faster 2, 4 and 8 GPUs are, from the worst to the best
    case. Where that does not settle it, lists what to try. Leaves out GPUs with critical findings.

    Exit code: 0 with a recommendation, 2 the GPUs could not be checked, or the options cannot be used.
    """
    configure("critical", config.log_format)
    with ExitStack() as stack:
        host = stepped_host(config, stack)
        judgment = measure(host.machine, host.config, seconds)
    if judgment.report.blocked is not None:
        click.echo(f"gpu-triage: could not check: {printable(judgment.report.blocked)}", err=True)
        return EXIT_COULD_NOT_LOOK
    answer = recommend(Job(**given), judgment.host, judgment.report)
    click.echo(as_json(answer) if form == "json" else as_text(answer))
    return EXIT_SOUND
