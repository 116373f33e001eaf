"""Strict reading of TOML tables into frozen dataclasses: a key nobody reads is an error, never ignored."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpu_triage.errors import ConfigError, ScenarioError
from gpu_triage.given import read_document

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]+[dhms])+")


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Matching:
    """A pattern that a whole string must match, and how to say so."""

    pattern: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Duration:
    """Marks whole seconds, written as a number or as ``"1h30m"``."""


Ratio = Annotated[float, Between(0.0, 1.0)]
Amount = Annotated[float, Between(0.0, 1e18)]
Count = Annotated[int, Between(0, 2**40)]
Seconds = Annotated[int, Duration()]
BusId = Annotated[
    str,
    Matching(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", 'a PCI address such as "0000:65:00.0", in lower case'),
]
CpuList = Annotated[str, Matching(r"\d+(-\d+)?(,\d+(-\d+)?)*", 'a CPU list such as "0-31,64-95"')]


def read_toml(path: Path) -> dict[str, Any]:
    """The top table of a TOML file.

    Raises:
        ScenarioError: the file cannot be read, is no regular file or too large, or is not TOML.
    """
    try:
        return tomllib.loads(read_document(str(path)).decode("utf-8"))
    except ConfigError as error:
        raise ScenarioError(str(error)) from error
    except RecursionError as error:
        raise ScenarioError(f"{path}: not valid TOML: nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: not valid TOML: {error}") from error


def read_table(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of dataclass `cls` from a TOML table; `where` names the file and the key for messages.

    Raises:
        ScenarioError: an unknown or missing key, or a value of the wrong type or out of bounds.
    """
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # T is a dataclass
    for key in table:
        if key not in fields:
            raise ScenarioError(f"{where}: unknown key {key!r}{_suggestion(key, list(fields))}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = read_value(hints[name], table[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ScenarioError(f"{where}: key {name!r} is missing; it is {_describe(hints[name])}")
    return cls(**values)


def read_value(hint: Any, value: Any, where: str) -> Any:
    """`value` checked against, and converted to, a type hint made of the types of this module.

    Raises:
        ScenarioError: it does not fit.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        return _annotated(hint, value, where)
    if origin in (Union, types.UnionType):
        (inner,) = [arg for arg in get_args(hint) if arg is not types.NoneType]
        return read_value(inner, value, where)
    if origin is Literal:
        if value in get_args(hint) and not isinstance(value, bool):
            return value
        raise _wrong(where, value, hint)
    if origin is tuple:
        return _array(hint, value, where)
    if origin is dict or dataclasses.is_dataclass(hint):
        return _table(hint, value, where)
    return _plain(hint, value, where)


def _table(hint: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ScenarioError(f"{where}: is {value!r}; it should be a table")
    if dataclasses.is_dataclass(hint):
        return read_table(hint, value, where)  # type: ignore[arg-type]  # a class, never an instance
    return {key: read_value(get_args(hint)[1], item, f"{where}.{key}") for key, item in value.items()}


def _plain(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise _wrong(where, value, hint)


def _array(hint: Any, value: Any, where: str) -> tuple[Any, ...]:
    args = get_args(hint)
    if not isinstance(value, list):
        raise _wrong(where, value, hint)
    kinds = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
    if len(kinds) != len(value):
        raise ScenarioError(f"{where}: has {len(value)} values; it should have {len(kinds)}")
    pairs = zip(kinds, value, strict=True)
    return tuple(read_value(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def _annotated(hint: Any, value: Any, where: str) -> Any:
    base, rule = get_args(hint)
    if isinstance(rule, Duration):
        return _duration(value, where)
    plain = read_value(base, value, where)
    if isinstance(rule, Between) and not rule.low <= plain <= rule.high:
        raise _wrong(where, value, hint)
    if isinstance(rule, Matching) and not re.fullmatch(rule.pattern, plain):
        raise _wrong(where, value, hint)
    return plain


def _duration(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", value))
    raise ScenarioError(f'{where}: is {value!r}; it should be a duration such as "90s", "10m" or "1h30m"')


def _wrong(where: str, value: Any, hint: Any) -> ScenarioError:
    return ScenarioError(f"{where}: is {value!r}; it should be {_describe(hint)}")


def _describe(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        base, rule = get_args(hint)
        if isinstance(rule, Between):
            return f"{_describe(base)} from {rule.low:g} to {rule.high:g}"
        return rule.meaning if isinstance(rule, Matching) else "a duration"
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    if origin is tuple:
        return "an array of " + _describe(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return _describe(get_args(hint)[0])
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(hint, "a table")


def _suggestion(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
