"""The answer as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import click

from gpu_triage.cli.job.compare import Readings, Standing
from gpu_triage.cli.job.pace import Pace
from gpu_triage.cli.job.rows import (
    JobReport,
    by_host_rows,
    class_rows,
    compared_with,
    duration,
    finding_rows,
    headline,
    hours,
    lost_words,
    main_classes,
    measured,
    pace_lines,
    reading_rows,
    size,
)
from gpu_triage.cli.job.runs import Run
from gpu_triage.cli.job.view import JobFinding, JobGpu
from gpu_triage.documents import printable
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.report.text import SEVERITY_COLORS, Line, wrapped

FORMAT: Final = "gpu-triage-job"
VERSION: Final = 1  # incremented when a key changes meaning or is removed, but not for new keys

_COLORS: Final = {severity.value: color for severity, color in SEVERITY_COLORS.items()}


def render_text(shown: JobReport, columns: int | None = None) -> str:
    """The answer as colored text; the writer strips the colors if unwanted. Wrapped as in `check`."""
    return "".join(f"{line}\n" for each in _lines(shown) for line in wrapped(each, columns))


def _lines(shown: JobReport) -> Iterator[Line]:
    job, advice = shown.job, shown.advice
    color = "yellow" if advice.remarkable else "green"
    made_up = " (SIMULATED)" if job.simulated else ""
    yield Line(f"{click.style(printable(str(job.found.run)), fg=color, bold=True)}{made_up}: ", advice.slow, indent=4)
    yield Line(f"{duration(job)}, from {printable(shown.source)}")
    yield Line("", size(job), indent=4)
    for warning in shown.warnings:
        yield Line(click.style("incomplete: ", fg="yellow", bold=True), warning)
    yield Line("")
    about = f"{advice.about}: " if advice.about else ""
    yield Line(f"{click.style('do first', bold=True)}  ", f"{about}{advice.first}")
    yield from _time(shown)
    yield from _slowest(shown)
    yield from (Line(""), Line("steps:"), *(Line("    ", line) for line in pace_lines(job)))
    yield from _findings(shown)
    yield from _hosts(shown)
    if shown.notes:
        yield from (Line(""), Line("notes:"), *(Line("    ", note) for note in shown.notes))


def _time(shown: JobReport) -> Iterator[Line]:
    yield from (Line(""), Line(f"{lost_words(shown.job)}:"))
    for row in class_rows(shown.job):
        yield Line(f"    {row.name:<16}{hours(row.seconds):>12}{row.share:>6.0%}  ", row.words)


def _slowest(shown: JobReport) -> Iterator[Line]:
    comparison = shown.comparison
    yield Line("")
    if comparison.gpu is None:
        alone = "it has one GPU" if len(shown.job.gpus) == 1 else "no two of its GPUs are of one model"
        yield Line(f"slowest GPU: {alone}, so there is nothing to compare")
        return
    yield from _standing("slowest GPU: ", comparison.gpu, is_host=False)
    if comparison.host is not None:
        yield from _standing("slowest host: ", comparison.host, is_host=True)


def _standing(title: str, standing: Standing, *, is_host: bool) -> Iterator[Line]:
    yield Line(title, compared_with(standing, is_host=is_host), indent=4)
    for row in reading_rows(standing):
        difference = f", {row.difference}" if row.difference else ""
        yield Line(f"    {row.name:<20}", f"{row.own}, median {row.others}{difference}")


def _findings(shown: JobReport) -> Iterator[Line]:
    rows = finding_rows(shown.job)
    yield from (Line(""), Line("findings while it ran:" if rows else "findings while it ran: none"))
    for row in rows[: shown.limit]:
        finding = row.first
        severity = click.style(printable(finding.urgency), fg=_COLORS.get(finding.urgency))
        text = "; ".join((": ".join(filter(None, (row.subject, measured(finding)))), row.when))
        yield Line(f"    {severity} {click.style(printable(finding.code), bold=True)}  ", text, indent=8)
        if finding.check is not None and finding.rank >= Severity.WARNING.rank:
            yield Line("        do    ", finding.check.advice.decision)
    if len(rows) > shown.limit:
        yield Line(f"    and {len(rows) - shown.limit} more: raise --limit to see them")


def _hosts(shown: JobReport) -> Iterator[Line]:
    yield from (Line(""), Line("hosts:"))
    hosts = list(by_host_rows(shown.job))
    for host, gpus in hosts[: shown.limit]:
        indices = ranges(gpu.gpu or gpu.uuid for gpu in gpus)
        yield Line(f"    {printable(str(host))}  GPU {printable(indices)}  ", main_classes(gpus))
    if len(hosts) > shown.limit:
        yield Line(f"    and {len(hosts) - shown.limit} more: raise --limit to see them")


def render_json(shown: JobReport) -> str:
    """The answer as JSON; the format is described in docs/jobs.md."""
    job, comparison = shown.job, shown.comparison
    time = job.time
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": shown.source,
        "summary": headline(shown),
        "do_first": {
            "about": shown.advice.about or None,
            "code": shown.advice.code or None,
            "text": shown.advice.first,
        },
        "remarkable": shown.advice.remarkable,
        "warnings": list(shown.warnings),
        "notes": list(shown.notes),
        "simulated": job.simulated,
        "job": run_json(job.found.run),
        "running": job.found.ongoing,
        "start_known": job.start_known,
        "end_known": job.end_known,
        "from": round(job.window.start, 3),
        "to": round(job.window.end, 3),
        "step_seconds": job.window.step_seconds,
        "gpu_seconds": {
            "total": time.total,
            "lost": time.lost,
            "unknown": time.unknown,
            "by_class": dict(time.by_class),
        },
        "slowest_gpu": _standing_json(comparison.gpu, is_host=False),
        "slowest_host": _standing_json(comparison.host, is_host=True),
        "steps": _pace_json(job.pace),
        "findings": [_finding_json(each) for each in job.findings],
        "gpus": [_gpu_json(each) for each in job.gpus],
    }
    return json.dumps(document, indent=2) + "\n"


def run_json(run: Run) -> dict[str, Any]:
    """What identifies a run of a job."""
    key = run.key
    return {
        "kind": key.kind.value,
        "name": key.name,
        "cluster": key.cluster or None,
        "namespace": key.namespace or None,
        "pods": sorted(run.pods),
        "users": sorted(run.users),
        "accounts": sorted(run.accounts),
        "start": round(run.start, 3),
        "end": round(run.end, 3),
    }


def _standing_json(standing: Standing | None, *, is_host: bool) -> dict[str, Any] | None:
    if standing is None:
        return None
    gpu = standing.gpus[0]
    return {
        **standing.host._asdict(),
        **({} if is_host else {"gpu": gpu.gpu, "uuid": gpu.uuid}),
        "stands_out": standing.stands_out,
        "by": list(standing.reasons),
        "own": _readings_json(standing.own),
        "median_of_others": _readings_json(standing.others),
        "others": standing.others_count,
    }


def _readings_json(readings: Readings) -> dict[str, float | None]:
    return {
        "clock_hertz": readings.clock,
        "power_watts": readings.power,
        "busy_ratio": readings.busy,
        "own_cause_ratio": readings.caused,
        "waiting_ratio": readings.waiting,
    }


def _pace_json(pace: Pace | None) -> dict[str, Any] | None:
    if pace is None:
        return None
    return {
        "recent_per_second": pace.recent,
        "best_per_second": pace.best,
        "best_over_seconds": pace.stretch_seconds,
        "stopped_seconds": pace.stopped_seconds,
        "ranks": [
            {
                **each.host._asdict(),
                "job_name": each.job_name,
                "rank": each.rank or None,
                "per_second": each.per_second,
                "last_step": each.moved,
            }
            for each in pace.ranks
        ],
    }


def _finding_json(finding: JobFinding) -> dict[str, Any]:
    return {
        **finding.host._asdict(),
        "gpu": finding.gpu or None,
        "uuid": finding.uuid or None,
        "severity": finding.urgency,
        "confirmed_severity": finding.severity,
        "state": finding.state.text,
        "code": finding.code,
        "action": finding.action,
        "value": finding.value,
        "first": round(finding.first, 3),
        "last": round(finding.last, 3),
        "at_end": finding.lasts,
    }


def _gpu_json(gpu: JobGpu) -> dict[str, Any]:
    return {
        **gpu.host._asdict(),
        "gpu": gpu.gpu,
        "uuid": gpu.uuid,
        "name": gpu.name or None,
        "first": round(gpu.first, 3),
        "last": round(gpu.last, 3),
        "seconds": dict(gpu.seconds),
        "clock_hertz": gpu.clock,
        "power_watts": gpu.power,
        "busy_ratio": gpu.busy,
        "mig_part": gpu.is_part,
        "shared_with": [
            {"namespace": each.namespace or None, "pod": each.pod or None, "slurm_job_id": each.slurm_job_id or None}
            | {"seconds": seconds}
            for each, seconds in gpu.neighbors.items()
        ],
    }
