"""How far a command is, as one line on a terminal; nothing where stderr is no terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self

_QUIET_SECONDS: Final = 1.0
"""What takes no longer needs no word on how far it is."""
_EVERY_SECONDS: Final = 0.25
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """A line that is drawn over and over, and wiped at the end of a ``with`` block."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began_at = clock()
        self._drawn_at: float | None = None
        self.shown = self._stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn_at is not None:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def show(self, text: str) -> None:
        """Draw this in place of what is there, unless the work has just begun or the line has just been drawn."""
        if not self.shown:
            return
        now = self._clock()
        wait = (
            now - self._began_at < _QUIET_SECONDS if self._drawn_at is None else now - self._drawn_at < _EVERY_SECONDS
        )
        if not wait:
            self._drawn_at = now
            # A line that wraps could not be wiped.
            self._stream.write(f"{_CLEAR}{text[: shutil.get_terminal_size().columns - 1]}")
            self._stream.flush()

    def show_share(self, what: str, done: int, total: int) -> None:
        """Draw which share of the work is done, and how long the rest will take at this pace."""
        if self.shown and done:
            left_seconds = (self._clock() - self._began_at) / done * (total - done)
            self.show(f"{what}, {done * 100 // total} %, about {left_seconds:.0f} s left")
