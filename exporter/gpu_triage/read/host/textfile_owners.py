"""Determine the owner of each job file from its location, and divide limited space fairly between owners."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from gpu_triage.driver.kernel.files import read_names
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.textfile import FOLDER_NAME, MAX_VALUE_BYTES

_SUFFIX: Final = ".prom"
_OF_THE_FILE_SYSTEM: Final = "lost+found"
_OTHERS_CAN_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_T = TypeVar("_T")


class JobFile(NamedTuple):
    """One file below the directory, in a sub-folder ("" for none); its owner is a user or that sub-folder."""

    owner: str
    folder: str
    name: str

    @property
    def path(self) -> str:
        """Path relative to the directory."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def find_files(directory: Path, user_names: Mapping[int, str], failures: list[str]) -> Iterator[JobFile]:
    """Yield the ``*.prom`` files in a directory and its sub-folders; names that start with a dot are ignored.

    A sub-folder is treated as made for a job, and owns its files, if it belongs to the directory's owner or others
    cannot write to the directory. All other files and sub-folders belong to the user who made them. So do links:
    linking to another user's file only republishes it under the linking user's name. Users without a name become
    ``uid:1000``, which cannot be the name of a sub-folder. Each sub-folder that is skipped is a FOLDER_NAME failure.

    Raises:
        HostReadFailed: the directory is missing or cannot be read.
    """
    names, above = read_names(directory), _status(directory, follow_links=True)
    if names is None or above is None:
        raise HostReadFailed("missing", directory, "no such directory; jobs' metrics are not published")
    for name in names:
        status = None if name.startswith(".") or name == _OF_THE_FILE_SYSTEM else _status(directory / name)
        if status is None:
            continue
        user = user_names.get(status.st_uid, f"uid:{status.st_uid}")[:MAX_VALUE_BYTES]
        if name.endswith(_SUFFIX):
            yield JobFile(user, "", name)
        elif stat.S_ISDIR(status.st_mode):
            of_a_job = status.st_uid == above.st_uid or not above.st_mode & _OTHERS_CAN_WRITE
            inside = _names_in(directory / name)
            if inside and of_a_job and not _can_be_label(name):
                failures.append(FOLDER_NAME)
                continue
            for each in inside:
                yield JobFile(name if of_a_job else user, name, each)


def fairly(items: Iterable[_T], owner_of: Callable[[_T], str], cost_of: Callable[[_T], float]) -> list[_T]:
    """Sort items by their owner's cumulative cost up to and including each item.

    Filling limited space in this order gives each of n owners 1/n of it, and distributes what some owners do not use.
    """
    taken: dict[str, float] = defaultdict(float)
    placed: list[tuple[float, _T]] = []
    for item in items:
        taken[owner_of(item)] += cost_of(item)
        placed.append((taken[owner_of(item)], item))
    return [item for _, item in sorted(placed, key=itemgetter(0))]


def _names_in(folder: Path) -> list[str]:
    """Names of the files in a sub-folder; if unreadable, one empty name, which fails to open and reports an error."""
    try:
        names = read_names(folder) or []
    except HostReadFailed:
        return [""]
    return [name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]


def _can_be_label(name: str) -> bool:
    return name.isprintable() and ":" not in name and len(os.fsencode(name)) <= MAX_VALUE_BYTES


def _status(path: Path, *, follow_links: bool = False) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=follow_links)
    except OSError:
        return None  # removed since the directory was listed
