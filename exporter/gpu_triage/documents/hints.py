"""Constraints on values, used as arguments of ``Annotated``.

>>> from typing import Annotated
>>> Lanes = Annotated[int, Range(1, 16)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that must match the whole text, and its description for error messages."""

    pattern: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A function that converts the written value; it raises ValueError with the expected syntax.

    `written` is the type hint for the written value. Without it, a ``str`` must be text, a tuple may be a list, and any
    other type is any single value.
    """

    parse: Callable[[Any], Any]
    written: Any = None


@dataclass(frozen=True, slots=True)
class AtMost:
    """Maximum number of entries in a list or table, or of characters in a text."""

    entries: int


@dataclass(frozen=True, slots=True)
class Key:
    name: str


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks a value that error messages must not show."""


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """Alternative tables, each a dataclass: selected by the value of `key`, or if that is "", by a key it contains."""

    key: str
    kinds: Mapping[str, type[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """A table of known, optional keys; read as a dictionary.

    Error messages call a key `noun`, and refer to `listing` for a list of the keys.
    """

    hints: Mapping[str, Any]
    noun: str = "key"
    listing: str = ""
