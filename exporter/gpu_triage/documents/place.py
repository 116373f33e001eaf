"""Positions in documents, and errors about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gpu_triage.errors import DocumentError

_LONGEST_SHOWN: Final = 60
_MOST_LISTED: Final = 16


class Text(str):
    """A YAML key or value as written, with its line; not as a type (``no`` is false, ``1:30`` is 90, ``010`` is 8)."""

    __slots__ = ("line",)
    line: int


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a value in messages: file, path of keys, and the key's line number if the parser provides it.

    >>> str(Place("host.toml").at("machine", "node", 0, "cpus"))
    'host.toml: machine.node[0].cpus'
    """

    file: str
    key: str = ""
    line: int | None = None

    def at(self, *parts: str | int) -> Place:
        key, line = self.key, self.line
        for part in parts:
            if isinstance(part, int):
                key = f"{key}[{part}]"
            else:
                key = f"{key}.{_plain(part)}" if key else _plain(part)
                line = getattr(part, "line", line)
        return Place(self.file, key, line)

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}"
        return ": ".join(part for part in (self.file, line, self.key) if part)

    def error(self, message: str) -> DocumentError:
        return DocumentError(f"{self}: {message}")


def quoted(text: str) -> str:
    """The text quoted for a message: on one line, with unprintable characters escaped, and truncated if long."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


def printable(text: str) -> str:
    """The text with nonprintable characters escaped, so that it stays on one line and cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _plain(key: str) -> str:
    return str(key) if key and key.isprintable() and " " not in key and len(key) <= _LONGEST_SHOWN else quoted(key)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed after a mistake; saves memory in the daemon

    return next(iter(get_close_matches(word, known, n=1)), None)


def suggestion(key: str, known: Iterable[str], otherwise: str = "") -> str:
    """What to write instead of an unknown key: the most similar one, all of them, or if too many, where to look."""
    names = list(known)
    if close := nearest(key, names):
        return f"did you mean {close}?"
    return otherwise if otherwise and len(names) > _MOST_LISTED else f"known are {', '.join(names) or 'none'}"


@contextmanager
def raised_as(kind: type[DocumentError]) -> Iterator[None]:
    """Convert a DocumentError to a more specific type."""
    try:
        yield
    except kind:
        raise
    except DocumentError as error:
        raise kind(*error.problems, reason=error.reason) from error
