"""What nvidia-smi prints, in its own words: the raw content of one output, its values and units, and a GPU's facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, TypeVar

MOST_GPUS: Final = 256
MOST_FACTS: Final = 2000  # per GPU; the newest drivers print about 250
MOST_PROCESSES: Final = 4096  # per GPU
LONGEST_VALUE: Final = 200
_MOST_UNREAD: Final = 32


@dataclass(slots=True)
class RawProcess:
    """One process as listed by nvidia-smi; "" for what isn't printed."""

    pid: str = ""
    kind: str = ""  # C, G, C+G, M, M+C
    name: str = ""
    memory: str = ""


@dataclass(slots=True)
class RawGpu:
    """One GPU as printed by nvidia-smi.

    Attributes:
        bus_id: as printed; "" if not printed.
        index: NVML index; "" if not printed.
        facts: value by path: labels in lower case, joined by slashes. The first value of a path wins.
        lists_processes: whether there is a process list, even an empty one.
    """

    bus_id: str
    index: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    processes: list[RawProcess] = field(default_factory=list)
    lists_processes: bool = False

    def note(self, path: str, value: str) -> None:
        """Add a fact."""
        if len(self.facts) < MOST_FACTS:
            self.facts.setdefault(path, value[:LONGEST_VALUE])

    def add_process(self, process: RawProcess) -> None:
        """Add a process; those above MOST_PROCESSES are dropped."""
        if len(self.processes) < MOST_PROCESSES:
            self.processes.append(process)


@dataclass(slots=True)
class SmiReport:
    """One output of nvidia-smi; "" for what isn't printed.

    Attributes:
        kind: the command that printed it, for display.
        is_whole: whether it is complete, so that a GPU missing from it is missing from the host.
        unread: lines that should be a GPU or a fact but could not be parsed.
    """

    kind: str
    timestamp: str = ""
    driver: str = ""
    cuda: str = ""
    attached: str = ""
    gpus: list[RawGpu] = field(default_factory=list)
    is_whole: bool = False
    unread: list[str] = field(default_factory=list)

    def note(self, label: str, value: str) -> None:
        """Add a host-level fact, printed before the first GPU."""
        match label.replace("_", " "):
            case "timestamp":
                self.timestamp = self.timestamp or value
            case "driver version":
                self.driver = self.driver or value
            case "kmd version":
                self.driver = value  # driver 610 and later, next to the older label
            case "cuda version":
                self.cuda = self.cuda or value
            case "cuda umd version":
                self.cuda = value
            case "attached gpus":
                self.attached = self.attached or value

    def add_gpu(self, bus_id: str = "", index: str = "") -> RawGpu:
        """Add a GPU; those above MOST_GPUS are dropped."""
        gpu = RawGpu(bus_id, index)
        if len(self.gpus) < MOST_GPUS:
            self.gpus.append(gpu)
        return gpu

    def miss(self, line: str) -> None:
        """Record a line that could not be parsed."""
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(line.strip()[:LONGEST_VALUE])


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
_NOT_GIVEN: Final = ("deprecated", "insufficient permissions", "no permission")

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
    return known or any(each in plain for each in _NOT_GIVEN)


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


T = TypeVar("T")


class Facts:
    """The facts of a GPU. Methods take all names of a fact, across output formats and driver versions.

    Attributes:
        asked: every name that was looked up.
        sections: every section that was looked up as a whole.
        unread: values found under a known name that could not be parsed, by name.
    """

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts
        self.asked: set[str] = set()
        self.sections: set[str] = set()
        self.unread: dict[str, str] = {}

    def get(self, *paths: str) -> str | None:
        """The first of these with a value."""
        return self._first(lambda value: None if is_none(value) else value, paths)

    def within(self, low: float, high: float, unit: Unit, *paths: str) -> float | None:
        """The first of these that is a number in this unit and within range."""

        def parse(value: str) -> float | None:
            found = number(value, unit)
            return found if found is not None and low <= found <= high else None

        return self._first(parse, paths)

    def count(self, *paths: str) -> int | None:
        """The first of these that is a nonnegative integer."""
        return self._first(count, paths)

    def flag(self, *paths: str) -> bool | None:
        """The first of these that is a boolean."""
        return self._first(flag, paths)

    def text(self, *paths: str) -> str:
        """The first of these that is a name; "" if none."""
        return self._first(lambda value: text(value) or None, paths) or ""

    def choice(self, choices: Mapping[str, T], *paths: str) -> T | None:
        """The value in `choices` for the first of these that is one of its keys, which are in lower case."""
        return self._first(lambda value: choices.get(normalized(value)), paths)

    def parsed(self, parse: Callable[[str], T | None], *paths: str) -> T | None:
        """The first of these that `parse` accepts."""
        return self._first(parse, paths)

    def below(self, *sections: str) -> Iterator[tuple[str, str]]:
        """Each fact at any depth in these sections: its name relative to the section, and its full name."""
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
            if not is_none(value):
                self.unread[path] = value
        return None
