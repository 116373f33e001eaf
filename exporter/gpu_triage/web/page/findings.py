"""What was found, in the playbook's order, and what was looked at without finding anything."""

from __future__ import annotations

from typing import Final

from gpu_triage.diagnosis.findings import Finding
from gpu_triage.diagnosis.report import AreaVerdict, Report
from gpu_triage.web.page.markup import chip, safe, section
from gpu_triage.web.page.tones import OF_SEVERITY

REPOSITORY: Final = "https://github.com/gpu-triage/gpu-triage-exporter/blob/main/"
"""Where the runbooks are published; the alerts link to the same pages."""


def findings_section(report: Report) -> str:
    """Every finding with its numbers, its meaning, the decision and its runbook."""
    if not report.findings:
        return section("findings", "Findings", f'<p id="none">{safe(_nothing(report))}</p>')
    items = "\n".join(_item(finding) for finding in report.findings)
    return section("findings", "Findings", f'<ol class="findings">\n{items}\n</ol>')


def areas_section(report: Report) -> str:
    """A line for each area of the playbook."""
    rows = "\n".join(_area(area) for area in report.areas)
    return section("areas", "What was looked at", f"<dl>\n{rows}\n</dl>{_not_read(report)}")


def _nothing(report: Report) -> str:
    return "Nothing was found." if report.blocked is None else "Nothing could be looked for."


def _item(finding: Finding) -> str:
    check = finding.check
    tone = OF_SEVERITY[check.severity]
    follows = f" · follows from <code>{safe(finding.explained_by)}</code>" if finding.explained_by else ""
    return (
        f'<li class="{tone}" data-code="{safe(check.code)}" data-subject="{safe(finding.subject)}" '
        f'data-severity="{safe(check.severity.value)}">\n'
        f"<p>{chip(check.severity.value, tone)} <strong>{safe(finding.subject)}</strong>: "
        f'<span class="measured">{safe(finding.measured)}</span></p>\n'
        f"<p>{safe(check.advice.meaning)} <strong>{safe(check.advice.decision)}</strong></p>\n"
        f'<p class="soft"><code>{safe(check.code)}</code>{follows}{_runbook(check.runbook)}</p>\n</li>'
    )


def _runbook(path: str) -> str:
    return f' · <a href="{safe(REPOSITORY + path)}" rel="noreferrer">Runbook</a>' if path else ""


def _area(area: AreaVerdict) -> str:
    mark = chip("ok", "well") if area.severity is None else chip(area.severity.value, OF_SEVERITY[area.severity])
    return f"<dt>{safe(area.area.value)} {mark}</dt><dd>{safe(area.summary)}</dd>"


def _not_read(report: Report) -> str:
    if not report.not_read:
        return ""
    lines = "".join(f"<li>{safe(line)}</li>" for line in report.not_read)
    return f'\n<h3>Not read</h3>\n<ul class="blind">{lines}</ul>'
