"""Value types used in scenario files and GPU models."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import Parsed, Pattern, Range, parse_toml, read_file

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]+[dhms])+")


def parse_duration(value: Any) -> int:
    """Whole seconds of a duration, written as a number of seconds or as ``"1h30m"``.

    Raises:
        ValueError: it is not a duration.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", value))
    raise ValueError('write a duration such as "90s", "10m" or "1h30m"')


Ratio = Annotated[float, Range(0.0, 1.0)]
Amount = Annotated[float, Range(0.0, 1e18)]
Count = Annotated[int, Range(0, 2**40)]
Seconds = Annotated[int, Parsed(parse_duration)]
BusId = Annotated[
    str, Pattern(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", 'a PCI address such as "0000:65:00.0", in lower case')
]
CpuList = Annotated[str, Pattern(r"\d+(-\d+)?(,\d+(-\d+)?)*", 'a CPU list such as "0-31,64-95"')]


def one_of(words: Iterable[str]) -> Pattern:
    """A rule that text must be one of these words.

    >>> one_of(["idle", "sick"]).meaning
    'one of idle, sick'
    """
    known = tuple(words)
    return Pattern("|".join(map(re.escape, known)), f"one of {', '.join(known)}")


def read_toml(path: Path) -> dict[str, Any]:
    """The top-level table of a TOML file. Raises DocumentError: the file cannot be read, or is not TOML."""
    return parse_toml(read_file(path), str(path))
