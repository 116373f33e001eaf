"""Paths that tell a test of each file that is opened through them, before it is."""

from __future__ import annotations

from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def watched(path: Path, before_open: Callable[[Path], None]) -> Path:
    """The same path; `before_open` is given each file below it that is opened, and may raise or wait."""

    class Watched(PosixPath):
        def open(self, *args: Any, **kwargs: Any) -> Any:
            before_open(self)
            return super().open(*args, **kwargs)

    return Watched(path)
