"""Opening what jobs left in a folder, which they may write to and this process may read more than they."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 8
"""Kubernetes needs two: of the file to ``..data``, and of that to the folder of this version."""

_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe would not return without O_NONBLOCK."""

_FOLDER: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_IS_LINK: Final = (errno.ELOOP, errno.ENOTDIR)


class LinkOutside(OSError):
    """A link that leads out of the folder: to a file that only this process may read, a device, a dead mount."""


class Folder:
    """A folder whose files are opened one step at a time, so that nobody can move one out of it in between."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """Open a folder, or take one that is open already."""
        self._path = path
        self._bases = tuple(dict.fromkeys(f"{base}/" for base in (path, os.path.realpath(path))))
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if descriptor is None else descriptor
        self._descriptor = opened

    def close(self) -> None:
        """Free the descriptor."""
        os.close(self._descriptor)

    def folder(self, name: str) -> Folder:
        """A folder in it.

        Raises:
            OSError: it cannot be opened, or is a link.
        """
        return Folder(self._path / name, os.open(name, _FOLDER, dir_fd=self._descriptor))

    def open(self, name: str) -> int:
        """Descriptor of what has this name, for reading; links are followed as long as they stay in the folder.

        Raises:
            LinkOutside: one of them leads out of it.
            OSError: it cannot be opened.
        """
        way: list[int] = []
        try:
            return self._walk([name], way)
        finally:
            for descriptor in way:
                os.close(descriptor)

    def _walk(self, steps: list[str], way: list[int]) -> int:
        links = 0
        while steps:
            step, rest = steps[0], steps[1:]
            parent = way[-1] if way else self._descriptor
            try:
                descriptor = os.open(step, _FOLDER if rest else _FILE, dir_fd=parent)
            except OSError as error:
                links += 1
                if error.errno not in _IS_LINK or links > _MOST_LINKS:
                    raise
                target = os.readlink(step, dir_fd=parent)
                if target.startswith("/"):
                    target = self._relative(target)
                    while way:
                        os.close(way.pop())
                steps = [*_steps(target), *rest]
                continue
            if not rest:
                return descriptor
            way.append(descriptor)
            steps = rest
        raise IsADirectoryError(errno.EISDIR, "the folder itself")

    def _relative(self, target: str) -> str:
        for base in self._bases:
            if target.startswith(base):
                return target.removeprefix(base)
        raise LinkOutside(errno.EXDEV, "leads out of the folder", target)


def _steps(target: str) -> list[str]:
    steps = [step for step in target.split("/") if step not in {"", "."}]
    if ".." in steps:
        raise LinkOutside(errno.EXDEV, "leads out of the folder", target)
    return steps
