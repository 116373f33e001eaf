"""Page sections for findings in the playbook's order, repeat offenders, and the areas checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpu_triage.judge.conditions.repeat_offenders import Repetition, repetitions, slots_without_gpu
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import ENDED_SECONDS
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.entries import ended_text, entry_of, grouped
from gpu_triage.judge.report.report import AreaVerdict, Report
from gpu_triage.judge.report.words import Words
from gpu_triage.read.exporter.flight_recorder import GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS
from gpu_triage.read.incidents.metrics import GPU_INCIDENTS_RECENT
from gpu_triage.read.metrics.contract import HOST_LABELS, GpuLabels
from gpu_triage.serve.page.markup import OF_SEVERITY, UNKNOWN, chip, row, safe, section, table, verdict_chip
from gpu_triage.serve.page.times import lasting

_MOST_STEPS: Final = 2


def settings_section(report: Report) -> str:
    """Judge settings that differ from their defaults; "" if none do."""
    items = "\n".join(f"<li>{safe(each.text)}</li>" for each in report.settings)
    return section("settings", "Settings that are not the defaults", f"<ul>\n{items}\n</ul>") if items else ""


def findings_section(report: Report, now: float, recordings: Mapping[GpuLabels, str]) -> str:
    """Every finding with its measurements, meaning, action and runbook, once for all GPUs that have it.

    `recordings` are file names by GPU.
    """
    ended = _ended(report, now)
    if not report.findings:
        nothing = "Nothing could be checked." if report.verdict is Verdict.NOT_READ else "No findings."
        return section("findings", "Findings", f'<p id="none">{nothing}</p>{ended}')
    entries = enumerate(grouped(report.findings))
    items = "\n".join(_item(number, findings, now, recordings, report.words) for number, findings in entries)
    return section("findings", "Findings", f'<ol class="findings">\n{items}\n</ol>{ended}')


def first_steps(report: Report) -> str:
    """What to do first, one line per action with the GPUs it applies to; "" if nothing is urgent.

    Covers the worst confirmed findings that don't follow from another one, limited to two actions. If nothing is
    confirmed, it lists pending findings that may become critical.
    """
    causes = [(n, f) for n, findings in enumerate(grouped(report.findings)) for f in findings if not f.explained_by]
    confirmed = [(number, f) for number, f in causes if f.state is State.CONFIRMED]
    worst = max((f.severity for _, f in confirmed), key=lambda severity: severity.rank, default=Severity.INFO)
    if worst is Severity.INFO:
        chosen = [(number, f, _when_it_has_lasted(f)) for number, f in causes if f.severity is Severity.CRITICAL]
    else:
        chosen = [(number, f, report.words.advice(f.advice.decision)) for number, f in confirmed if f.severity is worst]
    steps: dict[str, list[str]] = {}
    for number, finding, step in chosen:
        steps.setdefault(step, []).append(f'<a href="#finding-{number}">{safe(finding.subject)}</a>')
    if not steps:
        return ""
    lines = (f"<li>{', '.join(whom)}: {safe(decision)}</li>" for decision, whom in [*steps.items()][:_MOST_STEPS])
    return f'<ol class="first" aria-label="What to do first">{"".join(lines)}</ol>\n'


def _when_it_has_lasted(finding: Finding) -> str:
    return f"nothing yet; {finding.check.code} becomes critical after {length_of_time(finding.wait_seconds)}."


def repeat_offenders_section(host: HostEvidence) -> str:
    """A row for each kind of recurring incident, with the suspect: board or slot, or ""."""
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
    """The file name of the latest flight recording for each GPU, and for HOST_LABELS."""
    found = host.labels_of(GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS)
    return {GpuLabels(labels["gpu"], labels["uuid"]): labels["file"] for labels in found}


def _item(
    number: int, findings: Sequence[Finding], now: float, recordings: Mapping[GpuLabels, str], words: Words
) -> str:
    finding, entry = findings[0], entry_of(findings, words)
    meaning, decision = (safe(words.advice(text)) for text in finding.advice)
    check = finding.check
    tone = OF_SEVERITY[finding.urgency]
    pending = f" {chip(finding.state.text, 'idle')}" if finding.state is State.PENDING else ""
    since = "" if entry.since is None else f" {lasting(entry.since, now)}"
    status = f' <span class="standing">{safe(entry.life_cycle)}</span>' if entry.life_cycle else ""
    follows = f" · follows from <code>{safe(finding.explained_by)}</code>" if finding.explained_by else ""
    recorded = _recorded(findings, recordings) if finding.severity is Severity.CRITICAL else ""
    recording = f' · recorded as <code class="recording">{safe(recorded)}</code>' if recorded else ""
    # Relative, so that it works behind a proxy that adds a path prefix.
    runbook = f' · <a href="runbooks/{safe(check.runbook)}">Runbook</a>' if check.runbook else ""
    return (
        f'<li id="finding-{number}" class="{tone}" data-code="{safe(check.code)}" '
        f'data-subject="{safe(entry.subject)}" '
        f'data-severity="{safe(finding.urgency.value)}" data-state="{safe(finding.state.text)}">\n'
        f"<p>{chip(finding.urgency.value, tone)}{pending} <strong>{safe(entry.subject)}</strong>{since}{status}</p>\n"
        f'<p class="measured">{safe(entry.measured)}</p>\n'
        f"<p>{meaning} <strong>{decision}</strong></p>\n"
        f'<p class="soft"><code>{safe(check.code)}</code>{follows}{runbook}{recording}</p>\n</li>'
    )


def _recorded(findings: Sequence[Finding], recordings: Mapping[GpuLabels, str]) -> str:
    subjects = (HOST_LABELS if each.gpu is None else GpuLabels(each.gpu, each.uuid) for each in findings)
    return ", ".join(dict.fromkeys(filter(None, (recordings.get(subject, "") for subject in subjects))))


def _ended(report: Report, now: float) -> str:
    """The findings that ended recently, latest first, or ""."""
    if not report.ended:
        return ""
    ended = sorted(report.ended, key=lambda each: -(each.ended_at or 0.0))
    items = "\n".join(_ended_item(finding, now) for finding in ended)
    return f'\n<h3>Ended in the last {length_of_time(ENDED_SECONDS)}</h3>\n<ul class="ended soft">\n{items}\n</ul>'


def _ended_item(finding: Finding, now: float) -> str:
    before, after = ended_text(finding, now)
    code = safe(finding.check.code)
    return (
        f'<li data-code="{code}" data-subject="{safe(finding.subject)}">{before}: <code>{code}</code> '
        f"{safe(finding.subject)}, {after}</li>"
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
