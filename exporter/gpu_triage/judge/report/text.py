"""The report for people: one-line verdict, then findings with meaning and remedy, then each GPU."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import click

from gpu_triage.documents import printable
from gpu_triage.judge.evidence.owners import GpuOwner, owners_text
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import COLORS, Verdict, Words
from gpu_triage.judge.report.entries import ended_text, entry_of, grouped, quiet_text
from gpu_triage.judge.report.headline import headline
from gpu_triage.judge.report.report import AreaVerdict, GpuVerdict, Report

SEVERITY_COLORS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

_NOT_IN_FILES: Final = "not in these files"
_ASK_THE_EXPORTER: Final = "Ask the running exporter: gpu-triage top, or curl http://localhost:9836/api/v1/verdict"
_LEAST_TEXT_COLUMNS: Final = 30  # narrower terminals do the wrapping themselves
_NARROW_INDENT: Final = 8


class Line(NamedTuple):
    """A line of a report; its text may be wrapped."""

    start: str  # may be colored
    text: str = ""  # must not be colored
    indent: int | None = None  # indent of continuation lines; None aligns them with the text


def render_text(report: Report, columns: int | None = None, below_title: Iterable[Line] = ()) -> str:
    """Return the report as text with colors, wrapped to this many columns; the caller removes unwanted colors."""
    return "".join(f"{line}\n" for each in _lines(report, below_title) for line in wrapped(each, columns))


def wrapped(line: Line, columns: int | None) -> Iterator[str]:
    """Yield a line wrapped to this many columns; unwrapped if `columns` is None."""
    text, before = printable(line.text), len(click.unstyle(line.start))
    indent = before if line.indent is None else line.indent
    if columns is not None and columns - indent < _LEAST_TEXT_COLUMNS:
        indent = _NARROW_INDENT
    if columns is None or columns < _LEAST_TEXT_COLUMNS or not text:
        yield f"{line.start}{text}".rstrip()
        return
    first, *others = textwrap.wrap(
        text,
        columns,
        initial_indent=" " * before,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield f"{line.start}{first[before:]}"
    yield from others


def _lines(report: Report, below_title: Iterable[Line]) -> Iterator[Line]:
    mark, about = "", ""
    if report.recording is not None:
        mark, about = " (a RECORDING)", "a RECORDING, not this host as it is now; "
    elif report.simulated:
        mark, about = " (SIMULATED)", "SIMULATED: everything here is made up; "
    words = report.words
    verdict, color = words.verdicts[report.verdict], COLORS[report.verdict].terminal
    start = f"{printable(report.host)}{mark}: {click.style(verdict, fg=color, bold=True)}. "
    yield Line(start, headline(report), indent=4)
    if report.files:
        yield from _files(report)
    else:
        yield Line(f"{about}measured for {report.measured_seconds:.0f} s")
    if report.maintenance is not None:
        mark = click.style("in maintenance ", fg="cyan", bold=True)
        yield Line(mark, f"{report.maintenance}; no pages, no drains", indent=4)
    yield from below_title
    yield Line("")
    if report.blocked is not None:
        yield Line(f"{click.style('could not check', fg='red', bold=True)}: ", report.blocked)
    owners = {(gpu.gpu, gpu.uuid): gpu.owners for gpu in report.gpus}
    for area in report.areas:
        if report.blocked is None or area.findings:
            yield from _area(area, _NOT_IN_FILES if report.files else Verdict.NOT_READ.text, owners, report)
    if report.ended:
        latest_first = sorted(report.ended, key=lambda each: -(each.ended_at or 0.0))
        yield from (Line(""), Line("ended:"), *(_ended(finding, report) for finding in latest_first))
    yield from _listed("repaired:", report.repairs)
    yield from _unknown(report)
    yield from _listed("settings that are not the defaults:", [each.text for each in report.settings])
    yield from (Line(""), Line("verdict:"), *(_gpu(gpu, words) for gpu in report.gpus))
    yield Line(f"    {'host':<6}  {'':<16}{click.style(verdict, fg=color)}")
    yield from _pending(report)


def _listed(title: str, lines: Collection[str]) -> Iterator[Line]:
    if lines:
        yield from (Line(""), Line(title), *(Line("    ", line) for line in lines))


def _unknown(report: Report) -> Iterator[Line]:
    """Yield what could not be read, and what could not be judged."""
    if report.not_read and (report.blocked is None or report.files):
        yield from _listed("these files cannot say:" if report.files else "not read:", report.not_read)
    if report.not_judged:
        yield from (Line(""), Line("not judged: ", "; ".join(report.not_judged), indent=4))


def _pending(report: Report) -> Iterator[Line]:
    """Yield a note that a single measurement cannot confirm pending findings, and what can."""
    count = sum(each.state is State.PENDING and each.since is None for each in report.findings)
    if count:
        look = "files" if report.files else f"a {report.measured_seconds:.0f} s check"
        ask = "" if report.files else f" {_ASK_THE_EXPORTER}"
        text = f"{count} finding{'s' * (count != 1)} pending: {look} cannot confirm findings that take time.{ask}"
        yield from (Line(""), Line("", text, indent=4))


def _files(report: Report) -> Iterator[Line]:
    moments = ""
    if report.measured_seconds > 0:
        length = length_of_time(report.measured_seconds)
        moments = f", {f'two moments {length} apart' if report.recording is None else f'measured for {length}'}"
    yield Line(f"FILES, not a host as it is now{moments}:")
    for file in report.files:
        what = ", ".join(file.kinds) or "no supported content"
        when = f", of {file.written}" if file.written else ""
        note = f" ({file.note})" if file.note else ""
        yield Line(f"    {printable(file.name)}: ", f"{what}{when}{note}")


def _area(
    area: AreaVerdict, not_read: str, owners: Mapping[tuple[str, str], tuple[GpuOwner, ...]], report: Report
) -> Iterator[Line]:
    mark, color = "ok", "green"
    if area.severity is not None:
        mark, color = area.severity.value, SEVERITY_COLORS[area.severity]
    elif area.summary is None:
        mark, color = "not read", COLORS[Verdict.NOT_READ].terminal
    elif not area.is_known:
        mark, color = "-", COLORS[Verdict.NOT_READ].terminal
    summary = area.summary or (not_read if mark == "not read" and not_read != mark else "")
    yield Line(f"{_padded(mark, 9, color)} {area.area.value:<20} ", summary)
    for findings in grouped(area.findings):
        whose = (owner for each in findings for owner in owners.get((each.gpu or "", each.uuid), ()))
        yield from _finding(findings, owners_text(dict.fromkeys(whose)), report)


def _finding(findings: Sequence[Finding], owners: str, report: Report) -> Iterator[Line]:
    """Yield the lines of a finding, which may be about several GPUs."""
    words = report.words
    finding, entry = findings[0], entry_of(findings, words)
    check = finding.check
    severity = click.style(finding.urgency.value, fg=SEVERITY_COLORS[finding.urgency])
    follows = f"follows from {finding.explained_by}" if finding.explained_by else ""
    more = "; ".join(filter(None, (follows, entry.life_cycle)))
    start = f"    {severity} {click.style(check.code, bold=True)}  "
    lasting = "" if entry.since is None else f", for {length_of_time(max(0.0, report.judged_at - entry.since))}"
    yield Line(start, f"{entry.subject}: {entry.measured}{lasting}{more and f' ({more})'}", indent=8)
    if quiet := quiet_text(finding):
        yield Line("        accepted  ", quiet)
    if owners:
        yield Line("        held by   ", owners)
    yield Line("        means     ", finding.advice.meaning)
    yield Line("        do        ", words.decision(finding.advice))
    if check.runbook:
        yield Line("        runbook   ", f"gpu-triage explain {check.code}")


def _ended(finding: Finding, report: Report) -> Line:
    before, after = ended_text(finding, report.judged_at)
    return Line(
        f"    {click.style(finding.check.code, bold=True)}  ", f"{finding.subject}: {before}, {after}", indent=8
    )


def _gpu(gpu: GpuVerdict, words: Words) -> Line:
    width = max(map(len, words.verdicts.values())) + 2
    verdict = _padded(words.verdicts[gpu.verdict], width, COLORS[gpu.verdict].terminal)
    unseen = f" ({gpu.bottleneck.unseen})" if gpu.bottleneck.unseen else ""
    codes = f"  [{' '.join(gpu.codes)}]" if gpu.codes else ""
    held = f"; held by {owners_text(gpu.owners)}" if gpu.owners else ""
    # GPUs known only by address (from files) have long names.
    start = f"    {f'GPU {printable(gpu.gpu)}':<6}  {gpu.bottleneck.name:<16}{verdict}"
    return Line(start, f"{gpu.bottleneck.because}{unseen}{held}{codes}")


def _padded(text: str, width: int, color: str) -> str:
    return click.style(text, fg=color) + " " * (width - len(text))
