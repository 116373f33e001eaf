"""Keeps the terminal up to date until the user quits."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from gpu_triage.cli.top.exporter_client import NotJudgedYet
from gpu_triage.cli.top.frame import Frame, render
from gpu_triage.cli.top.view import HostView
from gpu_triage.documents import printable
from gpu_triage.errors import ExporterUnreachable
from gpu_triage.judge.evidence.wording import length_of_time

Look = Callable[[], HostView]
"""Returns the latest verdict; raises ExporterUnreachable if the exporter does not answer."""

_HINT: Final = "q quits"
_LOOK_AGAIN_SECONDS: Final = 0.25
_MOST_KEYS: Final = 64
_END_OF_INPUT: Final = "\x04"
_ESCAPE: Final = "\x1b"  # only on its own: arrow keys etc. send sequences that begin with it
_QUIT: Final = frozenset("qQ\x03\x04")
_EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Watch:
    """Polls on a separate thread, so that an exporter that hangs cannot block `q`."""

    def __init__(self, look: Look, source: str, interval_seconds: float) -> None:
        self._look = look
        self._source = source
        self._interval_seconds = interval_seconds
        self._frame = Frame(None, source, f"waiting for {source}", _HINT)
        self._seen_at = time.monotonic()
        self._ended = threading.Event()

    @property
    def frame(self) -> Frame:
        """The frame to show now."""
        frame = self._frame
        if frame.view is None or not frame.trouble:
            return frame
        age = length_of_time(time.monotonic() - self._seen_at)
        return frame._replace(trouble=f"{frame.trouble}; what follows is {age} old")

    def look(self) -> None:
        """Poll once; an error is shown above the last verdict."""
        try:
            view = self._look()
        except ExporterUnreachable as error:
            self._frame = self._frame._replace(trouble=printable(str(error)))
        else:
            self._frame, self._seen_at = Frame(view, self._source, "", _HINT), time.monotonic()

    def start(self) -> None:
        """Start polling at the interval."""
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def stop(self) -> None:
        """Stop polling."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(self._interval_seconds)


def show(watch: Watch) -> None:
    """Show the verdict until `q`, Escape, Ctrl-C or Ctrl-D."""
    console = Console()

    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    watch.start()
    try:
        with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            shown = None
            while True:
                new = watch.frame, console.size
                if new != shown:
                    live.update(render(*new), refresh=True)
                    shown = new
                if _quits(pressed(_LOOK_AGAIN_SECONDS)):
                    break
    except KeyboardInterrupt:
        pass
    finally:
        watch.stop()


def _quits(typed: str) -> bool:
    return typed == _ESCAPE or not _QUIT.isdisjoint(typed)


def first(look: Look, patience_seconds: float) -> HostView:
    """Wait for the first verdict and return it; raises ExporterUnreachable if none arrives."""
    ends_at = time.monotonic() + patience_seconds
    while True:
        try:
            return look()
        except NotJudgedYet:
            if time.monotonic() > ends_at:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that returns keys typed within some seconds, unbuffered rather than line by line."""
    number = sys.stdin.fileno()

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, _MOST_KEYS).decode("latin-1") or _END_OF_INPUT) if ready else ""

    if not sys.stdin.isatty():
        yield pressed
        return
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
