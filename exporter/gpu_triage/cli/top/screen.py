"""Draws reports on the terminal until the user quits, with the readings of each GPU below the title."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from gpu_triage.cli.one_shot import colors_wanted
from gpu_triage.cli.top.exporter_client import NotJudgedYet
from gpu_triage.documents import printable
from gpu_triage.errors import ExporterUnreachable
from gpu_triage.judge.evidence.owners import owners_text
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.verdicts import COLORS
from gpu_triage.judge.report.report import GpuVerdict, Report
from gpu_triage.judge.report.text import Line, render_text

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


Look = Callable[[], Report]
"""Returns the latest report; raises ExporterUnreachable if there is none, or if the exporter does not answer."""

_LOOK_AGAIN_SECONDS: Final = 0.25
_MOST_KEYS: Final = 64
_END_OF_INPUT: Final = "\x04"
_ESCAPE: Final = "\x1b"  # only on its own: arrow keys etc. send sequences that begin with it
_QUIT: Final = frozenset("qQ\x03\x04")
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_TAKE_OVER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, long lines are cut
_GIVE_BACK: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_FROM_THE_TOP: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K"  # erases what was there before
_END_OF_SCREEN: Final = "\x1b[J"


def frame_of(report: Report, source: str, columns: int | None) -> str:
    """Return the report as `check` prints it, with its source and the readings of the GPUs below its title."""
    below_title = (Line(click.style(f"from {source}", dim=True)), *table_of(report, columns))
    return render_text(report, columns, below_title)


class Watch:
    """Polls on a separate thread, so that an exporter that hangs cannot block `q`."""

    def __init__(self, look: Look, source: str, interval_seconds: float) -> None:
        self._look = look
        self._source = source
        self._interval_seconds = interval_seconds
        self._seen: tuple[Report, float] | None = None  # the last report, and the monotonic second of its arrival
        self._trouble = f"waiting for {source}"  # why there is no newer report; "" if there is
        self._ended = threading.Event()

    def look(self) -> None:
        """Poll once; an error is shown above the last report."""
        try:
            self._seen, self._trouble = (self._look(), time.monotonic()), ""
        except ExporterUnreachable as error:
            self._trouble = printable(str(error))

    def screen(self, columns: int, lines: int) -> list[str]:
        """Return what to show now: what is wrong, and the report as far as there is room."""
        report, seen_at = self._seen or (None, 0.0)
        trouble = self._trouble
        if report is not None and trouble:
            trouble += f"; what follows is {length_of_time(time.monotonic() - seen_at)} old"
        above = [click.style(trouble, fg="red", bold=True)] if trouble else []
        drawn = [] if report is None else frame_of(report, self._source, columns).splitlines()
        room = max(0, lines - len(above) - 1)
        left = len(drawn) - room
        hint = f"q quits; {left} more lines: --once prints all" if left > 0 else "q quits"
        return [*above, *drawn[:room], click.style(hint, dim=True)]

    def run(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(self._interval_seconds)

    def stop(self) -> None:
        self._ended.set()


def show(watch: Watch) -> None:
    """Show the report until `q`, Escape, Ctrl-C or Ctrl-D."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    threading.Thread(target=watch.run, name="top", daemon=True).start()
    try:
        with _terminal() as typed:
            shown: list[str] = []
            while True:
                new = watch.screen(*shutil.get_terminal_size())
                if new != shown:
                    drawn = new if colors_wanted() else map(click.unstyle, new)
                    _write(_FROM_THE_TOP + f"{_END_OF_LINE}\n".join(drawn) + _END_OF_LINE + _END_OF_SCREEN)
                    shown = new
                keys = typed(_LOOK_AGAIN_SECONDS)
                if keys == _ESCAPE or not _QUIT.isdisjoint(keys):
                    break
    except KeyboardInterrupt:
        pass
    finally:
        watch.stop()


def first(look: Look, patience_seconds: float) -> Report:
    """Wait for the first report and return it; raises ExporterUnreachable if none arrives."""
    ends_at = time.monotonic() + patience_seconds
    while True:
        try:
            return look()
        except NotJudgedYet:
            if time.monotonic() > ends_at:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def _terminal() -> Iterator[Callable[[float], str]]:
    """Take over the terminal; yield a function that returns keys typed within some seconds, unbuffered."""
    keyboard = sys.stdin.fileno()

    def typed(seconds: float) -> str:
        ready, _, _ = select.select([keyboard], [], [], seconds)
        return (os.read(keyboard, _MOST_KEYS).decode("latin-1") or _END_OF_INPUT) if ready else ""

    before = termios.tcgetattr(keyboard) if sys.stdin.isatty() else None
    try:
        _write(_TAKE_OVER)
        if before is not None:
            tty.setcbreak(keyboard)
        yield typed
    finally:
        if before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        _write(_GIVE_BACK)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
