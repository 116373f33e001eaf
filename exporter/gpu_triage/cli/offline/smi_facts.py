"""Access to the facts of one GPU under the names used by nvidia-smi's text and XML output, across driver versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from gpu_triage.cli.offline import smi_values as values
from gpu_triage.cli.offline.smi_values import Unit

T = TypeVar("T")


class Facts:
    """The facts of a GPU. Methods take all names of a fact, across output formats and driver versions.

    Attributes:
        asked: every name that was looked up.
        sections: every section that was looked up as a whole.
        unread: values found under a known name that could not be parsed, by name.
    """

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts
        self.asked: set[str] = set()
        self.sections: set[str] = set()
        self.unread: dict[str, str] = {}

    def get(self, *paths: str) -> str | None:
        """The first of these with a value."""
        return self._first(lambda value: None if values.is_none(value) else value, paths)

    def within(self, low: float, high: float, unit: Unit, *paths: str) -> float | None:
        """The first of these that is a number in this unit and within range."""

        def parse(value: str) -> float | None:
            found = values.number(value, unit)
            return found if found is not None and low <= found <= high else None

        return self._first(parse, paths)

    def count(self, *paths: str) -> int | None:
        """The first of these that is a nonnegative integer."""
        return self._first(values.count, paths)

    def flag(self, *paths: str) -> bool | None:
        """The first of these that is a boolean."""
        return self._first(values.flag, paths)

    def text(self, *paths: str) -> str:
        """The first of these that is a name; "" if none."""
        return self._first(lambda value: values.text(value) or None, paths) or ""

    def choice(self, choices: Mapping[str, T], *paths: str) -> T | None:
        """The value in `choices` for the first of these that is one of its keys, which are in lower case."""
        return self._first(lambda value: choices.get(values.normalized(value)), paths)

    def parsed(self, parse: Callable[[str], T | None], *paths: str) -> T | None:
        """The first of these that `parse` accepts."""
        return self._first(parse, paths)

    def below(self, *sections: str) -> Iterator[tuple[str, str]]:
        """Each fact at any depth in these sections: its name relative to the section, and its full name."""
        self.sections.update(sections)
        for path in self._facts:
            section = next((section for section in sections if path.startswith(section)), None)
            if section is not None:
                yield path.removeprefix(section), path

    def _first(self, parse: Callable[[str], T | None], paths: tuple[str, ...]) -> T | None:
        self.asked.update(paths)
        for path in paths:
            value = self._facts.get(path)
            if value is None:
                continue
            found = parse(value)
            if found is not None:
                return found
            if not values.is_none(value):
                self.unread[path] = value
        return None
