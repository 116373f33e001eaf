"""Where a line of ``nvidia-smi -q`` belongs, also where a paste has lost the indentation that showed it."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final

from gpu_triage.offline.smi_gpu import known_names

Path = tuple[str, ...]

_DEEPEST: Final = 8  # deeper than any output
PROCESSES: Final = ("processes",)


class Layout:
    """Follows one GPU's lines, and finds the path of each.

    Indentation shows it. A label that stands where the GPU's own labels do may have lost its indentation: it belongs to
    the innermost section before it that has such a label.
    """

    def __init__(self) -> None:
        self._stack: list[tuple[int, str]] = []
        self._context: Path = ()
        self._is_flat = True

    def path(self, indent: int, label: str, *, is_section: bool) -> Path:
        """Path of a label at this column; `is_section`: no value follows it."""
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
        """Whether a label at the margin of the whole output is of this GPU, its indentation lost."""
        return _is_known((label,)) or len(self._without_indentation(label, is_section=is_section)) > 1

    def _without_indentation(self, label: str, *, is_section: bool) -> Path:
        bases = [self._context[:end] for end in range(len(self._context), 0, -1)]
        for base in (*bases, ()):
            if _is_known((*base, label)):
                return (*base, label)
        for base in bases:
            # Where every name counts, as below "Volatile", a section ends the one that is beside it.
            if "/".join(base) + "/" in _known().open_sections or (not is_section and _in_open_section(base)):
                return (*base, label)
        return _known().alone.get(label, (label,)) if self._is_flat and not is_section else (label,)


class _Known:
    """The paths that the text of any driver has, as far as they are read here.

    Attributes:
        alone: the path of each label that stands in one section only.
    """

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
