"""Settings of the rules from a YAML file, with every mistake told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeVar

import yaml

from gpu_triage.alerting.setting_values import (
    parse_flag,
    parse_grafana_url,
    parse_hold,
    parse_job,
    parse_label_name,
    parse_runbook_url,
    parse_severity,
    parse_text,
    parse_within,
    refusal_of,
)
from gpu_triage.alerting.settings import (
    DEFAULTS,
    MOST_LABELS,
    RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
    SEVERITIES,
    AlertSettings,
    Settings,
)
from gpu_triage.alerting.sources import Alert
from gpu_triage.errors import ConfigError
from gpu_triage.given import read_document
from gpu_triage.options.document import compose_document, is_empty
from gpu_triage.options.values import quoted

T = TypeVar("T")

_MOST_PROBLEMS: Final = 20
_LONGEST_SHOWN: Final = 64


class SettingsError(ConfigError):
    """Settings that cannot be used.

    Attributes:
        problems: each with file, line, key and what is right.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_settings(path: str, alerts: Mapping[str, Alert]) -> Settings:
    """The settings in a file; an empty one sets nothing.

    Args:
        path: of the file.
        alerts: every alert that can be set, by key.

    Raises:
        ConfigError: the file cannot be read, or is not YAML.
        SettingsError: a key or a value is wrong.
    """
    root = compose_document(path, read_document(path))
    reader = _Reader(path, alerts)
    settings = DEFAULTS if root is None else reader.settings(root)
    if reader.problems:
        raise SettingsError(tuple(reader.problems))
    return settings


@dataclass(slots=True)
class _Reader:
    """Reads nodes into settings; notes what is wrong and goes on with the default."""

    path: str
    alerts: Mapping[str, Alert]
    problems: list[str] = field(default_factory=list)
    reserved: tuple[str, ...] = RESERVED_LABELS

    def settings(self, root: yaml.Node) -> Settings:
        known = (
            "job",
            "cluster_label",
            "replica_labels",
            "runbook_base_url",
            "grafana_base_url",
            "labels",
            "annotations",
            "alerts",
        )
        given = self.mapping(root, "", known)
        cluster = self.value(given, "cluster_label", parse_label_name, DEFAULTS.cluster_label)
        replicas = self.label_names(given)
        self.reserved = (*RESERVED_LABELS, cluster, *replicas)
        return Settings(
            job=self.value(given, "job", parse_job, DEFAULTS.job),
            cluster_label=cluster,
            replica_labels=replicas,
            runbook_base_url=self.value(given, "runbook_base_url", parse_runbook_url, DEFAULTS.runbook_base_url),
            grafana_base_url=self.value(given, "grafana_base_url", parse_grafana_url, DEFAULTS.grafana_base_url),
            labels=self.texts(given, "labels", "", self.reserved),
            annotations=self.texts(given, "annotations", "", RESERVED_ANNOTATIONS),
            alerts=self.alerts_of(given),
        )

    def alerts_of(self, given: Mapping[str, yaml.Node]) -> dict[str, AlertSettings]:
        if "alerts" not in given:
            return {}
        found = self.mapping(given["alerts"], "alerts", tuple(self.alerts), "alert")
        return {key: self.alert(node, f"alerts.{key}", self.alerts[key]) for key, node in found.items()}

    def alert(self, node: yaml.Node, where: str, alert: Alert) -> AlertSettings:
        given = self.mapping(node, where, ("enabled", "for", "severity", "labels", "thresholds"))
        thresholds = {}
        if "thresholds" in given:
            place = f"{where}.thresholds"
            for name, each in self.mapping(given["thresholds"], place, tuple(alert.thresholds), "threshold").items():
                limits = alert.thresholds[name]
                thresholds[name] = self.read(each, f"{place}.{name}", parse_within(limits), limits.value)
        return AlertSettings(
            enabled=self.value(given, "enabled", parse_flag, True, where),  # noqa: FBT003 - the default
            hold=self.value(given, "for", parse_hold, None, where),
            severity=self.value(given, "severity", parse_severity, None, where),
            labels=self.texts(given, "labels", where, self.reserved),
            thresholds=thresholds,
        )

    def texts(self, given: Mapping[str, yaml.Node], key: str, where: str, reserved: tuple[str, ...]) -> dict[str, str]:
        if key not in given:
            return {}
        place = f"{where}.{key}".lstrip(".")
        found = self.mapping(given[key], place, None)
        if len(found) > MOST_LABELS:
            self.refuse(given[key], place, f"has {len(found)} entries; write at most {MOST_LABELS}")
            return {}
        for name in found:
            if refusal := refusal_of(name, reserved):
                self.refuse(found[name], f"{place}.{_shown(name)}", refusal)
        return {name: self.read(node, f"{place}.{_shown(name)}", parse_text, "") for name, node in found.items()}

    def label_names(self, given: Mapping[str, yaml.Node]) -> tuple[str, ...]:
        node = given.get("replica_labels")
        if node is None:
            return DEFAULTS.replica_labels
        if not isinstance(node, yaml.SequenceNode) or len(node.value) > MOST_LABELS:
            self.refuse(node, "replica_labels", "is no list of labels; write it as [replica]")
            return ()
        return tuple(self.read(each, "replica_labels", parse_label_name, "") for each in node.value)

    def mapping(
        self, node: yaml.Node, where: str, known: tuple[str, ...] | None, noun: str = "key"
    ) -> dict[str, yaml.Node]:
        """The values by key, without those that are wrong; `known` is None where every key is allowed."""
        found: dict[str, yaml.Node] = {}
        if is_empty(node):
            return found
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, where, "is no mapping; write keys and values below it, indented")
            return found
        for key, value in node.value:
            if len(self.problems) == _MOST_PROBLEMS:
                break
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            place = f"{where}.{_shown(name)}".lstrip(".")
            if name in found:
                self.refuse(key, place, "is written twice; keep one of them")
            elif not name or (known is not None and name not in known):
                self.refuse(key, place, _unknown(name, known or (), noun))
            else:
                found[name] = value
        return found

    def value(
        self, given: Mapping[str, yaml.Node], key: str, parse: Callable[[str], T], default: T, where: str = ""
    ) -> T:
        return self.read(given[key], f"{where}.{key}".lstrip("."), parse, default) if key in given else default

    def read(self, node: yaml.Node, where: str, parse: Callable[[str], T], default: T) -> T:
        if is_empty(node) or not isinstance(node, yaml.ScalarNode):
            self.refuse(node, where, "has no plain value; write one, or leave the key out")
            return default
        try:
            return parse(node.value)
        except ValueError as error:
            self.refuse(node, where, f"is {quoted(node.value)}; {error}")
            return default

    def refuse(self, node: yaml.Node, where: str, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            place = f"{where}: " if where else ""
            self.problems.append(f"{self.path}: line {node.start_mark.line + 1}: {place}{what}")


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= _LONGEST_SHOWN else quoted(name)


def _unknown(name: str, known: tuple[str, ...], noun: str) -> str:
    if not known:
        return f"unknown {noun}; this alert has none" if noun == "threshold" else f"unknown {noun}; write a plain word"
    if close := get_close_matches(name, known, n=1):
        return f"unknown {noun}; did you mean {close[0]}?"
    if len(known) <= len(SEVERITIES) * 2:
        return f"unknown {noun}; there are {', '.join(known)}"
    return f"unknown {noun}; gpu-triage rules --print-config lists them all"
