"""Damage to the simulated kernel's files, put on after each of its refreshes and taken off before the next."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Damage = Callable[[Path], None]
"""Does it to a file or directory, which is moved away first and comes back afterwards."""


def missing(path: Path) -> None:
    """There is none."""
    assert not path.exists()


def unreadable(path: Path) -> None:
    """It cannot be opened: a link in a circle, since root may read whatever its mode says."""
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def junk(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfe\x80 -1 nan \n" * 40)


def enormous(path: Path) -> None:
    """It holds megabytes."""
    path.write_bytes(b"9 " * ((3 << 20) // 2))


def truncated(path: Path) -> None:
    whole = _aside(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@dataclass(frozen=True, slots=True)
class Damaged:
    """Files and what is done to them."""

    pattern: str  # relative to the simulation's directory, as in ``Path.glob``
    damage: Damage  # what is done to each


class Files:
    """The simulated kernel's files, for whoever damages them."""

    def __init__(self, root: Path) -> None:
        self.damaged: tuple[Damaged, ...] = ()  # what is damaged now
        # Paths that match it cannot be opened in any time now; None where all can.
        self.stuck: re.Pattern[str] | None = None
        self._root = root
        self._hurt: list[Path] = []
        self._found: dict[str, list[Path]] = {}

    def hurt(self) -> None:
        for damaged in self.damaged:
            if damaged.pattern not in self._found:
                # Once: looking through all of sysfs takes longer than a second's sampling.
                self._found[damaged.pattern] = sorted(self._root.glob(damaged.pattern))
            for path in self._found[damaged.pattern]:
                if not path.exists():  # its process has ended
                    continue
                path.rename(_aside(path))
                damaged.damage(path)
                self._hurt.append(path)

    def heal(self) -> None:
        for path in reversed(self._hurt):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            _aside(path).rename(path)
        self._hurt.clear()


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.whole")
