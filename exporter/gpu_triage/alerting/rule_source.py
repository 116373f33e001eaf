"""Strict reader for the rules' source: the files below ``source/``.

A source file looks like the rule file generated from it, with four differences: expressions and texts contain
placeholders (``${target}``, ``${share}``) for settings and macros; an alert's thresholds have names, defaults and
ranges; severity, action and texts are next to the expression instead of below ``labels`` and ``annotations``; and a
finding that is recorded from dcgm-exporter's metrics is what is measured and how it compares.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, TypeVar

from gpu_triage.documents import Key, Parsed, Place, Tagged, parse_yaml, read_file, read_value

SOURCE: Final = Path(__file__).parent / "source"
INHIBITIONS: Final = "alertmanager-inhibit.yml"
SETTINGS: Final = "settings.yml"
"""The explanations above the printed settings."""
_MACROS: Final = "macros.yml"

T = TypeVar("T")


def _parse_line(text: str) -> str:
    line = text.strip()
    if "\n" in line:
        raise ValueError("has several lines; fold it with '>-'")
    return line


_Line = Annotated[str, Parsed(_parse_line)]
_Paragraphs = Annotated[str, Parsed(str.strip)]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A configurable number in an alert's expression: default, range, and meaning."""

    value: float
    low: Annotated[float, Key("min")]
    high: Annotated[float, Key("max")]
    about: _Line


@dataclass(frozen=True, slots=True)
class RecordingRule:
    name: Annotated[str, Key("record")]
    expr: str
    about: _Paragraphs = ""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    name: Annotated[str, Key("alert")]
    expr: str
    severity: str
    action: str
    summary: _Line
    description: _Line
    dashboard: str
    variant: str = ""  # distinguishes rules of the same name; "" for the main one
    about: _Paragraphs = ""
    thresholds: dict[str, Threshold] = field(default_factory=dict)
    hold: Annotated[str, Key("for")] = ""  # ``for`` and ``keep_firing_for``; "" for none
    keep: Annotated[str, Key("keep_firing_for")] = ""
    labels: dict[str, str] = field(default_factory=dict)  # in addition to severity and action
    fleet: bool = False  # whether its series don't belong to a single host, so that there is no ``instance`` label
    unreachable: bool = False  # whether the exporter of its host does not answer while it fires, nor serves its runbook
    fires: _Line = ""  # how long after the fault someone is notified, if that differs from `for`
    codes: tuple[str, ...] = ()  # findings that it relays; empty for an alert evaluated in PromQL alone
    enabled: bool = True  # whether it is included by default

    @property
    def key(self) -> str:
        return f"{self.name}.{self.variant}" if self.variant else self.name


@dataclass(frozen=True, slots=True)
class DcgmFinding:
    """A finding that is recorded from dcgm-exporter's metrics while what is measured compares to its fault."""

    code: Annotated[str, Key("finding")]
    measured: str = ""  # what the alert shows, if the finding has a value
    fault: str = ""  # such as ``> 0``
    condition: str = ""  # instead of these two: one with a memory of its own, which is confirmed as soon as it holds
    xids: bool = False  # whether each Xid in the condition is recorded by its own code


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    interval: str
    rules: tuple[Annotated[RecordingRule | Alert, Tagged("", {"record": RecordingRule, "alert": Alert})], ...] = ()
    about: _Paragraphs = ""
    dcgm_findings: tuple[DcgmFinding, ...] = ()  # their rules come after the others


@dataclass(frozen=True, slots=True)
class RuleSource:
    """One source file."""

    about: _Paragraphs
    groups: tuple[Group, ...]
    path: str = ""  # of the generated file relative to the rules folder: ``alerts-sick.yml``

    @property
    def optional(self) -> bool:
        """Whether only some load it: it records another exporter's metrics under our names."""
        return "/" in self.path

    @property
    def alerts(self) -> Iterator[Alert]:
        return (rule for group in self.groups for rule in group.rules if isinstance(rule, Alert))


def read_sources(folder: Path) -> tuple[RuleSource, ...]:
    """Read the sources by path, subfolders last. Raises DocumentError if a file is invalid: a bug of this program."""
    paths = sorted(folder.rglob("*.yml"), key=lambda path: (len(path.parts), path))
    return tuple(
        replace(_read(RuleSource, path), path=path.relative_to(folder).as_posix())
        for path in paths
        if path.name not in (INHIBITIONS, SETTINGS, _MACROS)
    )


def read_macros() -> dict[str, str]:
    """What the rules share, by name; each may use those above it."""
    return _read(dict[str, _Paragraphs], SOURCE / _MACROS)


def _read(kind: type[T], path: Path) -> T:
    return read_value(kind, parse_yaml(read_file(path), path.name), Place(path.name))
