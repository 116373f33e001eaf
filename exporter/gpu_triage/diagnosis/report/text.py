"""The report for people: what was measured, what it means, what to do; then the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.diagnosis.findings.verdicts import COLOURS, Verdict
from gpu_triage.diagnosis.report.report import AreaVerdict, GpuVerdict, Report

_SEVERITY_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def printable(text: str) -> str:
    """The text without anything a terminal would obey: characters that do not print are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def render_text(report: Report) -> str:
    """The report as text with colours, which the writer takes out where they are not wanted."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    made_up = " (SIMULATED: everything here is made up)" if report.simulated else ""
    if report.recording is not None:
        made_up = " (a RECORDING, not this host as it is now)"
    yield f"{printable(report.host)}{made_up}, measured for {report.measured_seconds:.0f} s"
    yield ""
    if report.blocked is not None:
        yield f"{click.style('could not look', fg='red', bold=True)}: {printable(report.blocked)}"
    for area in report.areas:
        if report.blocked is None or area.findings:
            yield from _area(area)
    if report.not_read and report.blocked is None:
        yield from ("", "not read:", *(f"    {printable(line)}" for line in report.not_read))
    yield from ("", "verdict:", *map(_gpu, report.gpus))
    yield f"    {'host':<8}{'':<16}{click.style(report.verdict.words, fg=COLOURS[report.verdict].terminal)}"


def _area(area: AreaVerdict) -> Iterator[str]:
    mark, colour = "ok", "green"
    if area.severity is not None:
        mark, colour = area.severity.value, _SEVERITY_COLOURS[area.severity]
    elif area.summary is None:
        mark, colour = Verdict.NOT_READ.words, COLOURS[Verdict.NOT_READ].terminal
    yield f"{_padded(mark, 9, colour)} {area.area.value:<20} {printable(area.summary or '')}".rstrip()
    for finding in area.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    check = finding.check
    severity = click.style(check.severity.value, fg=_SEVERITY_COLOURS[check.severity])
    because = f", follows from {finding.explained_by}" if finding.explained_by else ""
    yield f"    {severity} {click.style(check.code, bold=True)}  {printable(finding.subject)}{because}"
    yield f"        measured  {printable(finding.measured)}"
    yield f"        means     {printable(finding.advice.meaning)}"
    yield f"        do        {printable(finding.advice.decision)}"
    if check.runbook:
        yield f"        runbook   gpu-triage explain {check.code}"


def _gpu(gpu: GpuVerdict) -> str:
    verdict = _padded(gpu.verdict.words, 10, COLOURS[gpu.verdict].terminal)
    because = printable(gpu.bottleneck.because)
    unseen = f" ({gpu.bottleneck.unseen})" if gpu.bottleneck.unseen else ""
    codes = f"  [{' '.join(gpu.codes)}]" if gpu.codes else ""
    return f"    {f'GPU {gpu.gpu}':<8}{gpu.bottleneck.name:<16}{verdict}{because}{unseen}{codes}"


def _padded(text: str, width: int, colour: str) -> str:
    return click.style(text, fg=colour) + " " * (width - len(text))
