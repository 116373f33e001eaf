"""Finds the section a line of ``nvidia-smi -q`` belongs to, even if pasting lost the indentation."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final

from gpu_triage.cli.offline.smi_gpu import known_names

Path = tuple[str, ...]

_DEEPEST: Final = 8  # deeper than in any output
PROCESSES: Final = ("processes",)


class Layout:
    """Tracks the lines of one GPU and finds the path of each.

    The path follows from the indentation. A label at the GPU's own level may have lost its indentation: then it belongs
    to the innermost preceding section that is known to contain such a label.
    """

    def __init__(self) -> None:
        self._stack: list[tuple[int, str]] = []
        self._context: Path = ()
        self._is_flat = True

    def path(self, indent: int, label: str, *, is_section: bool) -> Path:
        """The path of a label at this column; `is_section`: the label has no value."""
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        if len(self._stack) < _DEEPEST:
            self._stack.append((indent, label))
        path = tuple(each for _, each in self._stack)
        self._is_flat = self._is_flat and len(path) == 1
        if len(path) == 1:
            path = self._without_indentation(label, is_section=is_section)
        if is_section:
            self._context = path
        elif len(path) > 1 or _is_known(path):
            self._context = path[:-1]
        return path

    def belongs(self, label: str, *, is_section: bool) -> bool:
        """Whether an unindented label belongs to this GPU and lost its indentation."""
        return _is_known((label,)) or len(self._without_indentation(label, is_section=is_section)) > 1

    def _without_indentation(self, label: str, *, is_section: bool) -> Path:
        bases = [self._context[:end] for end in range(len(self._context), 0, -1)]
        for base in (*bases, ()):
            if _is_known((*base, label)):
                return (*base, label)
        for base in bases:
            # In sections that accept any name, such as "Volatile", a new section ends the previous sibling.
            if "/".join(base) + "/" in _known().open_sections or (not is_section and _in_open_section(base)):
                return (*base, label)
        return _known().alone.get(label, (label,)) if self._is_flat and not is_section else (label,)


class _Known:
    """The paths known from the text output of any driver; `alone` is that of each label that only one section has."""

    def __init__(self) -> None:
        names, sections = known_names()
        paths = {tuple(name.split("/")) for name in names}
        self.open_sections = {section for section in sections if "_" not in section}
        paths |= {tuple(section.rstrip("/").split("/")) for section in self.open_sections}
        paths |= {PROCESSES, *((*PROCESSES, label) for label in ("process id", "type", "name", "used gpu memory"))}
        self.paths = {path[:end] for path in paths for end in range(1, len(path) + 1)}
        ends = Counter(path[-1] for path in self.paths)
        self.alone = {path[-1]: path for path in paths if ends[path[-1]] == 1}


@cache
def _known() -> _Known:
    return _Known()


def _is_known(path: Path) -> bool:
    return path in _known().paths


def _in_open_section(path: Path) -> bool:
    return any(("/".join(path) + "/").startswith(section) for section in _known().open_sections)
