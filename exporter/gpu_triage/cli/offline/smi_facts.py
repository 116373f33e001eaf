"""What nvidia-smi prints, in its own words: the raw content of one output, its values and units, and a GPU's facts."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from gpu_triage.documents import packaged_toml

WORDS: Final = packaged_toml(__package__, "nvidia_smi.toml")

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
    sm: str = ""  # utilization of the SMs

    def describe(self, label: str, value: str) -> None:
        """Set the attribute of a label in text or XML output; others are ignored."""
        if label in WORDS["process"]:
            setattr(self, WORDS["process"][label], value[:LONGEST_VALUE])


_NUMBER: Final = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%/()]{0,12})")

Unit = Mapping[str, float]
"""Factors to a base unit, by the printed unit in lower case; "" is for numbers of ``--format=csv,nounits``."""
COUNT: Final[Unit] = {"": 1.0, "x": 1.0, "bank(s)": 1.0}
WATTS: Final[Unit] = {"": 1.0, "w": 1.0, "mw": 1e-3}
CELSIUS: Final[Unit] = {"": 1.0, "c": 1.0}
HERTZ: Final[Unit] = {"": 1e6, "mhz": 1e6}
RATIO: Final[Unit] = {"": 0.01, "%": 0.01}
SECONDS: Final[Unit] = {"": 1e-6, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_KIB: Final = 1024.0
BYTES: Final[Unit] = {
    "": _KIB**2,
    **{f"{prefix}{b}": _KIB**power for power, prefix in enumerate("kmg", 1) for b in ("b", "ib")},
}

_FLAGS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("enabled", "active", "yes", "on", "true"), True),
    **dict.fromkeys(("disabled", "not active", "no", "off", "false"), False),
}
"""The words that drivers use for booleans."""

_NOTHING: Final = frozenset({"", "n/a", "none", "not found", "not available", "not supported", "not applicable"})
_NOT_GIVEN: Final = ("deprecated", "insufficient permissions", "no permission")

LOST: Final = frozenset({"gpu is lost", "gpu access blocked by the operating system"})
RESET_REQUIRED: Final = frozenset({"gpu requires reset", "gpu requires restart", "reset required"})
FAILED: Final = frozenset({"unknown error", "err!", "error", "internal error", "gpu is not accessible"})
"""Printed instead of a value when the driver can't query the GPU."""

_VERSION: Final = re.compile(r"\d{2,4}(?:\.\d{1,4}){1,3}(?![\d.])")


def normalized(value: str) -> str:
    """A value in lower case, without the brackets that nvidia-smi puts around missing values."""
    return value.strip().strip("[]").strip().lower()


def is_none(value: str) -> bool:
    """Whether the driver reports that it has no value, or that it could not read it."""
    plain = normalized(value)
    known = plain in _NOTHING or plain in LOST or plain in RESET_REQUIRED or plain in FAILED
    return known or any(each in plain for each in _NOT_GIVEN)


def number(value: str, unit: Unit) -> float | None:
    """A number in base units: watts, hertz, bytes, seconds, 0-1; None if its unit is not in `unit`."""
    match = _NUMBER.fullmatch(value.strip())
    return None if match is None or (factor := unit.get(match[2].lower())) is None else float(match[1]) * factor


def count_of(value: str) -> int | None:
    found = number(value, COUNT)
    return None if found is None or found < 0 or found != int(found) else int(found)


def text_of(value: str) -> str:
    return "" if is_none(value) else value.strip()


def version(value: str) -> str:
    """The version at the start of a value: ``610.57.04`` in ``610.57.04 [Deprecated; …]``; "" if none."""
    found = _VERSION.match(value.strip())
    return "" if found is None else found[0]


T = TypeVar("T")


@dataclass(slots=True)
class RawGpu:
    """What outputs print of one GPU.

    Methods take all names of a fact, and return the first that can be parsed; None or "" if none.
    """

    bus_id: str = ""  # as printed; "" if not printed
    index: str = ""  # NVML index; "" if not printed
    # value by path: labels in lower case, joined by slashes, with spaces for the underscores of XML tags. The first
    # value of a path wins.
    facts: dict[str, str] = field(default_factory=dict)
    processes: list[RawProcess] = field(default_factory=list)
    lists_processes: bool = False  # whether there is a process list, even an empty one
    samples: list[tuple[float, float | None]] = field(default_factory=list)  # of dmon: utilization (0-1), power (W)
    asked: set[str] = field(default_factory=set)  # every name that was looked up
    sections: set[str] = field(default_factory=set)  # every section that was looked up as a whole
    unread: dict[str, str] = field(default_factory=dict)  # values under a known name that could not be parsed, by name

    def note(self, path: str, value: str) -> None:
        if len(self.facts) < MOST_FACTS:
            self.facts.setdefault(path, value[:LONGEST_VALUE])

    def add_process(self, process: RawProcess) -> None:
        if len(self.processes) < MOST_PROCESSES:
            self.processes.append(process)

    def within(self, low: float, high: float, unit: Unit, *paths: str) -> float | None:
        def parse(value: str) -> float | None:
            found = number(value, unit)
            return found if found is not None and low <= found <= high else None

        return self.parsed(parse, *paths)

    def count(self, *paths: str) -> int | None:
        return self.parsed(count_of, *paths)

    def flag(self, *paths: str) -> bool | None:
        return self.choice(_FLAGS, *paths)

    def text(self, *paths: str) -> str:
        return self.parsed(lambda value: text_of(value) or None, *paths) or ""

    def choice(self, choices: Mapping[str, T], *paths: str) -> T | None:
        """The value in `choices`, which has keys in lower case."""
        return self.parsed(lambda value: choices.get(normalized(value)), *paths)

    def below(self, *sections: str) -> Iterator[tuple[str, str]]:
        """Each fact at any depth in these sections: its name relative to the section, and its full name."""
        self.sections.update(sections)
        yield from (
            (path.removeprefix(each), path) for path in self.facts for each in sections if path.startswith(each)
        )

    def parsed(self, parse: Callable[[str], T | None], *paths: str) -> T | None:
        self.asked.update(paths)
        for path in paths:
            if (value := self.facts.get(path)) is not None:
                if (found := parse(value)) is not None:
                    return found
                if not is_none(value):
                    self.unread[path] = value
        return None


HOST_FACTS: Final[Mapping[str, str]] = WORDS["host"]
"""Attribute of `SmiReport` by label."""
_NEWER: Final = frozenset({"kmd version", "cuda umd version"})  # of driver 610 and later, next to the older labels


@dataclass(slots=True)
class SmiReport:
    """One output of nvidia-smi; "" for what isn't printed."""

    kind: str  # the command that printed it, for display
    timestamp: str = ""
    driver: str = ""
    cuda: str = ""
    attached: str = ""
    gpus: list[RawGpu] = field(default_factory=list)
    by_key: dict[str, RawGpu] = field(default_factory=dict)  # the GPUs that were added with `gpu_at`
    is_whole: bool = False  # whether it is complete, so that a GPU missing from it is missing from the host
    unread: list[str] = field(default_factory=list)  # lines that should be a GPU or a fact but could not be parsed

    def note(self, label: str, value: str) -> None:
        """Add a host-level fact, printed before the first GPU."""
        label = label.replace("_", " ")
        if (attribute := HOST_FACTS.get(label)) is not None and (label in _NEWER or not getattr(self, attribute)):
            setattr(self, attribute, value)

    def add_gpu(self, bus_id: str = "", index: str = "") -> RawGpu:
        gpu = RawGpu(bus_id, index)
        if len(self.gpus) < MOST_GPUS:
            self.gpus.append(gpu)
        return gpu

    def gpu_at(self, key: str, bus_id: str = "", index: str = "") -> RawGpu:
        if key not in self.by_key and len(self.by_key) < MOST_GPUS:
            self.by_key[key] = self.add_gpu(bus_id, index)
        return self.by_key.get(key) or RawGpu(bus_id, index)

    def miss(self, line: str) -> None:
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(line.strip()[:LONGEST_VALUE])


class SmiParser(ABC):
    """Parses one output line by line; `KIND` is the command that prints it, for display."""

    KIND: ClassVar[str]

    def __init__(self, before: str) -> None:
        self.before = before  # the line above the output
        self.report = SmiReport(self.KIND)
        self.gpu: RawGpu | None = None  # of which the lines are

    @abstractmethod
    def starts(self, line: str) -> bool:
        """Whether an output starts with this line, which is then consumed."""

    @abstractmethod
    def feed(self, line: str) -> bool:
        """Whether this line belongs to the output."""
