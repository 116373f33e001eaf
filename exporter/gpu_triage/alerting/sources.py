"""The source of the rules: the files below ``source/``, read strictly.

A source file looks like the rule file that is written from it, with three differences: expressions and texts have
tokens (``${target}``, ``${share}``) that settings fill in; an alert's thresholds have names, defaults and ranges; and
severity, action and texts stand beside the expression instead of below ``labels`` and ``annotations``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SOURCE: Final = Path(__file__).parent / "source"
INHIBITIONS: Final = "alertmanager-inhibit.yml"
MACROS: Final = "macros.yml"
_NO_RULES: Final = frozenset({INHIBITIONS, MACROS})

_ALERT_KEYS: Final = frozenset({"summary", "description", "severity", "action", "dashboard", "alert", "expr"})
_MORE_ALERT_KEYS: Final = frozenset({"variant", "about", "thresholds", "for", "keep_firing_for", "labels", "scope"})
_FLEET: Final = "fleet"


class SourceError(Exception):
    """A source file that is wrong: a fault of this program, found by its tests."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number in an alert's expression that an operator may set.

    Attributes:
        value: the default.
        low, high: the range it may be set to, both included.
        about: what it means, a phrase.
    """

    value: float
    low: float
    high: float
    about: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    name: str
    about: str
    expr: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule.

    Attributes:
        name: as Alertmanager gets it.
        variant: tells rules of the same name apart; "" for the main one.
        hold, keep: ``for`` and ``keep_firing_for``; "" for none.
        labels: further labels, beside severity and action.
        fleet: whether its series belong to no single host, so that there is no label ``instance``.
    """

    name: str
    variant: str
    about: str
    thresholds: Mapping[str, Threshold]
    expr: str
    hold: str
    keep: str
    severity: str
    action: str
    labels: Mapping[str, str]
    summary: str
    description: str
    dashboard: str
    fleet: bool

    @property
    def key(self) -> str:
        """What settings call it."""
        return f"{self.name}.{self.variant}" if self.variant else self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other."""

    name: str
    interval: str
    about: str
    rules: tuple[Recording | Alert, ...]


@dataclass(frozen=True, slots=True)
class RuleSource:
    """One source file.

    Attributes:
        path: of the file written from it, below the folder of rules: ``alerts-sick.yml``.
        about: the comment at its top.
    """

    path: str
    about: str
    groups: tuple[Group, ...]

    @property
    def alerts(self) -> Iterator[Alert]:
        """Its alerts."""
        return (rule for group in self.groups for rule in group.rules if isinstance(rule, Alert))


def read_sources(folder: Path = SOURCE) -> tuple[RuleSource, ...]:
    """Every source of rules, by path; what stands in a subfolder comes last.

    Raises:
        SourceError: a file is wrong, or two alerts have one key.
    """
    found = tuple(
        _source(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.yml"), key=lambda path: (len(path.parts), path))
        if path.name not in _NO_RULES
    )
    keys = [alert.key for source in found for alert in source.alerts]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise SourceError(f"two alerts are called {twice[0]}; give one of them a variant")
    return found


def read_inhibitions(folder: Path = SOURCE) -> str:
    """The text of the inhibitions, with its tokens; "" if there is none."""
    path = folder / INHIBITIONS
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_macros(folder: Path = SOURCE) -> dict[str, str]:
    """What the texts of alerts share, by name, each with those above it."""
    raw = _loaded((folder / MACROS).read_text(encoding="utf-8"))
    _check(MACROS, raw, {"macros"})
    return {name: _line(f"{MACROS}: {name}", text) for name, text in raw["macros"].items()}


def _source(path: str, text: str) -> RuleSource:
    raw = _loaded(text)
    _check(path, raw, {"about", "groups"})
    return RuleSource(path, _text(raw["about"]), tuple(_group(path, each) for each in raw["groups"]))


def _group(path: str, raw: Mapping[str, Any]) -> Group:
    where = f"{path}: group {raw.get('name')}"
    _check(where, raw, {"name", "interval", "rules"}, {"about"})
    rules = tuple(_rule(where, each) for each in raw["rules"])
    return Group(raw["name"], raw["interval"], _text(raw.get("about")), rules)


def _rule(where: str, raw: Mapping[str, Any]) -> Recording | Alert:
    if "record" in raw:
        _check(f"{where}: {raw['record']}", raw, {"record", "expr"}, {"about", "labels"})
        return Recording(raw["record"], _text(raw.get("about")), str(raw["expr"]), raw.get("labels") or {})
    place = f"{where}: {raw.get('alert')}"
    _check(place, raw, _ALERT_KEYS, _MORE_ALERT_KEYS)
    if raw.get("scope", _FLEET) != _FLEET:
        raise SourceError(f"{place}: scope is {raw['scope']!r}; write {_FLEET} or leave it out")
    return Alert(
        name=raw["alert"],
        variant=raw.get("variant", ""),
        about=_text(raw.get("about")),
        thresholds={name: _threshold(f"{place}: {name}", each) for name, each in raw.get("thresholds", {}).items()},
        expr=str(raw["expr"]),
        hold=raw.get("for", ""),
        keep=raw.get("keep_firing_for", ""),
        severity=raw["severity"],
        action=raw["action"],
        labels=raw.get("labels") or {},
        summary=_line(f"{place}: summary", raw["summary"]),
        description=_line(f"{place}: description", raw["description"]),
        dashboard=raw["dashboard"],
        fleet="scope" in raw,
    )


def _threshold(where: str, raw: Mapping[str, Any]) -> Threshold:
    _check(where, raw, {"value", "min", "max", "about"})
    found = Threshold(raw["value"], raw["min"], raw["max"], _text(raw["about"]))
    if not found.low <= found.value <= found.high:
        raise SourceError(f"{where}: the default {found.value} is outside of {found.low} to {found.high}")
    return found


def _check(where: str, raw: Any, required: Collection[str], optional: Collection[str] = ()) -> None:
    if not isinstance(raw, Mapping):
        raise SourceError(f"{where}: is no mapping")
    if missing := sorted(set(required) - raw.keys()):
        raise SourceError(f"{where}: lacks {', '.join(missing)}")
    if unknown := sorted(raw.keys() - set(required) - set(optional)):
        raise SourceError(f"{where}: does not know {', '.join(unknown)}")


def _text(raw: object) -> str:
    return str(raw or "").strip()


def _loaded(text: str) -> Any:
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that also refuses repeated keys


def _line(where: str, raw: str) -> str:
    text = raw.strip()
    if "\n" in text:
        raise SourceError(f"{where}: has several lines; fold it with '>-'")
    return text


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys = [key.value for key, _ in node.value]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise SourceError(f"line {node.start_mark.line + 1}: {twice[0]} is written twice")
        return super().construct_mapping(node, deep=deep)
