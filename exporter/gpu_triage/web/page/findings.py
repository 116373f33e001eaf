"""The findings in the playbook's order, and a line for each area that was checked."""

from __future__ import annotations

from gpu_triage.diagnosis.findings import Finding
from gpu_triage.diagnosis.report import AreaVerdict, Report
from gpu_triage.diagnosis.verdicts import Verdict
from gpu_triage.web.page.markup import UNKNOWN, chip, safe, section, verdict_chip
from gpu_triage.web.page.times import lasting
from gpu_triage.web.page.tones import OF_SEVERITY


def findings_section(report: Report, now: float) -> str:
    """Every finding with its numbers, its meaning, the decision and its runbook.

    Args:
        report: the verdict.
        now: Unix seconds at which it was made.
    """
    if not report.findings:
        return section("findings", "Findings", f'<p id="none">{safe(_nothing(report))}</p>')
    items = "\n".join(_item(finding, now) for finding in report.findings)
    return section("findings", "Findings", f'<ol class="findings">\n{items}\n</ol>')


def areas_section(report: Report) -> str:
    """A line for each area of the playbook."""
    rows = "\n".join(_area(area) for area in report.areas)
    return section("areas", "Areas checked", f"<dl>\n{rows}\n</dl>{_not_read(report)}")


def _nothing(report: Report) -> str:
    return "Nothing could be checked." if report.verdict is Verdict.NOT_READ else "No findings."


def _item(finding: Finding, now: float) -> str:
    check = finding.check
    tone = OF_SEVERITY[check.severity]
    follows = f" · follows from <code>{safe(finding.explained_by)}</code>" if finding.explained_by else ""
    return (
        f'<li class="{tone}" data-code="{safe(check.code)}" data-subject="{safe(finding.subject)}" '
        f'data-severity="{safe(check.severity.value)}">\n'
        f"<p>{chip(check.severity.value, tone)} <strong>{safe(finding.subject)}</strong> "
        f"{lasting(finding.since, now)}</p>\n"
        f'<p class="measured">{safe(finding.measured)}</p>\n'
        f"<p>{safe(check.advice.meaning)} <strong>{safe(check.advice.decision)}</strong></p>\n"
        f'<p class="soft"><code>{safe(check.code)}</code>{follows}{_runbook(check.runbook)}</p>\n</li>'
    )


def _runbook(name: str) -> str:
    # Relative, so that it holds behind a proxy that puts a prefix before every path.
    return f' · <a href="runbooks/{safe(name)}">Runbook</a>' if name else ""


def _area(area: AreaVerdict) -> str:
    state, mark = "ok", chip("ok", "well")
    if area.severity is not None:
        state, mark = area.severity.value, chip(area.severity.value, OF_SEVERITY[area.severity])
    elif area.summary is None:
        state, mark = Verdict.NOT_READ.value, verdict_chip(Verdict.NOT_READ)
    summary = UNKNOWN if area.summary is None else safe(area.summary)
    return (
        f'<dt data-area="{safe(area.area.name.lower())}" data-state="{state}">{mark} {safe(area.area.value)}</dt>'
        f"<dd>{summary}</dd>"
    )


def _not_read(report: Report) -> str:
    if not report.not_read:
        return ""
    lines = "".join(f"<li>{safe(line)}</li>" for line in report.not_read)
    return f'\n<h3>Not read</h3>\n<ul class="blind">{lines}</ul>'
