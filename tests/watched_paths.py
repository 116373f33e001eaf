"""Paths that tell a test of each file that is touched through them, before it is."""

from collections.abc import Callable
from pathlib import Path, PosixPath


def watched(path: Path, before: Callable[[Path], None]) -> Path:
    """The same path; `before` is given each file below it that is opened or looked up, and may raise or wait."""

    class Watched(PosixPath):
        def __fspath__(self) -> str:
            # What hands a path to the kernel asks for its text here.
            before(self)
            return super().__fspath__()

    return Watched(path)
