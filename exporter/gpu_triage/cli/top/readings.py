"""The table of readings that `top` shows below the title of a report: a row for each GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import click

from gpu_triage.documents import printable
from gpu_triage.judge.evidence.owners import owners_text
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.verdicts import COLORS
from gpu_triage.judge.report.report import GpuVerdict, Report
from gpu_triage.judge.report.text import Line

_GIB: Final = 1024.0**3
_UNKNOWN: Final = "-"
_ON_IT: Final = "ON IT"
_HEADINGS: Final = ("GPU", "CLASS", "FOR", "BUSY", "POWER", "TEMP", "MEMORY", "PCIE", _ON_IT)
_LEFT: Final = frozenset({"CLASS", "PCIE"})
_LEAVE_OUT: Final = ("MEMORY", "POWER", "TEMP", _ON_IT, "FOR", "PCIE", "BUSY")
"""Columns that a narrow terminal lacks, the first one first."""
_LEAST_ON_IT: Final = 10


def table_of(report: Report, columns: int | None) -> Iterator[Line]:
    """Yield the heading and the rows, with the columns that fit side by side; all if `columns` is None."""
    rows = [dict(zip(_HEADINGS, _cells(gpu, report.judged_at), strict=True)) for gpu in report.gpus]
    if not rows:
        return
    widths = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in _HEADINGS}
    shown = list(_HEADINGS)
    for heading in _LEAVE_OUT:
        used = sum(widths[each] + 1 for each in shown if each != _ON_IT)
        if columns is None or used + _LEAST_ON_IT * (_ON_IT in shown) <= columns:
            break
        shown.remove(heading)
    if columns is not None:
        widths[_ON_IT] = columns - used
    yield Line("")
    yield Line(click.style(" ".join(_aligned(dict(zip(_HEADINGS, _HEADINGS, strict=True)), shown, widths)), dim=True))
    for row, gpu in zip(rows, report.gpus, strict=True):
        index, name, *others = _aligned(row, shown, widths)
        yield Line(" ".join((click.style(f"{index} {name}", fg=COLORS[gpu.verdict].terminal), *others)))


def _aligned(row: Mapping[str, str], shown: Iterable[str], widths: Mapping[str, int]) -> Iterator[str]:
    for heading in shown:
        text, width = row[heading], widths[heading]
        cut = text if len(text) <= width else f"{text[: width - 1]}…"
        yield cut if heading == _ON_IT else f"{cut:{'<' if heading in _LEFT else '>'}{width}}"


def _cells(gpu: GpuVerdict, now: float) -> Iterator[str]:
    readings = gpu.readings
    yield gpu.gpu
    yield gpu.bottleneck.name
    yield _UNKNOWN if gpu.since is None else length_of_time(max(0.0, now - gpu.since))
    yield _UNKNOWN if readings.busy_ratio is None else f"{readings.busy_ratio:.0%}"
    yield _of(readings.power_watts, readings.power_limit_watts, "W")
    yield _UNKNOWN if readings.temperature_celsius is None else f"{readings.temperature_celsius:.0f}°C"
    yield _of(readings.memory_used_bytes, readings.memory_total_bytes, "GiB", _GIB)
    generation = _below(readings.pcie_generation, readings.pcie_expected_generation)
    width = _below(readings.pcie_width, readings.pcie_expected_width)
    yield f"gen{generation} x{width}" if generation and width else _UNKNOWN
    processes = readings.compute_processes
    count = f"{processes:.0f} process{'es' * (processes != 1)}" if processes else ""
    yield printable(", ".join(filter(None, (owners_text(gpu.owners), count)))) or _UNKNOWN


def _of(value: float | None, most: float | None, unit: str, scale: float = 1.0) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value / scale:.0f}{'' if most is None else f'/{most / scale:.0f}'} {unit}"


def _below(value: float | None, expected: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if expected is None or value == expected else f"{value:.0f}/{expected:.0f}"
