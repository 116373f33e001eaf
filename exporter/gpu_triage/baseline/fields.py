"""The keys of one JSON object, each taken once, as what it should be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

from gpu_triage.errors import BaselineError

T = TypeVar("T")

_MOST_CHARACTERS: Final = 256
_MOST_ENTRIES: Final = 1024
_MOST_NUMBER: Final = 1e18


class Fields:
    """One object of a baseline; a key that nobody takes is an error, found by `finish`.

    Attributes:
        where: the object's place in the file, for messages: ``gpus[0].pcie``; "" for the whole.
    """

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._raw = raw
        self._taken: set[str] = set()

    @classmethod
    def of(cls, raw: object, where: str) -> Fields:
        """The fields of a JSON value.

        Raises:
            BaselineError: it is no object, or a huge one.
        """
        if not isinstance(raw, dict):
            raise BaselineError("malformed", f"{where or 'the file'}: is no JSON object; record the baseline anew")
        if len(raw) > _MOST_ENTRIES:
            raise BaselineError("malformed", f"{where or 'the file'}: has more than {_MOST_ENTRIES} keys")
        return cls(raw, where)

    def finish(self, ignored: Collection[str] = ()) -> None:
        """Refuse keys that nobody took.

        Raises:
            BaselineError: there are any, but for those ignored.
        """
        unknown = sorted(set(self._raw) - self._taken - set(ignored))
        if unknown:
            raise BaselineError("malformed", f"{self._place(unknown[0][:80])}: is unknown; leave it out")

    def names(self) -> tuple[str, ...]:
        """The keys, each of which is checked as text would be."""
        for name in self._raw:
            self._checked_text(name, name)
        return tuple(self._raw)

    def required(self, name: str, value: T | None) -> T:
        """A value that must be there.

        Raises:
            BaselineError: it is not.
        """
        if value is None:
            raise BaselineError("malformed", f"{self.where}{'.' * bool(self.where)}{name}: is missing; record it anew")
        return value

    def text(self, name: str) -> str | None:
        """Printable text of at most 256 characters."""
        value = self._take(name)
        return None if value is None else self._checked_text(name, value)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._refusal(name, value, "true or false")

    def integer(self, name: str, least: int, most: int) -> int | None:
        """A whole number from `least` to `most`."""
        value = self._take(name)
        return None if value is None else self._checked_integer(name, value, least, most)

    def integers(self, name: str, least: int, most: int) -> tuple[int, ...] | None:
        """A list of such numbers, in order and each once."""
        values = self.array(name, _MOST_ENTRIES) if name in self._raw else None
        return (
            None
            if values is None
            else tuple(sorted({self._checked_integer(name, value, least, most) for value in values}))
        )

    def number(self, name: str) -> float:
        """A number that is not negative.

        Raises:
            BaselineError: there is none.
        """
        value = self._take(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST_NUMBER:
            return float(value)
        raise self._refusal(name, value, "a number that is not negative")

    def numbers(self, name: str) -> Mapping[str, float] | None:
        """Numbers by name, none negative."""
        table = self.optional_table(name)
        if table is None:
            return None
        return {key: table.number(key) for key in table.names()}

    def texts(self, name: str) -> Mapping[str, str] | None:
        """Texts by name."""
        table = self.optional_table(name)
        if table is None:
            return None
        return {key: table.required(key, table.text(key)) for key in table.names()}

    def array(self, name: str, most: int) -> list[Any]:
        """A list of at most so many entries.

        Raises:
            BaselineError: it is missing, no list, or longer.
        """
        value = self._take(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._refusal(name, value, f"a list of at most {most}")
        return list(value)

    def table(self, name: str) -> Fields:
        """An object.

        Raises:
            BaselineError: it is missing, or none.
        """
        return Fields.of(self._take(name), self._place(name))

    def optional_table(self, name: str) -> Fields | None:
        """An object; None where there is no such key."""
        return self.table(name) if name in self._raw else None

    def _take(self, name: str) -> Any:
        self._taken.add(name)
        return self._raw.get(name)

    def _place(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def _checked_text(self, name: str, value: Any) -> str:
        if isinstance(value, str) and len(value) <= _MOST_CHARACTERS and value.isprintable():
            return value
        raise self._refusal(name[:80], value, f"text of at most {_MOST_CHARACTERS} printable characters")

    def _checked_integer(self, name: str, value: Any, least: int, most: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise self._refusal(name, value, f"a whole number from {least} to {most}")

    def _refusal(self, name: str, value: Any, right: str) -> BaselineError:
        shown = repr(value)
        shown = f"{shown[:37]}…" if len(shown) > 40 else shown  # noqa: PLR2004 - what a line has room for
        return BaselineError("malformed", f"{self._place(name)}: is {shown}; write {right}")
