"""The facts of one GPU, asked for by the names that nvidia-smi's text and XML of different drivers have for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from gpu_triage.offline import smi_values as values
from gpu_triage.offline.smi_values import Unit

T = TypeVar("T")


class Facts:
    """What is said of a GPU, asked for by the names that text and XML of different drivers have for it.

    Attributes:
        asked: every name that was asked for.
        sections: every section of which all names were asked for.
        unread: what was said under a name that was asked for, in a form that nobody here can read; by name.
    """

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts
        self.asked: set[str] = set()
        self.sections: set[str] = set()
        self.unread: dict[str, str] = {}

    def get(self, *paths: str) -> str | None:
        """The first of these that is said and is a value."""
        return self._first(lambda value: None if values.is_none(value) else value, paths)

    def within(self, low: float, high: float, unit: Unit, *paths: str) -> float | None:
        """The first of these that is a number of this unit, and can be."""

        def parse(value: str) -> float | None:
            found = values.number(value, unit)
            return found if found is not None and low <= found <= high else None

        return self._first(parse, paths)

    def count(self, *paths: str) -> int | None:
        """The first of these that is a count."""
        return self._first(values.count, paths)

    def flag(self, *paths: str) -> bool | None:
        """The first of these that is a yes or no."""
        return self._first(values.flag, paths)

    def text(self, *paths: str) -> str:
        """The first of these that is a name."""
        return self._first(lambda value: values.text(value) or None, paths) or ""

    def choice(self, choices: Mapping[str, T], *paths: str) -> T | None:
        """What stands for the first of these that is one of the words, which are in lower case."""
        return self._first(lambda value: choices.get(values.words(value)), paths)

    def parsed(self, parse: Callable[[str], T | None], *paths: str) -> T | None:
        """The first of these of which `parse` makes something."""
        return self._first(parse, paths)

    def below(self, *sections: str) -> Iterator[tuple[str, str]]:
        """Of what stands in these sections, at any depth: its name in the section, and its whole name."""
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
