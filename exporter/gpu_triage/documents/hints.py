"""What a type hint says of a value beyond its type: rules, as arguments of ``Annotated``.

>>> from typing import Annotated
>>> Lanes = Annotated[int, Between(1, 16)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Matching:
    """A pattern that the whole text must match, and the words for it in an error message."""

    pattern: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A function that makes the value of what is written; it raises ValueError saying what would be right.

    `written` is the hint of what is written. Without it, that is text for ``str``, may be a list for a tuple, and is
    any single value for another type.
    """

    parse: Callable[[Any], Any]
    written: Any = None


@dataclass(frozen=True, slots=True)
class AtMost:
    """Most entries of a list or table, or characters of a text."""

    entries: int


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field whose name is another."""

    name: str


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks a value that no message may show."""


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """Tables of several kinds, each read as a dataclass: its kind is the value of `key`; with "", a key that it has."""

    key: str
    kinds: Mapping[str, type[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """A table of known keys, each of which may be left out; read as a dictionary.

    Messages call a key `noun`, and say with `listing` where the keys are listed.
    """

    hints: Mapping[str, Any]
    noun: str = "key"
    listing: str = ""
