"""Progress bar for reading files, on one terminal line."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11; no runtime dependency

_EVERY_SECONDS: Final = 0.25
_COLUMNS: Final = 30


class Progress:
    """A progress bar on stderr inside a ``with`` block; draws nothing if reading is quick or `shown` is False."""

    def __init__(self, total_bytes: int, *, shown: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = total_bytes
        self._shown = shown
        self._read = 0
        self._drawn_at = clock()
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)

    def add(self, count: int) -> None:
        """Count bytes read, and redraw if due."""
        self._read += count
        now = self._clock()
        if not self._shown or now - self._drawn_at < _EVERY_SECONDS:
            return
        self._drawn_at, self._drawn = now, True
        share = min(1.0, self._read / self._total) if self._total else 0.0
        bar = "#" * round(share * _COLUMNS)
        of_total = f" of {self._total / 1e6:.0f}" if self._total else ""
        click.echo(f"\rreading [{bar:<{_COLUMNS}}] {self._read / 1e6:.0f}{of_total} MB ", nl=False, err=True)
