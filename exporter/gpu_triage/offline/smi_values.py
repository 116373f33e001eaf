"""The words and units of nvidia-smi as values. None is for everything that is no value: ``N/A``, ``ERR!``, and kin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_NUMBER: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%/()]{0,12})")
_UNITS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "": 1.0,
        "%": 0.01,
        "w": 1.0,
        "mw": 1e-3,
        "c": 1.0,
        "mhz": 1e6,
        "kb": 1024.0,
        "kib": 1024.0,
        "mb": 1024.0**2,
        "mib": 1024.0**2,
        "gb": 1024.0**3,
        "gib": 1024.0**3,
        "us": 1e-6,
        "ms": 1e-3,
        "ns": 1e-9,
        "s": 1.0,
        "x": 1.0,
        "bank(s)": 1.0,
    }
)
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
_NOTHING: Final = frozenset({"", "n/a", "none", "not found", "not available"})

LOST: Final = frozenset({"gpu is lost", "gpu access blocked by the operating system"})
RESET_REQUIRED: Final = frozenset({"gpu requires reset", "gpu requires restart", "reset required"})
FAILED: Final = frozenset({"unknown error", "err!", "error", "internal error", "gpu is not accessible"})
"""What the driver answers instead of a value when it cannot ask the GPU."""


def words(value: str | None) -> str:
    """The value in lower case, without the brackets in which nvidia-smi puts what is none."""
    return "" if value is None else value.strip().strip("[]").strip().lower()


def number(value: str | None) -> float | None:
    """A number in base units: watts, hertz, bytes, seconds, 0-1."""
    match = None if value is None else _NUMBER.match(value.strip())
    factor = None if match is None else _UNITS.get(match[2].lower().partition("/")[0])
    return None if match is None or factor is None else float(match[1]) * factor


def count(value: str | None) -> int | None:
    """A number of things, none of them negative."""
    found = number(value)
    return None if found is None or found < 0 or found != int(found) else int(found)


def flag(value: str | None) -> bool | None:
    """Yes or no, in any of the words that drivers have for it."""
    return _FLAGS.get(words(value))


def text(value: str | None) -> str:
    """A name; "" where there is none."""
    plain = words(value)
    is_name = plain not in _NOTHING | LOST | RESET_REQUIRED | FAILED and "deprecated" not in plain
    return (value or "").strip() if is_name and plain != "not supported" else ""
