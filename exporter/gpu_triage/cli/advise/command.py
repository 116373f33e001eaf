"""The command `gpu-triage advise`: one GPU or several for a job on this host."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

import click

from gpu_triage.cli.advise.job import OPTIMIZERS, PRECISIONS, Job, Workload, checked, parse_count
from gpu_triage.cli.advise.machine_readable import as_json
from gpu_triage.cli.advise.recommendation import Recommendation, recommend
from gpu_triage.cli.advise.steps import StepTime, StepWatch
from gpu_triage.cli.advise.text import as_text
from gpu_triage.cli.machines import stepped_host
from gpu_triage.cli.measure import MEASURE, applies, measure
from gpu_triage.cli.one_shot import for_option, format_option, host_options
from gpu_triage.documents import printable
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_SOUND
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import OneOf, duration, whole_number

_GIVEN: Final = StepTime(None, "--step-time")
_UNKNOWN: Final = StepTime(None, "no --step-time")
_DEFAULT_PRECISION: Final = {Workload.TRAINING: "mixed", Workload.INFERENCE: "bf16"}
_DEFAULT_OPTIMIZER: Final = "adamw"


@click.command(
    "advise",
    cls=OptionsCommand,
    short_help="Say whether a job should use one GPU or several.",
    essential=("collector.textfile.directory", "simulate", "config.file"),
    examples=(
        ("gpu-triage advise --params 350M", "from which step time on do two GPUs pay here?"),
        ("gpu-triage advise --params 3B --step-time 900ms", "how efficient are 2, 4 and 8?"),
        ("gpu-triage advise --params 70B --workload inference --heads 64", "how many GPUs per replica?"),
    ),
)
@click.option("--params", "parameters", required=True, metavar="COUNT", help="Size of the model: 350M, 3B, 7e9.")
@click.option(
    "--workload",
    type=OneOf([each.value for each in Workload]),
    default=Workload.TRAINING.value,
    show_default=True,
    help="What the job does.",
)
@click.option(
    "--precision",
    type=OneOf(list(PRECISIONS)),
    help="mixed has an FP32 copy for the optimizer, bf16 none; int8 and int4 are frozen.  "
    "[default: mixed; inference bf16]",
)
@click.option(
    "--optimizer",
    type=OneOf(list(OPTIMIZERS)),
    help=f"The optimizer; sgd has momentum.  [default: {_DEFAULT_OPTIMIZER}]",
)
@click.option(
    "--lora-rank",
    type=whole_number(1, 1024),
    help="Rank of LoRA's adapters, if only these are trained.",
)
@click.option(
    "--step-time",
    type=duration("1ms", "24h"),
    help="Time of one step on one GPU; else from gpu_job_steps_total, if written.",
)
@click.option(
    "--same-total-batch",
    is_flag=True,
    help="More GPUs share the batch of one.",
)
@click.option(
    "--heads",
    type=whole_number(1, 1024),
    help="Attention heads: split a model only over a number that divides them.",
)
@click.option("--gpus", type=whole_number(1, 64), help="Most GPUs to use.")
@format_option(text="people", json="programs")
@for_option("5s", MEASURE)
@host_options(applies)
def advise_command(*, config: Config, form: str, seconds: float, step_time: float | None, **wanted: Any) -> int:
    """Say whether a job should use one GPU or several on this host, and show the arithmetic.

    Looks at the host for some seconds. Names sick links, then computes the memory of weights, gradients and
    optimizer, and from the data to exchange and the bandwidth of the path as read, the efficiency of 2, 4 and 8 GPUs.
    Leaves out GPUs with critical findings.

    Exit code: 0 with a recommendation, 2 the GPUs could not be checked, or the options cannot be used.
    """
    job = job_from(step_time=step_time, **wanted)
    configure("critical", config.log_format)
    watch = StepWatch()
    with ExitStack() as stack:
        host = stepped_host(config, stack)
        judgment = measure(host.machine, host.config, seconds, watch=watch.note)
    if judgment.report.blocked is not None:
        click.echo(f"gpu-triage: could not check: {printable(judgment.report.blocked)}", err=True)
        return EXIT_COULD_NOT_LOOK
    step = _UNKNOWN if step_time is None else _GIVEN
    if job.workload is Workload.TRAINING and step_time is None and config.collector_textfile_directory is not None:
        step = watch.step_time(judgment.host)
        job = replace(job, step_seconds=step.seconds)
    answer = recommend(job, judgment.host, judgment.report)
    render = as_json if form == "json" else _render_text
    click.echo(render(job, answer, step))
    return EXIT_SOUND


def job_from(
    *,
    parameters: str,
    workload: str,
    precision: str | None,
    optimizer: str | None,
    lora_rank: int | None,
    step_time: float | None,
    same_total_batch: bool,
    heads: int | None,
    gpus: int | None,
) -> Job:
    """Return the job that the command's options describe.

    Raises:
        ConfigError: an option is invalid, or two contradict each other.
    """
    does = Workload(workload)
    if does is Workload.INFERENCE and optimizer is not None:
        raise ConfigError("--optimizer is for --workload training")
    return checked(
        Job(
            parameters=parse_count(parameters),
            workload=does,
            precision=precision or _DEFAULT_PRECISION[does],
            optimizer=optimizer or _DEFAULT_OPTIMIZER,
            lora_rank=lora_rank,
            step_seconds=step_time,
            same_total_batch=same_total_batch,
            heads=heads,
            gpus=gpus,
        )
    )


def _render_text(job: Job, answer: Recommendation, step: StepTime) -> str:
    return "\n".join(printable(line) for line in as_text(job, answer, step))
