"""The command `gpu-triage advise`: one GPU or several for a job on this host."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import click

from gpu_triage.config import Config
from gpu_triage.diagnosis.advise import Job, Recommendation, Workload, recommend
from gpu_triage.diagnosis.looking import MEASURE, PATIENCE, Opened, applies, look
from gpu_triage.diagnosis.text import printable
from gpu_triage.diagnosis.verdicts import EXIT_COULD_NOT_LOOK, EXIT_SOUND
from gpu_triage.errors import ConfigError
from gpu_triage.log import configure
from gpu_triage.options import OptionsCommand, serve_options
from gpu_triage.options.looking import (
    Surroundings,
    for_option,
    format_option,
    measuring_time,
    scenario_time,
    simulate_at_option,
)

FORMAT: Final = "gpu-triage-advice"
VERSION: Final = 1

_DEFAULT_FOR: Final = "5s"
_COUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KMBTkmbt]?)")
_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def advise_command(surroundings: Surroundings[Opened]) -> click.Command:
    """The command, for the group."""

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
        help="GPUs to compare with one; all of one model without it.",
    )
    @click.option(
        "--workload",
        type=click.Choice([workload.value for workload in Workload]),
        default="training",
        show_default=True,
        help="What the job does.",
    )
    @format_option(text="people", json="programs")
    @for_option(_DEFAULT_FOR)
    @simulate_at_option
    @serve_options(surroundings.switches, surroundings.of_scenario, applies)
    def advise(
        *,
        config: Config,
        parameters: str,
        batch_size: int,
        gpus: int | None,
        workload: str,
        form: str,
        measure_for: str | None,
        watch_for: str | None,
        simulate_at: str | None,
    ) -> int:
        """Say whether a job should use one GPU or several on this host, why, and what to fix first.

        Looks at the host for some seconds: paths between GPUs, peer access, NVLink, PCIe links, what the host can feed.
        Says where its evidence ends.

        Exit code: 0 with a recommendation, 2 the GPUs could not be looked at, or the options cannot be used.
        """
        job = Job(parse_count(parameters), batch_size, gpus, Workload(workload))
        begin = scenario_time(simulate_at, config)
        seconds = measuring_time(measure_for, watch_for, _DEFAULT_FOR, MEASURE)
        configure("critical", config.log_format)
        with ExitStack() as stack:
            answer = consult(surroundings.open_machine(config, stack, begin), config, job, seconds)
        if isinstance(answer, str):
            click.echo(f"gpu-triage: could not look: {printable(answer)}", err=True)
            return EXIT_COULD_NOT_LOOK
        click.echo(render_json(job, answer) if form == "json" else render_text(answer), nl=False)
        return EXIT_SOUND

    return advise


def parse_count(text: str) -> float:
    """The number that ``6.9M`` stands for.

    Raises:
        ConfigError: it is no such number, or 0.
    """
    match = _COUNT.fullmatch(text)
    count = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if count < 1:
        raise ConfigError(f"--parameters: {text[:60]!r} is no number of parameters; write 258K, 6.9M or 7B")
    return count


def consult(opened: Opened, config: Config, job: Job, seconds: float) -> Recommendation | str:
    """The recommendation for a job on a machine; or why the machine could not be looked at."""
    patience_seconds = float(str(PATIENCE.parse("30s")))
    judgement = look(opened, config, seconds, patience_seconds)
    if judgement.report.blocked is not None:
        return judgement.report.blocked
    return recommend(job, judgement.host, judgement.report)


def render_text(answer: Recommendation) -> str:
    """The recommendation for people."""
    return "".join(f"{printable(line)}\n" for line in _lines(answer))


def _lines(answer: Recommendation) -> Iterator[str]:
    yield f"recommendation: {answer.headline}"
    yield from _section("because", answer.reasons)
    if answer.efficiency is not None:
        low, high = answer.efficiency
        yield ""
        yield f"expected efficiency of {answer.considered} GPUs: {low:.0%} to {high:.0%}"
        yield f"    a speedup of {low * answer.considered:.2f} to {high * answer.considered:.2f}; {answer.source}"
    yield from _section(
        "fix first",
        (f"{f.check.code} {f.subject}: {f.measured}. {f.check.advice.decision}" for f in answer.fix_first),
    )
    yield from _section("where the evidence ends", answer.evidence_ends)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    lines = tuple(lines)
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"    {line}" for line in lines)


def render_json(job: Job, answer: Recommendation) -> str:
    """The recommendation as JSON; docs/advise.md describes its shape."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": job.parameters,
        "batch_size": job.batch_size,
        "workload": job.workload.value,
        "choice": answer.choice.value,
        "headline": answer.headline,
        "considered_gpus": answer.considered,
        "gpus": list(answer.gpus),
        "reasons": list(answer.reasons),
        "efficiency": None if answer.efficiency is None else list(answer.efficiency),
        "source": answer.source or None,
        "fix_first": [
            {"code": f.check.code, "gpu": f.gpu, "measured": f.measured, "decision": f.check.advice.decision}
            for f in answer.fix_first
        ],
        "evidence_ends": list(answer.evidence_ends),
    }
    return json.dumps(document, indent=2) + "\n"
