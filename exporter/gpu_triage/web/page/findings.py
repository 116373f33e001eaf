"""The findings in the playbook's order, the faults that came back, and a line for each area that was checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.verdicts import Verdict
from gpu_triage.diagnosis.judges.repeat_offenders import Repetition, repetitions, slots_without_gpu
from gpu_triage.diagnosis.report.report import AreaVerdict, Report
from gpu_triage.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.web.page.markup import OF_SEVERITY, UNKNOWN, chip, row, safe, section, table, verdict_chip
from gpu_triage.web.page.times import lasting


def findings_section(report: Report, now: float) -> str:
    """Every finding with its numbers, its meaning, the decision and its runbook, as of `now` in Unix seconds."""
    if not report.findings:
        nothing = "Nothing could be checked." if report.verdict is Verdict.NOT_READ else "No findings."
        return section("findings", "Findings", f'<p id="none">{nothing}</p>')
    items = "\n".join(_item(finding, now) for finding in report.findings)
    return section("findings", "Findings", f'<ol class="findings">\n{items}\n</ol>')


def repeat_offenders_section(host: HostEvidence) -> str:
    """A row for each kind of incident that came back, with its suspect: board or slot; "" where there is none."""
    rows: list[str] = []
    for gpu in host.gpus:
        slot = next((track.labels["pci_bus_id"] for track in gpu.series(GPU_INCIDENTS_RECENT)), "")
        rows += _repetitions(f"GPU {gpu.gpu}", slot, repetitions(gpu))
    for slot, came_back in slots_without_gpu(host).items():
        rows += _repetitions("not seen", slot, came_back)
    if not rows:
        return ""
    body = table("Repeat offenders", ("GPU", "Slot", "What came back", "Suspect"), rows, "repeat-offenders")
    return section("repeat-offenders", "Repeat offenders", body)


def areas_section(report: Report) -> str:
    """A line for each area of the playbook, and what could not be read."""
    lines = "\n".join(_area(area) for area in report.areas)
    blind = "".join(f"<li>{safe(line)}</li>" for line in report.not_read)
    not_read = f'\n<h3>Not read</h3>\n<ul class="blind">{blind}</ul>' if blind else ""
    return section("areas", "Areas checked", f"<dl>\n{lines}\n</dl>{not_read}")


def _item(finding: Finding, now: float) -> str:
    check = finding.check
    tone = OF_SEVERITY[check.severity]
    follows = f" · follows from <code>{safe(finding.explained_by)}</code>" if finding.explained_by else ""
    # Relative, so that it holds behind a proxy that puts a prefix before every path.
    runbook = f' · <a href="runbooks/{safe(check.runbook)}">Runbook</a>' if check.runbook else ""
    return (
        f'<li class="{tone}" data-code="{safe(check.code)}" data-subject="{safe(finding.subject)}" '
        f'data-severity="{safe(check.severity.value)}">\n'
        f"<p>{chip(check.severity.value, tone)} <strong>{safe(finding.subject)}</strong> "
        f"{lasting(finding.since, now)}</p>\n"
        f'<p class="measured">{safe(finding.measured)}</p>\n'
        f"<p>{safe(finding.advice.meaning)} <strong>{safe(finding.advice.decision)}</strong></p>\n"
        f'<p class="soft"><code>{safe(check.code)}</code>{follows}{runbook}</p>\n</li>'
    )


def _repetitions(subject: str, slot: str, came_back: Sequence[Repetition]) -> Iterator[str]:
    for each in came_back:
        cells = (safe(slot) or UNKNOWN, safe(each.description), chip(each.by, "held"))
        yield row(safe(subject), cells, data_slot=slot, data_kind=each.kind, data_suspect=each.by)


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
