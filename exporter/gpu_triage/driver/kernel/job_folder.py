"""Safely open files in a folder that jobs can write to; this process may have more read permissions than they do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from itertools import islice
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import failure

_MOST_LINKS: Final = 8
"""Kubernetes needs two: from the file to ``..data``, and from there to the folder of the current version."""

_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a pipe would block."""

_FOLDER: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_IS_LINK: Final = (errno.ELOOP, errno.ENOTDIR)

MOST_ENTRIES: Final = 10_000
MOST_IN_A_FOLDER: Final = 1000
"""Of a listing, in a folder with its sub-folders and in each of these: it takes up to 50 ms."""


class LinkOutside(OSError):
    """A link that leads out of the folder: to a file that only this process may read, a device, or a dead mount."""


class Folder:
    """A folder with files opened one path component at a time, so that none can be swapped in between (TOCTOU)."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self._path = path
        self._bases = tuple(dict.fromkeys(f"{base}/" for base in (path, os.path.realpath(path))))
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if descriptor is None else descriptor
        self._descriptor = opened

    def close(self) -> None:
        os.close(self._descriptor)

    def open(self, path: str) -> int:
        """Open a file in the folder or a sub-folder for reading, and return its descriptor.

        Links are followed as long as they stay in the folder that they are in. A sub-folder must not be a link.
        """
        folder, _, name = path.rpartition("/")
        if folder:
            with closing(Folder(self._path / folder, os.open(folder, _FOLDER, dir_fd=self._descriptor))) as inside:
                return inside.open(name)
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


class Listing:
    """Lists the files with a suffix in a folder and its sub-folders; names that start with a dot do not count.

    Jobs can make more of them than can be listed in time, so a part is listed each time, from where the last ended.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._rest: Iterator[str] = iter(())

    def next_paths(self) -> set[str]:
        """The paths among the next `MOST_ENTRIES` entries, or among all; an unreadable sub-folder is ``NAME/``."""
        found = list(islice(self._rest, MOST_ENTRIES))
        if len(found) < MOST_ENTRIES:
            try:
                self._rest = self._entries(os.scandir(self._folder), "")
            except OSError as error:
                raise failure(self._folder, error) from error
            found += islice(self._rest, MOST_ENTRIES - len(found))
        return set(found) - {""}

    def _entries(self, listing: AbstractContextManager[Iterator[os.DirEntry[str]]], above: str) -> Iterator[str]:
        """Yield the path of each file, and "" for each other entry."""
        with listing as entries:
            for entry in entries:
                name = "" if entry.name.startswith(".") or entry.name == "lost+found" else entry.name
                listed = name.endswith(self._suffix)
                yield above + name if listed else ""
                if name and not listed and not above and entry.is_dir(follow_symlinks=False):
                    try:
                        yield from islice(self._entries(os.scandir(entry.path), f"{name}/"), MOST_IN_A_FOLDER)
                    except OSError:
                        yield f"{name}/"
