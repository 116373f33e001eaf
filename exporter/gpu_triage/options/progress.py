"""Progress of a command, as one line on stderr if that is a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from gpu_triage.documents import printable

_QUIET_SECONDS: Final = 1.0
"""Shorter tasks show no progress."""
_EVERY_SECONDS: Final = 0.25
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """A line that is redrawn in place, and cleared at the end of a ``with`` block."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began_at = clock()
        self._drawn_at: float | None = None
        self.shown = self._stream.isatty()

    def __enter__(self) -> ProgressLine:  # noqa: PYI034 - typing has no Self before Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        if self._drawn_at is not None:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def show(self, text: str) -> None:
        """Redraw the line with this text, unless the task has just started or the line was just drawn."""
        if not self.shown:
            return
        now = self._clock()
        since, least = (self._began_at, _QUIET_SECONDS) if self._drawn_at is None else (self._drawn_at, _EVERY_SECONDS)
        if now - since >= least:
            self._drawn_at = now
            # A wrapped line could not be cleared.
            self._stream.write(f"{_CLEAR}{printable(text)[: shutil.get_terminal_size().columns - 1]}")
            self._stream.flush()

    def show_share(self, what: str, done: int, total: int) -> None:
        if self.shown and done:
            left_seconds = (self._clock() - self._began_at) / done * (total - done)
            self.show(f"{what}, {done * 100 // total} %, about {left_seconds:.0f} s left")
