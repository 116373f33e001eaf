"""The report for people: what was measured, what it means, what to do; then the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from gpu_triage.diagnosis.codes import Severity
from gpu_triage.diagnosis.findings import Finding
from gpu_triage.diagnosis.report import AreaVerdict, GpuVerdict, Report
from gpu_triage.diagnosis.verdicts import COLOURS, Verdict

_SEVERITY_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_LABEL_WIDTH: Final = 8
_AREA_WIDTH: Final = 20
_MARK_WIDTH: Final = 9
_VERDICT_WIDTH: Final = 10


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
    yield from _not_read(report)
    yield from _verdict(report)


def _area(area: AreaVerdict) -> Iterator[str]:
    mark, colour = "ok", "green"
    if area.severity is not None:
        mark, colour = area.severity.value, _SEVERITY_COLOURS[area.severity]
    elif area.summary is None:
        mark, colour = Verdict.NOT_READ.words, COLOURS[Verdict.NOT_READ].terminal
    summary = printable(area.summary or "")
    yield f"{_padded(mark, _MARK_WIDTH, colour)} {area.area.value:<{_AREA_WIDTH}} {summary}".rstrip()
    for finding in area.findings:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    check = finding.check
    severity = click.style(check.severity.value, fg=_SEVERITY_COLOURS[check.severity])
    because = f", follows from {finding.explained_by}" if finding.explained_by else ""
    yield f"    {severity} {click.style(check.code, bold=True)}  {printable(finding.subject)}{because}"
    told = (
        ("measured", finding.measured),
        ("means", check.advice.meaning),
        ("do", check.advice.decision),
        ("runbook", f"gpu-triage explain {check.code}" if check.runbook else ""),
    )
    for label, words in told:
        if words:
            yield f"        {label:<{_LABEL_WIDTH}}  {printable(words)}"


def _not_read(report: Report) -> Iterator[str]:
    if report.not_read and report.blocked is None:
        yield ""
        yield "not read:"
        for line in report.not_read:
            yield f"    {printable(line)}"


def _verdict(report: Report) -> Iterator[str]:
    yield ""
    yield "verdict:"
    for gpu in report.gpus:
        yield from _gpu(gpu)
    yield f"    {'host':<8}{'':<16}{click.style(report.verdict.words, fg=COLOURS[report.verdict].terminal)}"


def _gpu(gpu: GpuVerdict) -> Iterator[str]:
    verdict = _padded(gpu.verdict.words, _VERDICT_WIDTH, COLOURS[gpu.verdict].terminal)
    because = printable(gpu.bottleneck.because)
    unseen = f" ({gpu.bottleneck.unseen})" if gpu.bottleneck.unseen else ""
    codes = f"  [{' '.join(gpu.codes)}]" if gpu.codes else ""
    yield f"    {f'GPU {gpu.gpu}':<8}{gpu.bottleneck.name:<16}{verdict}{because}{unseen}{codes}"


def _padded(text: str, width: int, colour: str) -> str:
    return click.style(text, fg=colour) + " " * (width - len(text))
