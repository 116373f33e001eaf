"""Converts plain values to types given by hints: dataclasses, tuples, tables, text, numbers and booleans.

Constraints are arguments of ``Annotated``: ``Annotated[int, Range(1, 16)]``. YAML scalars are text until a hint
requires another type. All mistakes in a document are reported at once.
"""

import dataclasses
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from gpu_triage.documents.place import Place, Text, nearest, quoted, suggestion
from gpu_triage.errors import DocumentError


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
    """A table of known, optional keys, read as a dictionary; messages call one `noun`, and name `listing` for all."""

    hints: Mapping[str, Any]
    noun: str = "key"
    listing: str = ""


T = TypeVar("T")

MOST_PROBLEMS: Final = 20
"""The most mistakes reported per document."""

_Rules = tuple[Any, ...]
_Problem = tuple[tuple[str | int, ...], str]
"""The path of keys to a value, and the message about it."""

_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_TRUTHS: Final = {"true": True, "false": False}
_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class _Wrong(Exception):
    """Invalid values: either this one with a reason, or several below it."""

    def __init__(self, reason: str, *below: _Problem) -> None:
        super().__init__()
        self.problems = below or (((), reason),)


@overload
def read_value(hint: type[T], value: Any, where: Place) -> T: ...


@overload
def read_value(hint: Any, value: Any, where: Place) -> Any: ...


def read_value(hint: Any, value: Any, where: Place) -> Any:
    """Convert the value at `where` by a type hint. Raises DocumentError with all mistakes, up to `MOST_PROBLEMS`."""
    try:
        return _read(hint, value)
    except _Wrong as wrong:
        # The document as a whole has the line number of its first value.
        first = value[0] if isinstance(value, list) and value else value
        whole = where if where.line else Place(where.file, where.key, getattr(first, "line", None))
        problems = wrong.problems[:MOST_PROBLEMS]
        raise DocumentError(*(f"{where.at(*keys) if keys else whole}: {what}" for keys, what in problems)) from None


def _read(hint: Any, value: Any) -> Any:
    """Convert a value according to its hint; raises _Wrong."""
    bare, rules, optional = _parts(hint)
    if optional and value is None:
        return None
    if any(isinstance(rule, Parsed) for rule in rules):
        return _parsed(bare, rules, value)
    if isinstance(bare, type) and dataclasses.is_dataclass(bare):
        return _instance(bare, value)
    if isinstance(bare, Keyed):
        return dict(_each((key, partial(_entry, bare, key, item)) for key, item in _table(value).items()))
    if isinstance(bare, Tagged):
        return _tagged(bare, value)
    for rule in rules if isinstance(value, (list, dict)) else ():
        if isinstance(rule, AtMost) and len(value) > rule.entries:
            raise _Wrong(f"has {len(value)} entries; write at most {rule.entries}")
    read = {tuple: _tuple, dict: _dict, Mapping: _dict}.get(get_origin(bare))
    return _scalar(bare, rules, value) if read is None else read(bare, value)


# Bounded, because the hints for rule settings are recreated for each document.
@lru_cache(maxsize=256)
def _parts(hint: Any) -> tuple[Any, _Rules, bool]:
    """The bare type of a hint, its constraints, and whether it may be None."""
    rules: _Rules = ()
    optional = False
    while get_origin(hint) in (Annotated, Union, types.UnionType):
        first, *rest = get_args(hint)
        if get_origin(hint) is Annotated:
            rules = (*rest, *rules)
        else:
            optional = types.NoneType in rest
        hint = first
    return next((rule for rule in rules if isinstance(rule, (Keyed, Tagged))), hint), rules, optional


def _each(entries: Iterable[tuple[str | int, Callable[[], Any]]]) -> list[Any]:
    """Call the readers of a table's or list's entries, and return the results or raise all of their problems."""
    problems: list[_Problem] = []
    found = []
    for key, read in entries:
        try:
            found.append(read())
        except _Wrong as wrong:
            problems.extend(((key, *keys), what) for keys, what in wrong.problems)
        if len(problems) >= MOST_PROBLEMS:
            break
    if problems:
        raise _Wrong("", *problems)
    return found


def _instance(cls: Any, value: Any) -> Any:
    known, names, required = _fields(cls)
    table = _table(value)
    present = [(key, partial(_entry, known, key, item)) for key, item in table.items()]
    absent = [(key, partial(_miss, known.hints[key])) for key in required if key not in table]
    return cls(**{names[key]: each for key, each in _each([*present, *absent])})


@cache
def _fields(cls: Any) -> tuple[Keyed, Mapping[str, str], tuple[str, ...]]:
    """A dataclass's hints and field names by key, and the keys that are required."""
    hints = get_type_hints(cls, include_extras=True)
    fields = {_key(field.name, hints[field.name]): field for field in dataclasses.fields(cls)}
    missing = dataclasses.MISSING
    required = (key for key, each in fields.items() if each.default is missing and each.default_factory is missing)
    names = {key: field.name for key, field in fields.items()}
    return Keyed({key: hints[name] for key, name in names.items()}), names, tuple(required)


def _key(name: str, hint: Any) -> str:
    return next((rule.name for rule in _parts(hint)[1] if isinstance(rule, Key)), name)


def _miss(hint: Any) -> NoReturn:
    raise _Wrong(f"is missing; write {_described(hint)}")


def _entry(known: Keyed, key: str, item: Any) -> tuple[str, Any]:
    if key not in known.hints:
        raise _Wrong(f"unknown {known.noun}; {suggestion(key, known.hints, known.listing)}")
    return str(key), _read(known.hints[key], item)


def _tagged(hint: Tagged, value: Any) -> Any:
    table = dict(_table(value))
    kind = table.pop(hint.key, None) if hint.key else next((key for key in hint.kinds if key in table), None)
    if not isinstance(kind, str) or kind not in hint.kinds:
        right = suggestion(kind if isinstance(kind, str) else "", hint.kinds)
        what = f"{'is missing; ' if kind is None else _shown(kind)}{right}"
        raise _Wrong("", ((hint.key,) if hint.key else (), what))
    return _instance(hint.kinds[kind], table)


def _dict(hint: Any, value: Any) -> dict[str, Any]:
    names, kind = get_args(hint)

    def entry(key: str, item: Any) -> tuple[str, Any]:
        # The path in the message shows the key, so Secret avoids repeating it.
        return _read(Annotated[names, Secret()], key), _read(kind, item)

    return dict(_each((key, partial(entry, key, item)) for key, item in _table(value).items()))


def _table(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Wrong("is not a table; write keys and values below it")
    return value


def _tuple(hint: Any, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _Wrong(f"{_shown(value)}write {_described(hint)}")
    kinds = get_args(hint)
    each = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
    if len(each) != len(value):
        raise _Wrong(f"has {len(value)} values; write {len(each)}")
    return tuple(_each((i, partial(_read, kind, value[i])) for i, kind in enumerate(each)))


def _parsed(hint: Any, rules: _Rules, value: Any) -> Any:
    if value is None:
        raise _Wrong("has no value; write one or leave the key out")
    parsers = [rule for rule in rules if isinstance(rule, Parsed)]
    if parsers[0].written:
        found = _read(parsers[0].written, value)
    elif hint is str:
        found = _scalar(str, rules, value)
    elif isinstance(value, (dict, list)) and get_origin(hint) is not tuple:
        raise _Wrong(f"{_shown(value)}write one value")
    else:
        found = value
    for rule in parsers:
        try:
            found = rule.parse(found)
        except ValueError as error:
            raise _Wrong(f"{_shown(value, rules)}{error}") from error
    return found


def _scalar(hint: Any, rules: _Rules, value: Any) -> Any:
    if value is None:
        raise _Wrong(f"has no value; write {_described(hint, rules)} or leave the key out")
    plain = None if isinstance(value, (dict, list)) else _plain(hint, value)
    if plain is None or not all(_obeys(plain, rule) for rule in rules):
        choices = get_args(hint) if isinstance(value, str) else ()
        close = nearest(value, map(str, choices)) if choices else None
        right = f"did you mean {close}?" if close else f"write {_described(hint, rules)}"
        raise _Wrong(f"{_shown(value, rules)}{right}")
    return plain


def _plain(hint: Any, value: Any) -> Any:
    """The value if it has this type, else None; YAML text is converted."""
    if get_origin(hint) is Literal:
        return value if value in get_args(hint) and not isinstance(value, bool) else None
    if isinstance(value, Text):
        value = _of_text(hint, value)
    if isinstance(value, bool):
        return value if hint is bool else None
    if hint is float:
        # Not NaN, infinity, and whole numbers of hundreds of digits.
        return float(value) if isinstance(value, (int, float)) and abs(value) <= sys.float_info.max else None
    return value if isinstance(value, hint) else None


def _of_text(hint: Any, text: Text) -> Any:
    if hint is bool:
        return _TRUTHS.get(text.lower())
    if hint is int:
        return int(text) if _WHOLE_NUMBER.fullmatch(text) else None
    if hint is float:
        return float(text) if _NUMBER.fullmatch(text) else None
    return str(text)


def _obeys(value: Any, rule: Any) -> bool:
    if isinstance(rule, Range):
        return bool(rule.low <= value <= rule.high)
    if isinstance(rule, AtMost):
        return len(value) <= rule.entries
    return not isinstance(rule, Pattern) or re.fullmatch(rule.pattern, value) is not None


def _shown(value: Any, rules: _Rules = ()) -> str:
    if isinstance(value, (dict, list)):
        return f"is a {'table' if isinstance(value, dict) else 'list'}; "
    if any(isinstance(rule, Secret) for rule in rules):
        return ""
    return f"is {quoted(value) if isinstance(value, str) else quoted(str(value))[1:-1]}; "


def _described(hint: Any, rules: _Rules = ()) -> str:
    hint, found, _ = _parts(hint)
    for rule in (*found, *rules):
        if isinstance(rule, Range):
            return f"{_described(hint)} from {rule.low:g} to {rule.high:g}"
        if isinstance(rule, Pattern):
            return rule.meaning
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(hint))
    return "a list" if get_origin(hint) is tuple else _NAMES.get(hint, "a table")
