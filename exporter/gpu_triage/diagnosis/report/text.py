"""The report for people: what was measured, what it means, what to do; then the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.diagnosis.findings.verdicts import COLOURS, Verdict
from gpu_triage.diagnosis.report.report import AreaVerdict, GpuVerdict, Report

_NOT_IN_FILES: Final = "not in these files"
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
    if report.files:
        yield from _files(report)
    else:
        yield f"{printable(report.host)}{made_up}, measured for {report.measured_seconds:.0f} s"
    yield ""
    if report.blocked is not None:
        yield f"{click.style('could not look', fg='red', bold=True)}: {printable(report.blocked)}"
    for area in report.areas:
        if report.blocked is None or area.findings:
            yield from _area(area, _NOT_IN_FILES if report.files else Verdict.NOT_READ.words)
    if report.not_read and (report.blocked is None or report.files):
        yield from (
            "",
            "these files cannot say:" if report.files else "not read:",
            *(f"    {printable(line)}" for line in report.not_read),
        )
    yield from ("", "verdict:", *map(_gpu, report.gpus))
    yield f"    {'host':<6}  {'':<16}{click.style(report.verdict.words, fg=COLOURS[report.verdict].terminal)}"


def _files(report: Report) -> Iterator[str]:
    """What was read, and of when."""
    moments = ""
    if report.measured_seconds > 0:
        seconds = f"{report.measured_seconds:.0f} s"
        moments = f", {f'two moments {seconds} apart' if report.recording is None else f'measured for {seconds}'}"
    yield f"FILES, not a host as it is now{moments}:"
    for file in report.files:
        what = ", ".join(file.kinds) or "nothing that gpu-triage reads"
        when = f", of {file.written}" if file.written else ""
        note = f" ({file.note})" if file.note else ""
        yield f"    {printable(file.name)}: {what}{when}{printable(note)}"


def _area(area: AreaVerdict, not_read: str) -> Iterator[str]:
    mark, colour = "ok", "green"
    if area.severity is not None:
        mark, colour = area.severity.value, _SEVERITY_COLOURS[area.severity]
    elif area.summary is None:
        mark, colour = "not read", COLOURS[Verdict.NOT_READ].terminal
    summary = area.summary or (not_read if mark == "not read" and not_read != mark else "")
    yield f"{_padded(mark, 9, colour)} {area.area.value:<20} {printable(summary)}".rstrip()
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
    # A GPU of which files tell only the address has a long name.
    return f"    {f'GPU {gpu.gpu}':<6}  {gpu.bottleneck.name:<16}{verdict}{because}{unseen}{codes}"


def _padded(text: str, width: int, colour: str) -> str:
    return click.style(text, fg=colour) + " " * (width - len(text))
