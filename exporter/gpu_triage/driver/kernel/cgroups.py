"""Locate the cgroups of a process: v1, v2, and hybrid hosts with both.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/cgroups.html
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.files import is_present, names_in, text_of

_MOST_LEVELS: Final = 16
_MOST_SEARCHED: Final = 2048
_OUTSIDE: Final = ".."


class Place(NamedTuple):
    """A cgroup in one hierarchy, a folder in ``/sys/fs/cgroup`` ("" for v2).

    The path is as in ``/proc/PID/cgroup``; a leading ``/..`` means it is outside the reader's cgroup namespace.
    """

    hierarchy: str
    path: str


class Membership(NamedTuple):
    """The cgroups of one process: in v2, and in v1 those that limit CPU time and memory; None where it has none."""

    unified: Place | None = None
    cpu: Place | None = None
    memory: Place | None = None


def hierarchies(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield hierarchy ID, controllers and path of each line of ``/proc/PID/cgroup``; other lines are skipped."""
    for line in text.split("\n"):
        match line.split(":", 2):
            case hierarchy, controllers, path:
                yield hierarchy, controllers, path


def parse_membership(text: str) -> Membership:
    """Parse ``/proc/PID/cgroup`` (lines ``hierarchy:controllers:path``)."""
    found: dict[str, Place] = {}
    for hierarchy, controllers, path in hierarchies(text):
        if path.startswith("/"):
            names = controllers.split(",") if controllers else ["unified"] if hierarchy == "0" else []
            found |= {name: Place(controllers, path) for name in names}
    return Membership(found.get("unified"), found.get("cpu"), found.get("memory"))


def levels(path: str) -> tuple[str, ...]:
    """A cgroup and its parents, innermost first, without the root: the limits of all of them apply."""
    names = [name for name in path.split("/") if name]
    return tuple("/" + "/".join(names[:end]) for end in range(len(names), 0, -1))[:_MOST_LEVELS]


class CgroupFolders:
    """Maps the cgroup paths in a procfs to folders in a sysfs.

    If the reader has its own cgroup namespace, as in containers, paths are relative to the reader's cgroup: a neighbor
    is ``/../../podX/Y``. If the sysfs is the host's, the missing prefix is found once, by searching for a folder that
    ends with the rest of the path and contains the process.
    """

    def __init__(self, procfs: Path, sysfs: Path) -> None:
        self._procfs = procfs
        self._root = sysfs / "fs" / "cgroup"
        self._shared: dict[int, str] = {}  # prefix of the reader's own path, by number of path components
        self._missing: dict[str, int] = {}  # failed searches by path

    def root(self, hierarchy: str) -> Path | None:
        """Folder of a hierarchy; None where it is not mounted."""
        if hierarchy:
            return next(
                (self._root / n for n in (hierarchy, *hierarchy.split(",")) if is_present(self._root / n)), None
            )
        unified = self._root, self._root / "unified"
        return next((root for root in unified if is_present(root / "cgroup.controllers")), None)

    def path(self, place: Place, pid: int) -> str | None:
        """Path of a process's cgroup relative to the hierarchy's folder; None if not visible there."""
        root = self.root(place.hierarchy)
        if root is None:
            return None
        names = [name for name in place.path.split("/") if name]
        above = names.count(_OUTSIDE)
        if not above:
            return place.path if is_present(root / place.path.lstrip("/")) else None
        if names[:above] != [_OUTSIDE] * above:
            return None
        rest = "/".join(names[above:])
        shared = self._own_depth(place.hierarchy) - above
        if shared < 0:
            return None
        start = self._shared.get(shared) if shared else ""
        if start is None or not _has(root / start / rest, pid):
            start = self._search(root, shared, rest, pid)
        if start is None:
            return None
        self._shared[shared] = start
        return f"/{start}/{rest}".replace("//", "/")

    def _own_depth(self, hierarchy: str) -> int:
        """Number of components in the reader's own cgroup path, derived from the ``..`` components of process 1's path.

        Process 1 is in the root cgroup, or in ``/init.scope`` under systemd.
        """
        for number, controllers, path in hierarchies(text_of(self._procfs / "1" / "cgroup")):
            if controllers == hierarchy and (hierarchy or number == "0"):
                return path.split("/").count(_OUTSIDE)
        return 0

    def _search(self, root: Path, depth: int, rest: str, pid: int) -> str | None:
        if self._missing.get(rest, 0) > 1 or not rest:
            return None
        starts, searched = [""], 0
        for _ in range(depth):
            starts = [
                f"{start}/{name}".lstrip("/") for start in starts for name in names_in(root / start, folders=True)
            ]
            searched += len(starts)
            if searched > _MOST_SEARCHED:
                break
        found = next((start for start in starts[:_MOST_SEARCHED] if _has(root / start / rest, pid)), None)
        if found is None:
            if len(self._missing) > _MOST_SEARCHED:
                self._missing.clear()
            self._missing[rest] = self._missing.get(rest, 0) + 1
        return found


def _has(folder: Path, pid: int) -> bool:
    return str(pid) in text_of(folder / "cgroup.procs").split()


NO_CGROUPS: Final = Membership()  # for a process with unreadable cgroups
