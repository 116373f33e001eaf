"""The findings in the playbook's order, the faults that came back, and a line for each area that was checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpu_triage.diagnosis.evidence.host import HostEvidence
from gpu_triage.diagnosis.findings.finding import Finding
from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.diagnosis.findings.verdicts import Verdict
from gpu_triage.diagnosis.judges.repeat_offenders import Repetition, repetitions, slots_without_gpu
from gpu_triage.diagnosis.report.report import AreaVerdict, Report
from gpu_triage.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.flight_recorder import GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS, THE_HOST
from gpu_triage.web.page.markup import OF_SEVERITY, UNKNOWN, chip, row, safe, section, table, verdict_chip
from gpu_triage.web.page.times import lasting

_MOST_STEPS: Final = 2


def findings_section(report: Report, now: float, recordings: Mapping[GpuLabels, str]) -> str:
    """Every finding with its numbers, its meaning, the decision and its runbook.

    Args:
        report: with the findings.
        now: Unix seconds.
        recordings: names of the flight recorder's recordings, by GPU.
    """
    if not report.findings:
        nothing = "Nothing could be checked." if report.verdict is Verdict.NOT_READ else "No findings."
        return section("findings", "Findings", f'<p id="none">{nothing}</p>')
    items = "\n".join(_item(number, finding, now, recordings) for number, finding in enumerate(report.findings))
    return section("findings", "Findings", f'<ol class="findings">\n{items}\n</ol>')


def first_steps(report: Report) -> str:
    """What to do before anything else, a line for each decision with those it concerns; "" where nothing presses.

    Of the worst findings those that follow from no other, two decisions at most: more are no first step.
    """
    causes = [(number, f) for number, f in enumerate(report.findings) if not f.explained_by]
    worst = max((f.severity for _, f in causes), key=lambda severity: severity.rank, default=Severity.INFO)
    if worst is Severity.INFO:
        return ""
    steps: dict[str, list[str]] = {}
    for number, finding in causes:
        if finding.severity is worst:
            whom = f'<a href="#finding-{number}">{safe(finding.subject)}</a>'
            steps.setdefault(finding.advice.decision, []).append(whom)
    lines = (f"<li>{', '.join(whom)}: {safe(decision)}</li>" for decision, whom in [*steps.items()][:_MOST_STEPS])
    return f'<ol class="first" aria-label="What to do first">{"".join(lines)}</ol>\n'


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


def recordings_of(host: HostEvidence) -> Mapping[GpuLabels, str]:
    """The flight recorder's last recording for each GPU, and for THE_HOST."""
    found = host.labels_of(GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS)
    return {GpuLabels(labels["gpu"], labels["uuid"]): labels["file"] for labels in found}


def _item(number: int, finding: Finding, now: float, recordings: Mapping[GpuLabels, str]) -> str:
    check = finding.check
    tone = OF_SEVERITY[finding.severity]
    follows = f" · follows from <code>{safe(finding.explained_by)}</code>" if finding.explained_by else ""
    recorded = ""
    if finding.severity is Severity.CRITICAL:
        subject = THE_HOST if finding.gpu is None else GpuLabels(finding.gpu, finding.uuid)
        recorded = recordings.get(subject, "")
    recording = f' · recorded as <code class="recording">{safe(recorded)}</code>' if recorded else ""
    # Relative, so that it holds behind a proxy that puts a prefix before every path.
    runbook = f' · <a href="runbooks/{safe(check.runbook)}">Runbook</a>' if check.runbook else ""
    return (
        f'<li id="finding-{number}" class="{tone}" data-code="{safe(check.code)}" '
        f'data-subject="{safe(finding.subject)}" '
        f'data-severity="{safe(finding.severity.value)}">\n'
        f"<p>{chip(finding.severity.value, tone)} <strong>{safe(finding.subject)}</strong> "
        f"{lasting(finding.since, now)}</p>\n"
        f'<p class="measured">{safe(finding.measured)}</p>\n'
        f"<p>{safe(finding.advice.meaning)} <strong>{safe(finding.advice.decision)}</strong></p>\n"
        f'<p class="soft"><code>{safe(check.code)}</code>{follows}{runbook}{recording}</p>\n</li>'
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
