"""The answer as one self-contained HTML page, to be attached to a ticket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.cli.fleet.fleet_text import moment
from gpu_triage.cli.fleet.review_page import standalone_page
from gpu_triage.cli.job.job_report import (
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
from gpu_triage.judge.findings.table import Severity
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.serve.page.markup import (
    OF_SEVERITY,
    bar,
    chip,
    class_chip,
    foreign,
    row,
    safe,
    section,
    table,
)
from gpu_triage.serve.page.style import ICONS

_SHEET: Final = ".words td { white-space: normal; }"
_UNKNOWN: Final = "&ndash;"


def render_html(shown: JobReport) -> bytes:
    """The page, without scripts or external resources."""
    title = headline(shown)
    parts = [_head(shown), _time(shown), _slowest(shown), _steps(shown), _findings(shown), _gpus(shown)]
    if shown.notes:
        parts.append(section("notes", "Notes", _list(shown.notes)))
    tone = "held" if shown.advice.remarkable else "well"
    return standalone_page(title, ICONS[tone], _SHEET, parts)


def _head(shown: JobReport) -> str:
    job, advice = shown.job, shown.advice
    about = f"{safe(advice.about)}: " if advice.about else ""
    made_up = '<p class="banner simulated">Simulated data.</p>\n' if job.simulated else ""
    warnings = "".join(f"<p>Incomplete: {safe(each)}</p>\n" for each in shown.warnings)
    return (
        f'{made_up}<header class="{"held" if advice.remarkable else "well"}">\n<h1>{safe(headline(shown))}</h1>\n'
        f"<p><strong>Do first:</strong> {about}{safe(advice.first)}</p>\n"
        f"<p>{safe(duration(job))}</p>\n<p>{safe(size(job))}</p>\n"
        f'<p class="soft">From {safe(shown.source)}, {safe(moment(job.found.asked_at))}</p>\n{warnings}</header>'
    )


def _time(shown: JobReport) -> str:
    words = lost_words(shown.job)
    rows = (
        row(
            class_chip(each.name) if each.name in BOTTLENECK_CLASSES else safe(each.name),
            (safe(each.words), safe(hours(each.seconds)), f"{each.share:.0%}{bar(each.share)}"),
        )
        for each in class_rows(shown.job)
    )
    heads = ("Class", "GPUs were", "Time", "Share")
    said = f"<p>{safe(words[0].upper() + words[1:])}.</p>\n"
    return section("time", "GPU time by bottleneck", said + table("GPU time by bottleneck", heads, rows))


def _slowest(shown: JobReport) -> str:
    comparison = shown.comparison
    if comparison.gpu is None:
        return section("slowest", "Slowest GPU and host", "<p>There is nothing to compare.</p>")
    parts = []
    for title, standing in (("Slowest GPU", comparison.gpu), ("Slowest host", comparison.host)):
        if standing is not None:
            rows = (row(safe(each.name), map(safe, each[1:])) for each in reading_rows(standing))
            readings = table(title, ("Reading", "Its own", "Median of the others", "Difference"), rows)
            parts.append(f"<h3>{safe(title)}</h3>\n<p>{safe(compared_with(standing))}</p>\n{readings}")
    return section("slowest", "Slowest GPU and host", "\n".join(parts))


def _steps(shown: JobReport) -> str:
    return section("steps", "Steps", _list(pace_lines(shown.job)))


def _list(lines: Iterator[str] | tuple[str, ...]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{safe(line)}</li>" for line in lines) + "\n</ul>"


def _findings(shown: JobReport) -> str:
    found = finding_rows(shown.job)
    if not found:
        return section("findings", "Findings while it ran", "<p>None.</p>")
    rows = []
    for each in found[: shown.limit]:
        finding = each.first
        tones = {severity.value: OF_SEVERITY[severity] for severity in Severity}
        do = finding.check.advice.decision if finding.check else ""
        cells = (foreign(finding.code), safe(each.subject), safe(measured(finding)), safe(each.when), safe(do))
        rows.append(row(chip(finding.urgency, tones.get(finding.urgency, "idle")), cells))
    heads = ("Severity", "Finding", "Where", "Measured", "When", "What to do")
    more = len(found) - shown.limit
    note = f"<p>And {more} more.</p>" if more > 0 else ""
    return section("findings", "Findings while it ran", table("Findings", heads, rows, "words") + note)


def _gpus(shown: JobReport) -> str:
    hosts = list(by_host_rows(shown.job))
    rows = []
    for gpu in (gpu for _, gpus in hosts[: shown.limit] for gpu in gpus):
        cells = (
            safe(gpu.gpu),
            safe(gpu.name) or _UNKNOWN,
            _UNKNOWN if gpu.clock is None else f"{gpu.clock / 1e6:.0f} MHz",
            _UNKNOWN if gpu.power is None else f"{gpu.power:.0f} W",
            _UNKNOWN if gpu.busy is None else f"{gpu.busy:.0%}",
            safe(main_classes((gpu,))),
        )
        rows.append(row(foreign(gpu.host), cells))
    heads = ("Host", "GPU", "Model", "SM clock", "Power", "Busy", "Time")
    more = len(hosts) - shown.limit
    note = f"<p>And {more} more hosts.</p>" if more > 0 else ""
    return section("gpus", "GPUs", table("GPUs", heads, rows, "words") + note)
