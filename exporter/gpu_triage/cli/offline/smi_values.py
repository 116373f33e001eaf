"""Parses nvidia-smi's words and units. None is returned for missing values such as ``N/A`` or ``ERR!``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class Unit(Enum):
    """The quantity that a number measures."""

    COUNT = auto()
    WATTS = auto()
    CELSIUS = auto()
    HERTZ = auto()
    RATIO = auto()
    BYTES = auto()
    SECONDS = auto()


_NUMBER: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%/()]{0,12})")
_UNITS: Final[Mapping[Unit, Mapping[str, float]]] = MappingProxyType(
    {
        Unit.COUNT: {"": 1.0, "x": 1.0, "bank(s)": 1.0},
        Unit.WATTS: {"": 1.0, "w": 1.0, "mw": 1e-3},
        Unit.CELSIUS: {"": 1.0, "c": 1.0},
        Unit.HERTZ: {"": 1e6, "mhz": 1e6},
        Unit.RATIO: {"": 0.01, "%": 0.01},
        Unit.BYTES: {
            "": 1024.0**2,
            "kb": 1024.0,
            "kib": 1024.0,
            "mb": 1024.0**2,
            "mib": 1024.0**2,
            "gb": 1024.0**3,
            "gib": 1024.0**3,
        },
        Unit.SECONDS: {"": 1e-6, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    }
)
"""Factor to base units, by unit; "" is for numbers printed with ``--format=csv,nounits``."""

_FLAGS: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "enabled": True,
        "active": True,
        "yes": True,
        "on": True,
        "true": True,
        "disabled": False,
        "not active": False,
        "no": False,
        "off": False,
        "false": False,
    }
)

_NOTHING: Final = frozenset({"", "n/a", "none", "not found", "not available", "not supported", "not applicable"})
_NOT_TOLD: Final = ("deprecated", "insufficient permissions", "no permission")

LOST: Final = frozenset({"gpu is lost", "gpu access blocked by the operating system"})
RESET_REQUIRED: Final = frozenset({"gpu requires reset", "gpu requires restart", "reset required"})
FAILED: Final = frozenset({"unknown error", "err!", "error", "internal error", "gpu is not accessible"})
"""Printed instead of a value when the driver can't query the GPU."""

_VERSION: Final = re.compile(r"\d{2,4}(?:\.\d{1,4}){1,3}(?![\d.])")


def normalized(value: str | None) -> str:
    """A value in lower case, without the brackets that nvidia-smi puts around missing values."""
    return "" if value is None else value.strip().strip("[]").strip().lower()


def is_none(value: str) -> bool:
    """Whether the driver reports that it has no value, or that it could not read it."""
    plain = normalized(value)
    known = plain in _NOTHING or plain in LOST or plain in RESET_REQUIRED or plain in FAILED
    return known or any(each in plain for each in _NOT_TOLD)


def number(value: str | None, unit: Unit) -> float | None:
    """A number in base units: watts, hertz, bytes, seconds, 0-1; None if it has a different unit."""
    match = None if value is None else _NUMBER.fullmatch(value.strip())
    factor = None if match is None else _UNITS[unit].get(match[2].lower())
    return None if match is None or factor is None else float(match[1]) * factor


def count(value: str | None) -> int | None:
    """A nonnegative integer."""
    found = number(value, Unit.COUNT)
    return None if found is None or found < 0 or found != int(found) else int(found)


def flag(value: str | None) -> bool | None:
    """A boolean, in any of the words that drivers use for it."""
    return _FLAGS.get(normalized(value))


def text(value: str | None) -> str:
    """A name, or ""."""
    return "" if value is None or is_none(value) else value.strip()


def version(value: str) -> str:
    """The version at the start of a value: ``610.57.04`` in ``610.57.04 [Deprecated; …]``; "" if none."""
    found = _VERSION.match(value.strip())
    return "" if found is None else found[0]
