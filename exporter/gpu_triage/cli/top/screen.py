"""Draws reports on the terminal until the user quits."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from gpu_triage.cli.one_shot import colors_wanted
from gpu_triage.cli.top.exporter_client import NotJudgedYet
from gpu_triage.cli.top.readings import table_of
from gpu_triage.documents import printable
from gpu_triage.errors import ExporterUnreachable
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import Line, render_text

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
