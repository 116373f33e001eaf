"""One frame of `top`: the verdict, a row for each GPU, and as many findings as fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpu_triage.cli.top.view import BoundView, FindingView, GpuView, HostView
from gpu_triage.judge.bottleneck.bound import bound_in_words
from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, COLORS
from gpu_triage.judge.report.grouping import Fact, alike, entry
from gpu_triage.judge.report.headline import UNREMARKABLE
from gpu_triage.judge.report.life_cycle import ended_in_words
from gpu_triage.judge.report.readings import GpuReadings
from gpu_triage.judge.report.text import SEVERITY_COLORS
from gpu_triage.judge.report.words import Words
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

_GIB: Final = 1024.0**3
_UNKNOWN: Final = "-"
_MOST_ENDED: Final = 3
"""Maximum number of ended findings on a terminal of limited height; current ones matter more."""
_ON_IT: Final = "ON IT"
_HEADINGS: Final = ("GPU", "CLASS", "FOR", "BUSY", "POWER", "TEMP", "MEMORY", "PCIE", _ON_IT)
_LEFT: Final = frozenset({"CLASS", "PCIE"})
_LEAVE_OUT: Final = ("MEMORY", "POWER", "TEMP", _ON_IT, "FOR", "PCIE", "BUSY")
"""Columns that a narrow terminal lacks, the first one first."""
_LEAST_ON_IT: Final = 10
_VERDICT_STYLES: Final = MappingProxyType({verdict.value: each.terminal for verdict, each in COLORS.items()})
_SEVERITY_STYLES: Final = MappingProxyType({each.value: color for each, color in SEVERITY_COLORS.items()})
_RANKS: Final = MappingProxyType({severity.value: severity.rank for severity in Severity})


class Frame(NamedTuple):
    """The contents of the screen."""

    view: HostView | None  # None before the first verdict
    source: str  # origin of the verdict: ``http://127.0.0.1:9836``, or ``this host``
    trouble: str = ""  # why there is no newer verdict; "" if there is
    hint: str = ""  # last line, such as how to quit


def render(frame: Frame, size: tuple[int, int | None]) -> RenderableType:
    """Render the frame with rich.

    Args:
        frame: contents to show.
        size: columns and lines of the terminal; findings are cut to fit, or all shown if lines is None.
    """
    columns, lines = size
    parts: list[RenderableType] = []
    if frame.trouble:
        parts.append(Text(frame.trouble, style="bold red"))
    if frame.view is not None:
        view = frame.view
        parts += [_title(view, frame.source), _verdict(view), Text("")]
        if view.blocked:
            parts.append(Text(f"could not check: {view.blocked}", style="red"))
        if view.gpus:
            parts += [_gpus(view, columns), Text(""), *_reasons(view), *_bounds(view)]
        if view.findings:
            parts.append(Text(""))
        ended = [*_ended(view, None if lines is None else _MOST_ENDED)]
        room = None if lines is None else lines - _height([*parts, *ended], columns) - 2
        parts += [*_findings(view, room, columns), *ended]
    if frame.hint:
        parts.append(Text(frame.hint, style="dim"))
    return Group(*parts)


def _title(view: HostView, source: str) -> Text:
    title = Text(view.host, style="bold")
    if view.note:
        title.append(f"  {view.note}", style="bold yellow")
    if view.driver:
        title.append(f"  driver {view.driver}", style="not bold")
    return title.append(f"  from {source}", style="not bold dim")


def _verdict(view: HostView) -> Text:
    text = Text(view.summary)
    text.stylize(f"bold {_VERDICT_STYLES.get(view.verdict, 'default')}", 0, len(view.summary.partition(".")[0]))
    return text


def _gpus(view: HostView, columns: int) -> Table:
    rows = [dict(zip(_HEADINGS, _cells(gpu, view.judged_at), strict=True)) for gpu in view.gpus]
    shown = _fitting(rows, columns)
    # Only the last column grows.
    width = columns if _ON_IT in shown else None
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width)
    for heading in shown:
        if heading == _ON_IT:
            table.add_column(heading, ratio=1, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[heading] for heading in shown))
    return table


def _fitting(rows: Sequence[Mapping[str, Text]], columns: int) -> list[str]:
    """The headings of the columns that fit side by side at the width of their contents; others are left out."""
    widths = {heading: max(len(heading), *(row[heading].cell_len for row in rows)) for heading in _HEADINGS}
    widths[_ON_IT] = min(widths[_ON_IT], _LEAST_ON_IT)
    shown = list(_HEADINGS)
    for heading in _LEAVE_OUT:
        if sum(widths[each] + 1 for each in shown) - 1 <= columns:
            break
        shown.remove(heading)
    return shown


def _reasons(view: HostView) -> Iterator[Text]:
    """Yield why GPUs are in their classes; those with the same reason (such as a slow host) share a line."""
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for gpu in view.gpus:
        if gpu.bottleneck not in UNREMARKABLE:
            shared[gpu.bottleneck, gpu.because].append(gpu.gpu)
    for (name, because), gpus in sorted(shared.items(), key=lambda each: _rank(each[0][0])):
        yield Text.assemble((name, CLASS_COLORS.get(name, "default")), f"  GPU {ranges(gpus)}: {because}")


def _bounds(view: HostView) -> Iterator[Text]:
    """Yield what bounds the kernels of busy GPUs, with a line for those with the same bound."""
    groups: dict[tuple[str, str], list[tuple[str, BoundView]]] = defaultdict(list)
    for gpu in view.gpus:
        if gpu.bound is not None:
            groups[gpu.bound.by, gpu.bound.pipe].append((gpu.gpu, gpu.bound))
    for (by, pipe), group in groups.items():
        measured = [bound for _, bound in group]
        words = bound_in_words(by, pipe, [b.pipe_ratio for b in measured], [b.memory_ratio for b in measured])
        gpus = ranges([gpu for gpu, _ in group])
        yield Text.assemble(("compute", CLASS_COLORS["compute"]), f"  GPU {gpus}: {words}")


def _rank(name: str) -> int:
    """Return the rank of a class in the playbook; unknown ones (from a newer exporter) come last."""
    return BOTTLENECK_CLASSES.index(name) if name in BOTTLENECK_CLASSES else len(BOTTLENECK_CLASSES)


def _cells(gpu: GpuView, now: float | None) -> Iterator[Text]:
    readings = gpu.readings
    yield Text(gpu.gpu, style=_VERDICT_STYLES.get(gpu.verdict, "default"))
    yield Text(gpu.bottleneck, style=CLASS_COLORS.get(gpu.bottleneck, "default"))
    yield Text(_lasting(gpu.since, now))
    yield Text(_UNKNOWN if readings.busy_ratio is None else f"{readings.busy_ratio:.0%}")
    yield Text(_of(readings.power_watts, readings.power_limit_watts, "W"))
    yield Text(_UNKNOWN if readings.temperature_celsius is None else f"{readings.temperature_celsius:.0f}°C")
    yield Text(_of(_gib(readings.memory_used_bytes), _gib(readings.memory_total_bytes), "GiB"))
    yield _link(readings, slow=gpu.bottleneck == "pcie_link")
    yield Text(_on_it(gpu))


def _lasting(since: float | None, now: float | None) -> str:
    return _UNKNOWN if since is None or now is None else length_of_time(max(0.0, now - since))


def _of(value: float | None, most: float | None, unit: str) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:.0f} {unit}" if most is None else f"{value:.0f}/{most:.0f} {unit}"


def _gib(count: float | None) -> float | None:
    return None if count is None else count / _GIB


def _link(readings: GpuReadings, *, slow: bool) -> Text:
    if readings.pcie_generation is None or readings.pcie_width is None:
        return Text(_UNKNOWN)
    generation = _below(readings.pcie_generation, readings.pcie_expected_generation)
    width = _below(readings.pcie_width, readings.pcie_expected_width)
    return Text(f"gen{generation} x{width}", style=CLASS_COLORS["pcie_link"] if slow else "")


def _below(value: float, expected: float | None) -> str:
    return f"{value:.0f}" if expected is None or value == expected else f"{value:.0f}/{expected:.0f}"


def _on_it(gpu: GpuView) -> str:
    processes = gpu.readings.compute_processes
    count = "" if not processes else f"{processes:.0f} process{'es' * (processes != 1)}"
    return ", ".join(filter(None, (gpu.held_by, count))) or _UNKNOWN


def _findings(view: HostView, room: int | None, columns: int) -> Iterator[RenderableType]:
    """Yield findings, most severe first and confirmed before pending, in two paragraphs each; count those cut off.

    The same finding on several GPUs is shown once.
    """
    ordered = sorted(
        alike(view.findings, _key), key=lambda each: (-_RANKS.get(each[0].severity, 0), each[0].life_cycle.pending)
    )
    for place, findings in enumerate(ordered):
        drawn = _finding(findings, view.judged_at, view.words)
        if room is not None:
            room -= _height(drawn, columns)
            if room < (place < len(ordered) - 1):
                yield Text(f"and {len(ordered) - place} more: gpu-triage check shows all", style="dim")
                return
        yield from drawn


def _key(finding: FindingView) -> Hashable | None:
    cycle = finding.life_cycle
    same = (finding.code, finding.severity, cycle.state, cycle.holds, finding.explained_by, finding.decision)
    return same if finding.gpu else None


def _fact(finding: FindingView, words: Words) -> Fact:
    cycle = finding.life_cycle
    lasted_seconds = cycle.lasted_seconds or 0.0
    about = (finding.code, finding.gpu or None, finding.subject)
    return Fact(*about, finding.measured, finding.value, cycle.told(words), lasted_seconds)


def _finding(findings: Sequence[FindingView], now: float | None, words: Words) -> list[RenderableType]:
    finding, shown = findings[0], entry([_fact(each, words) for each in findings])
    head = Text.assemble(
        (finding.severity, _SEVERITY_STYLES.get(finding.severity, "default")),
        " ",
        (finding.code, "bold"),
        f"  {shown.subject}: {shown.measured}",
    )
    began = [each.since for each in findings if each.since is not None]
    if began and now is not None and not finding.life_cycle.pending:
        head.append(f", for {length_of_time(max(0.0, now - min(began)))}")
    follows = f"follows from {finding.explained_by}" if finding.explained_by else ""
    if more := "; ".join(filter(None, (follows, shown.life_cycle))):
        head.append(f" ({more})")
    if finding.explained_by:
        return [head]
    return [head, Padding(Text(words.advice(finding.decision), style="dim"), (0, 0, 0, 4))]


def _ended(view: HostView, most: int | None) -> Iterator[Text]:
    """Yield a line for each recently ended finding, latest first; those beyond `most` are only counted."""
    latest_first = sorted(view.ended, key=lambda each: -(each.ended_at or 0.0))
    for finding in latest_first[:most]:
        ended_at, now = finding.ended_at, view.judged_at
        ago_seconds = None if ended_at is None or now is None else now - ended_at
        before, after = ended_in_words(ago_seconds, finding.lasted_seconds, finding.end)
        yield Text(f"{before}: {finding.code} {finding.subject}{after and f', {after}'}", style="dim")
    if most is not None and len(latest_first) > most:
        yield Text(f"and {len(latest_first) - most} more that ended", style="dim")


def _height(parts: list[RenderableType], columns: int) -> int:
    console = Console(width=columns, height=1000, color_system=None)
    return sum(len(console.render_lines(part)) for part in parts)
