"""Sections of the status page: GPUs, findings in the playbook's order, readings, areas, and the exporter itself."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_triage.judge.bottleneck.class_history import STRIP_SECONDS, ClassPeriod
from gpu_triage.judge.conditions.health import Repetition, repetitions, slots_without_gpu
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import owners_text
from gpu_triage.judge.evidence.pcie_paths import Shortage
from gpu_triage.judge.evidence.series import Evidence, Series
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import ENDED_SECONDS
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLUSTER, WORST_FIRST, Verdict, Words
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.judge.report.entries import ended_text, entry_of, grouped, quiet_text
from gpu_triage.judge.report.report import AreaVerdict, GpuReadings, GpuVerdict, Report
from gpu_triage.read.exporter import exporter_health, flight_recorder, judgment
from gpu_triage.read.gpu.power import GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENTS_RECENT
from gpu_triage.read.metrics.contract import HOST_LABELS, GpuLabels
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_MEMORY_BYTES, GPU_PROCESSES
from gpu_triage.serve.page.markup import (
    OF_SEVERITY,
    UNKNOWN,
    bar,
    chip,
    class_chip,
    clock_time,
    foreign,
    lasting,
    row,
    safe,
    section,
    soft,
    table,
    verdict_chip,
)

_TICK_MINUTES: Final = (20, 10)
_TOLD_STRETCHES: Final = 8
"""The most entries read by a screen reader; for a GPU that changes more often, earlier ones are summarized."""

_GAP_SECONDS: Final = 1.0
"""A shorter gap between two stretches is ignored."""


def urgency(gpu: GpuVerdict) -> tuple[int, int, int]:
    """Sort key for GPUs: verdict, then rank of the bottleneck class, then index."""
    rank = judgment.BOTTLENECK_CLASSES.index(gpu.bottleneck.name)
    return WORST_FIRST.index(gpu.verdict), rank, int(gpu.gpu)


def overview_section(gpus: Iterable[GpuVerdict], now: float, words: Words = CLUSTER) -> str:
    """One row per GPU; `now` is the time of the judgment in Unix seconds."""
    ordered = sorted(gpus, key=urgency)
    if not ordered:
        return section("overview", "GPUs", "<p>No GPU is known.</p>")
    models = {gpu.name for gpu in ordered if gpu.name}
    title = f"{len(ordered)} x {models.pop()}" if len(models) == 1 else "GPUs"
    rows = "\n".join(_overview_row(gpu, now, words) for gpu in ordered)
    longer = "" if words.drains else " desk"  # the words of its verdicts are
    below = f'<div class="below{longer}">{_axis()}<p>{legend(gpu.strip for gpu in ordered)}</p></div>'
    return section("overview", title, f'<ol class="overview{longer}">\n{rows}\n</ol>\n{below}')


def _overview_row(gpu: GpuVerdict, now: float, words: Words) -> str:
    name, index = gpu.bottleneck.name, safe(gpu.gpu)
    return (
        f'<li data-gpu="{index}" data-bottleneck="{safe(name)}" data-verdict="{safe(gpu.verdict.value)}">'
        f'<a id="row-{index}" href="#gpu-{index}">GPU {index}</a>{verdict_chip(gpu.verdict, words)}'
        f"<span>{class_chip(name, gpu.verdict)}</span><span>{lasting(gpu.since, now)}</span>"
        f"{strip(gpu.strip, f'GPU {gpu.gpu}', now)}</li>"
    )


def strip(stretches: tuple[ClassPeriod, ...], subject: str, now: float) -> str:
    """A timeline of bottleneck classes, oldest first, up to `now` (Unix seconds); time not judged stays empty."""
    drawn = "".join(_rectangle(stretch, now) for stretch in stretches)
    ticks = "".join(f'<line x1="{_x(60.0 * at)}" x2="{_x(60.0 * at)}" y2="100%"/>' for at in _TICK_MINUTES)
    label = f"{subject}, {_periods_text(stretches)}"
    return f'<svg class="strip" role="img" aria-label="{safe(label)}">{drawn}{ticks}</svg>'


def _axis() -> str:
    """The time axis below the strips; hidden from screen readers, as each strip has a description."""
    middle = "".join(f'<text x="{_x(60.0 * at)}" y="1em" text-anchor="middle">{at}</text>' for at in _TICK_MINUTES)
    return (
        f'<svg class="axis" aria-hidden="true"><text y="1em">{STRIP_SECONDS / 60:.0f} min ago</text>{middle}'
        '<text x="100%" y="1em" text-anchor="end">now</text></svg>'
    )


def legend(strips: Iterable[tuple[ClassPeriod, ...]]) -> str:
    """Legend of the strips: the classes that occur, by rank, and time that was not judged."""
    strips = tuple(strips)
    seen = {stretch.name for stretches in strips for stretch in stretches}
    chips = [class_chip(name) for name in judgment.BOTTLENECK_CLASSES if name in seen]
    if any(sum(map(_seconds, stretches)) < STRIP_SECONDS - _GAP_SECONDS for stretches in strips):
        chips.append('<small class="soft">hatched: not judged</small>')
    return " ".join(chips)


def _rectangle(stretch: ClassPeriod, now: float) -> str:
    width = 100 * _seconds(stretch) / STRIP_SECONDS
    began, ended = clock_time(now - stretch.began_ago), clock_time(now - stretch.ended_ago)
    text = f"{stretch.name} for {length_of_time(_seconds(stretch))}, {began} to {ended} UTC"
    return (
        f'<rect class="c-{safe(stretch.name)}" x="{_x(stretch.began_ago)}" width="{width:.2f}%" y="-5%" height="110%">'
        f"<title>{safe(text)}</title></rect>"
    )


def _x(seconds_ago: float) -> str:
    return f"{100 * (1 - seconds_ago / STRIP_SECONDS):.2f}%"


def _periods_text(stretches: tuple[ClassPeriod, ...]) -> str:
    if not stretches:
        return "not judged yet"
    text = list(_pieces(stretches))
    omitted = len(text) - _TOLD_STRETCHES
    if omitted > 0:
        text = [f"{omitted} earlier changes", *text[omitted:]]
    return f"last {length_of_time(stretches[0].began_ago)}: {', then '.join(text)}"


def _pieces(stretches: tuple[ClassPeriod, ...]) -> Iterator[str]:
    before = stretches[0].began_ago
    for stretch in stretches:
        if before - stretch.began_ago > _GAP_SECONDS:
            yield f"not judged for {length_of_time(before - stretch.began_ago)}"
        yield f"{stretch.name} for {length_of_time(_seconds(stretch))}"
        before = stretch.ended_ago
    if before > _GAP_SECONDS:
        yield f"not judged for {length_of_time(before)}"


def _seconds(stretch: ClassPeriod) -> float:
    return stretch.began_ago - stretch.ended_ago


_MOST_STEPS: Final = 2


def listed(name: str, title: str, lines: Iterable[str]) -> str:
    """A section with a list; "" without lines."""
    items = "\n".join(f"<li>{safe(each)}</li>" for each in lines)
    return section(name, title, f"<ul>\n{items}\n</ul>") if items else ""


def findings_section(report: Report, now: float, recordings: Mapping[GpuLabels, str]) -> str:
    """Every finding with its meaning and action, once for all its GPUs; `recordings` are file names by GPU."""
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
    shown = ((n, f) for n, findings in enumerate(grouped(report.findings)) for f in findings)
    causes = [(n, f) for n, f in shown if not f.explained_by and f.accepted is None]
    confirmed = [(number, f) for number, f in causes if f.state is State.CONFIRMED]
    worst = max((f.severity for _, f in confirmed), key=lambda severity: severity.rank, default=Severity.INFO)
    if worst is Severity.INFO:
        chosen = [(number, f, _when_it_has_lasted(f)) for number, f in causes if f.severity is Severity.CRITICAL]
    else:
        chosen = [(number, f, report.words.decision(f.advice)) for number, f in confirmed if f.severity is worst]
    steps: dict[str, list[str]] = {}
    for number, finding, step in chosen:
        steps.setdefault(step, []).append(f'<a href="#finding-{number}">{safe(finding.subject)}</a>')
    if not steps:
        return ""
    lines = (f"<li>{', '.join(whom)}: {safe(decision)}</li>" for decision, whom in [*steps.items()][:_MOST_STEPS])
    return f'<ol class="first" aria-label="What to do first">{"".join(lines)}</ol>\n'


def _when_it_has_lasted(finding: Finding) -> str:
    return f"nothing yet; {finding.check.code} becomes critical after {length_of_time(finding.check.wait_seconds)}."


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
    gaps = f'\n<p id="not-judged">Not judged: {safe("; ".join(report.not_judged))}</p>' if report.not_judged else ""
    return section("areas", "Areas checked", f"<dl>\n{lines}\n</dl>{gaps}{not_read}")


def recordings_of(host: HostEvidence) -> Mapping[GpuLabels, str]:
    """The file name of the latest flight recording for each GPU, and for HOST_LABELS."""
    found = host.labels_of(flight_recorder.GPU_FLIGHT_RECORDING_TIMESTAMP_SECONDS)
    return {GpuLabels(labels["gpu"], labels["uuid"]): labels["file"] for labels in found}


def _item(
    number: int, findings: Sequence[Finding], now: float, recordings: Mapping[GpuLabels, str], words: Words
) -> str:
    finding, entry = findings[0], entry_of(findings, words)
    meaning, decision = safe(finding.advice.meaning), safe(words.decision(finding.advice))
    check = finding.check
    tone = OF_SEVERITY[finding.urgency]
    pending = f" {chip(finding.state.text, 'idle')}" if finding.state is State.PENDING else ""
    quiet = f'\n<p class="accepted">Accepted {safe(text)}</p>' if (text := quiet_text(finding)) else ""
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
        f'<p class="measured">{safe(entry.measured)}</p>{quiet}\n'
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
    elif not area.is_known:
        state, mark = "not_judged", chip("not judged", "idle")
    summary = UNKNOWN if area.summary is None else safe(area.summary)
    return (
        f'<dt data-area="{safe(area.area.name.lower())}" data-state="{state}">{mark} {safe(area.area.value)}</dt>'
        f"<dd>{summary}</dd>"
    )


_READINGS_HEADS: Final = (
    *("GPU", "Bottleneck", "Findings", "Busy", "Memory"),
    *("Power", "Temperature", "PCIe link", "Processes"),
)
_GIB: Final = 1024.0**3
_SHOWN_PROCESSES: Final = 2


def gpus_section(latest: Judgment) -> str:
    """The table of GPUs, worst first, or ""."""
    verdicts = latest.report.gpus
    if not verdicts:
        return ""
    models = {verdict.name for verdict in verdicts if verdict.name}
    pairs = sorted(zip(latest.host.gpus, verdicts, strict=True), key=lambda pair: urgency(pair[1]))
    rows = (_readings_row(latest, view, verdict, named=len(models) > 1) for view, verdict in pairs)
    return section("gpus", "Readings", table("Readings of each GPU", _READINGS_HEADS, rows, "gpus"))


def _readings_row(latest: Judgment, gpu: GpuEvidence, verdict: GpuVerdict, *, named: bool) -> str:
    name = verdict.bottleneck.name
    details = soft(gpu.name if named else "") + soft(verdict.pci_bus_id) + soft(owners_text(verdict.owners))
    cells = (
        class_chip(name, verdict.verdict) + soft(verdict.bottleneck.because) + soft(verdict.bottleneck.unseen),
        "<br>".join(f"<code>{safe(code)}</code>" for code in verdict.codes) or UNKNOWN,
        _busy(verdict.readings),
        _memory(verdict.readings),
        _power(verdict.readings, capped=gpu.capped),
        _temperature(gpu, verdict.readings),
        _link(latest.host, gpu, verdict.readings),
        _processes(gpu),
    )
    return row(
        f"<strong>{safe(gpu.gpu)}</strong> {verdict_chip(verdict.verdict, latest.report.words)}{details}",
        cells,
        id=f"gpu-{gpu.gpu}",
        data_gpu=gpu.gpu,
        data_bottleneck=name,
        data_verdict=verdict.verdict.value,
        data_findings=" ".join(verdict.codes),
    )


def _busy(readings: GpuReadings) -> str:
    share = readings.busy_ratio
    return UNKNOWN if share is None else f"{share:.0%}{bar(share)}"


def _memory(readings: GpuReadings) -> str:
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    return UNKNOWN if used is None else _of(f"{used / _GIB:.1f}", used, total, "GiB", _GIB)


def _power(readings: GpuReadings, *, capped: bool) -> str:
    power, limit = readings.power_watts, readings.power_limit_watts
    if power is None:
        return UNKNOWN
    return _of(f"{power:.0f}", power, limit, "W") + soft("limit below default" if capped and limit else "")


def _of(shown: str, value: float, most: float | None, unit: str, scale: float = 1.0) -> str:
    return f"{shown} of {most / scale:.0f} {unit}{bar(value / most)}" if most else f"{shown} {unit}"


def _temperature(gpu: GpuEvidence, readings: GpuReadings) -> str:
    core = readings.temperature_celsius
    memory = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="memory")
    if core is None:
        return UNKNOWN
    return f"{core:.0f} °C" + soft("" if memory is None else f"memory {memory:.0f} °C")


def _link(host: HostEvidence, gpu: GpuEvidence, readings: GpuReadings) -> str:
    link = _lanes(readings.pcie_generation, readings.pcie_width)
    expected = _lanes(readings.pcie_expected_generation, readings.pcie_expected_width)
    if not link or not expected:
        return link or UNKNOWN
    missing = host.missing_lanes.get(gpu)
    built = missing is not None and missing.kind is Shortage.BUILT
    if (missing is not None and not built) or (gpu.recent.loaded and gpu.slow_link is not None):
        return chip(link, "path") + soft(f"expected {expected}")
    if built:
        return link + soft(f"of {expected}, as its siblings")
    return link if link == expected else link + soft(f"of {expected}, at idle")


def _lanes(generation: float | None, width: float | None) -> str:
    return "" if generation is None or width is None else f"gen {generation:.0f} x{width:.0f}"


def _processes(gpu: GpuEvidence) -> str:
    if not gpu.processes_known:
        return UNKNOWN
    held = {track.labels["pid"]: track.last for track in gpu.series(GPU_PROCESS_MEMORY_BYTES)}
    tracks = sorted(gpu.series(GPU_PROCESS_INFO), key=lambda track: -held.get(track.labels["pid"], 0.0))
    lines = [
        f"<small>{foreign(track.labels['process'] or 'process')} {safe(track.labels['pid'])}{_owner(track)}</small>"
        for track in tracks[:_SHOWN_PROCESSES]
    ]
    if len(tracks) > _SHOWN_PROCESSES:
        lines.append(f'<small class="soft">and {len(tracks) - _SHOWN_PROCESSES} more</small>')
    count = sum(int(track.last) for track in gpu.series(GPU_PROCESSES))
    return "<br>".join(lines) or str(count)


def _owner(track: Series) -> str:
    labels = track.labels
    if labels["workload_pod"]:
        return f" {foreign(labels['workload_namespace'] + '/' + labels['workload_pod'])}"
    return f" Slurm {foreign(labels['slurm_job_id'])}" if labels["slurm_job_id"] else ""


_COLLECTOR_HEADS: Final = ("Collector", "State", "Last success", "Interval", "Errors since start")


def collectors_section(evidence: Evidence) -> str:
    """The table of collectors, those with a problem first; collapsed if all are current."""
    tracks = evidence.series(exporter_health.GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS)
    rows = sorted((_collector_row(track, evidence) for track in tracks), key=lambda each: each[0])
    if not rows:
        return section("collectors", "Collectors", "<p>No collector has started yet.</p>")
    well = sum(fine for fine, _ in rows)
    if well == len(rows):
        opened, summary = "", f"{chip('ok', 'well')} all collectors current"
    else:
        opened = " open"
        summary = f"{chip(f'{len(rows) - well} not ok', 'held')} {well} of {len(rows)} collectors current"
    body = table("Collectors", _COLLECTOR_HEADS, (each for _, each in rows), "collectors")
    return section("collectors", "Collectors", f"<details{opened}>\n<summary>{summary}</summary>\n{body}\n</details>")


def _collector_row(interval: Series, evidence: Evidence) -> tuple[bool, str]:
    """Whether the collector is current, and its table row."""
    name = interval.labels["collector"]
    success = evidence.last(exporter_health.GPU_EXPORTER_COLLECTOR_SUCCESS, collector=name)
    last_success_at = evidence.last(
        exporter_health.GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS, collector=name
    )
    age = None if last_success_at is None else max(0.0, evidence.at.wall - last_success_at)
    if success is None:
        state, tone = "waiting", "idle"
    elif success == 0:
        state, tone = "failing", "sick"
    elif evidence.has(exporter_health.GPU_EXPORTER_COLLECTOR_STALE_SECONDS, collector=name):
        state, tone = "stale", "held"
    else:
        state, tone = "ok", "well"
    cells = (
        chip(state, tone),
        UNKNOWN if age is None else f"{length_of_time(age)} ago",
        f"{interval.last:g} s" if interval.last else "on events",
        _errors(name, evidence),
    )
    return tone == "well", row(safe(name), cells, data_collector=name, data_state=state)


def _errors(name: str, evidence: Evidence) -> str:
    counts: dict[str, float] = defaultdict(float)
    for track in evidence.series(exporter_health.GPU_EXPORTER_ERRORS_TOTAL, collector=name):
        counts[track.labels["error"]] += track.last
    return ", ".join(f"{safe(error)} {count:.0f}" for error, count in sorted(counts.items())) or UNKNOWN
