"""Traces which files below sysfs and procfs are read, and their content over time.

Python's audit hook (``sys.addaudithook``) reports every open and listing, so future readers are recorded without
changes here. Command lines and environments are never recorded, whichever code reads them.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpu_triage.driver.kernel.files import read_text
from gpu_triage.errors import HostReadFailed
from gpu_triage.record.recording import MOST_BYTES, FileState, Kind

_EVENTS: Final = frozenset({"open", "os.listdir", "os.scandir"})
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT  # files opened for writing aren't recorded
_NEVER: Final = frozenset({"cmdline", "environ", "maps", "smaps", "numa_maps", "mem"})
_LINKS: Final = ("proc/self/ns/pid",)  # links that readers resolve without listing their folder
_OF_A_PROCESS: Final = re.compile("proc/[0-9]+/")
_MOST_PATHS: Final = 50_000
_MOST_ENTRIES: Final = 4096
_EMPTY_FILE: Final[tuple[Kind, str]] = ("file", "")
"""A file that was opened, but never read."""
_MOST_STUCK: Final = 8


class FileTrace:
    """Records what is opened and listed, until closed.

    Args:
        roots: root folders by name in the recording, ``sys`` and ``proc``.
        mask: anonymizes file content.
        patience_seconds: timeout for reading a file; a file that exceeds it is skipped from then on.
        sink: receives each state as it comes, instead of storing it in `states`. This bounds memory for continuous
            recording: only files read since the last snapshot are reread.
    """

    def __init__(
        self,
        roots: Mapping[str, Path],
        mask: Callable[[str], str],
        patience_seconds: float,
        sink: Callable[[FileState], None] | None = None,
    ) -> None:
        self._roots = dict(roots)
        self._mask = mask
        self._sink = sink
        # Readers resolve links, so they may use a root's real path instead of the given one.
        self._prefixes = tuple(
            (f"{os.fspath(place)}/", name)
            for name, root in roots.items()
            for place in {root.absolute(), root.resolve()}
        )
        self._touched: dict[str, bool] = {}  # whether it was listed, by path
        self._states: list[FileState] = []
        self._last: dict[str, tuple[Kind, str]] = {}
        self._unread: set[str] = set()  # files seen in a listing but not read so far
        self._known: dict[str, str] = {}  # paths with all links resolved
        self._searched: set[str] = set()
        self._absent: set[str] = set()  # paths that don't exist, not to be retried for a while
        self._bytes = 0
        self._open = True
        self._patience_seconds = patience_seconds
        self._stuck: set[str] = set()
        self._readers: set[int] = set()
        self._lock = threading.Lock()
        # An audit hook can't be removed; it does nothing after close().
        sys.addaudithook(self._hear)

    def snapshot(self, seconds: float) -> None:
        """Reread what was touched so far, and keep what changed; `seconds` is the time since the recording began."""
        with self._lock:
            touched = self._touched
            if self._sink is not None:
                self._touched = {}
            left = [each for each in tuple(touched.items()) if each[0] not in self._stuck]
            while left and len(self._stuck) < _MOST_STUCK:
                left = self._read(left, seconds)
            for path in _LINKS:
                self._keep(seconds, path, self._look(path))

    def states(self) -> tuple[FileState, ...]:
        """The recorded states, in chronological order."""
        return tuple(sorted(self._states, key=lambda state: state.seconds))

    def forget_processes(self) -> tuple[str, ...]:
        """Drop process files until they are read again, and return their paths.

        Also retry paths that didn't exist before.
        """
        with self._lock:
            self._absent.clear()
            gone = tuple(path for path in self._last if _OF_A_PROCESS.match(path))
            for path in gone:
                del self._last[path]
            self._known = {path: real for path, real in self._known.items() if not _OF_A_PROCESS.match(real)}
            self._searched = {path for path in self._searched if not _OF_A_PROCESS.match(f"{path}/")}
            return gone

    def close(self) -> None:
        """Stop recording."""
        self._open = False

    def _read(self, paths: list[tuple[str, bool]], seconds: float) -> list[tuple[str, bool]]:
        """Read these paths; return those after one that hangs, such as a file of a hung device."""
        done: list[str] = []
        abandoned = threading.Event()

        def read() -> None:
            self._readers.add(threading.get_ident())
            try:
                for path, listed in paths:
                    self._take(path, seconds, listed=listed)
                    if abandoned.is_set():
                        return
                    done.append(path)
            finally:
                self._readers.discard(threading.get_ident())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        before = -1
        while len(done) > before:
            before = len(done)
            reader.join(self._patience_seconds)
            if not reader.is_alive():
                return []
        abandoned.set()
        self._stuck.add(paths[before][0])
        return paths[before + 1 :]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Ignore our own reads; other threads continue to read meanwhile.
        if not self._open or event not in _EVENTS or threading.get_ident() in self._readers:
            return
        path = arguments[0]
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES:
            return
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        try:
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - text all along
        except OSError:
            # The working directory is gone. An exception here would surface in the code that opens the file.
            return
        for prefix, root in self._prefixes:
            if name.startswith(prefix) and len(self._touched) < _MOST_PATHS:
                relative = f"{root}/{name[len(prefix) :]}"
                self._touched[relative] = self._touched.get(relative, False) or event != "open"

    def _take(self, path: str, seconds: float, *, listed: bool) -> None:
        real = self._known.get(path)
        before = self._last.get(real) if real is not None and self._sink is not None and not listed else None
        if real is not None and before is not None and before[0] == "file" and real.rpartition("/")[2] not in _NEVER:
            # Fast path: the file is reread every few seconds for weeks, and its kind is known already.
            self._keep(seconds, real, self._content(self._path(real)) or ("gone", ""))
            return
        if path in self._absent:
            return
        real = real or self._walk(path, seconds, listed=listed)
        if real is None and self._sink is not None:
            self._absent.add(path)
        if real is not None and not listed:
            found = self._look(real, content=True)
            self._keep(seconds, real, ("gone", "") if found is None and real in self._last else found)

    def _walk(self, path: str, seconds: float, *, listed: bool) -> str | None:
        """Record links along a path and next to it; return its real path, None if it doesn't exist."""
        for place in _on_the_way(path, self._real):
            self._keep_link(seconds, place)
        real = self._real(path)
        if real is None:
            return None
        self._known[path] = real
        folder = real if listed else os.path.dirname(real)  # noqa: PTH120 - text all along
        # The parent folder as well: a NIC's device link is next to the folder of its ports.
        for beside in (folder, os.path.dirname(folder)):  # noqa: PTH120 - as above
            # Their links, such as drivers, subsystems and physical functions.
            if "/" in beside and beside not in self._searched:
                self._searched.add(beside)
                for name in self._names(beside):
                    self._keep_link(seconds, f"{beside}/{name}")
        if listed:
            for name in self._names(real):
                if f"{real}/{name}" not in self._last:
                    found = self._look(f"{real}/{name}")
                    self._keep(seconds, f"{real}/{name}", found)
                    if found == _EMPTY_FILE:
                        self._unread.add(f"{real}/{name}")
            self._keep(seconds, real, ("folder", ""))
        return real

    def _keep_link(self, seconds: float, path: str) -> None:
        if self._path(path).is_symlink():
            self._keep(seconds, path, self._look(path))

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(folder)))[:_MOST_ENTRIES]  # noqa: PTH208 - names only
        except OSError:
            return []

    def _look(self, path: str, *, content: bool = False) -> tuple[Kind, str] | None:
        """The present state of a path; without `content`, files are recorded as empty."""
        place = self._path(path)
        try:
            if place.is_symlink():
                return ("link", os.fspath(place.readlink()))
            if place.is_dir():
                return ("folder", "")
            if place.name in _NEVER:
                return None
            if not content:
                return _EMPTY_FILE if place.exists() else None
        except OSError:
            return None
        return self._content(place)

    def _content(self, place: Path) -> tuple[Kind, str] | None:
        try:
            text = read_text(place)
        except HostReadFailed:
            return None
        return None if text is None else ("file", self._mask(text))

    def _keep(self, seconds: float, path: str, found: tuple[Kind, str] | None) -> None:
        if found is None or self._last.get(path) == found:
            return
        if self._sink is not None:
            self._last[path] = found
            self._sink(FileState(seconds, path, *found))
            return
        if self._bytes + len(found[1]) > MOST_BYTES:
            return
        self._bytes += len(found[1])
        if path not in self._last or path in self._unread:
            # Assume that the first known state applied from the beginning.
            seconds = 0.0
            self._unread.discard(path)
        self._last[path] = found
        self._states.append(FileState(seconds, path, *found))

    def _real(self, path: str) -> str | None:
        """The path with all links resolved, as named in a recording; None if it doesn't exist, or leaves the root."""
        root, _, rest = path.partition("/")
        base = self._roots[root].resolve()
        try:
            found = (base / rest).resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return f"{root}/{found.relative_to(base)}" if found.is_relative_to(base) and found != base else None

    def _path(self, path: str) -> Path:
        root, _, rest = path.partition("/")
        return self._roots[root] / rest


def _on_the_way(path: str, real: Callable[[str], str | None]) -> Iterator[str]:
    """Each component of a path that may be a link, with the links before it resolved."""
    root, *names = path.split("/")
    folder: str | None = root
    above = root
    for name in names:
        if folder is None:
            return
        yield f"{folder}/{name}"
        above = f"{above}/{name}"
        folder = real(above)
