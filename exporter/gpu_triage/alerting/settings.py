"""User settings for the rules, and the patterns that their values must match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SEVERITIES: Final = ("critical", "warning", "info", "none")
RESERVED_LABELS: Final = (
    *("alertname", "severity", "action", "instance", "job", "cluster"),
    *("gpu", "uuid", "pci_bus_id", "code"),
)
"""Labels that the rules, routes and inhibitions depend on."""

KEPT_LABELS: Final = (*RESERVED_LABELS, "drill", "workload")
"""Labels that can't be chosen for routing: alerts have them anyway, or they would split one incident into several."""

RESERVED_ANNOTATIONS: Final = ("summary", "description", "runbook_url", "dashboard_uid", "dashboard_url")

FLEET_HOSTS: Final = (3.0, 10000.0)
FLEET_SHARE: Final = (0.01, 1.0)
"""Lowest and highest values of these settings."""

MOST_LABELS: Final = 32
MOST_CHARACTERS: Final = 256

LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]{0,63}$"
TEXT: Final = r"^[^\x00-\x1f{}]+$"
"""Pattern for label and annotation values: no control characters, and no braces as in templates and placeholders."""

JOB: Final = r"^([^$\x00-\x1f]|\$+[^${\x00-\x1f])*\$*$"  # a regular expression that can't contain a placeholder
GRAFANA_URL: Final = r"^https?://[^\s{}]+$"
RUNBOOK_URL: Final = r"^(https?://([^\s{}]|\{\{ ?\$labels\.[a-zA-Z_][a-zA-Z0-9_]* ?\}\})+)?$"
"""The URL may contain labels, such as ``{{ $labels.instance }}``; it may be empty."""

DURATION: Final = "^([0-9]{1,2}d)?([0-9]{1,3}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$"
"""A duration in Prometheus' syntax (``30s``, ``1h30m``); also matches the empty text, which is rejected separately."""

_UNITS: Final = {"d": (86400, "day"), "h": (3600, "hour"), "m": (60, "minute"), "s": (1, "second")}
_PART: Final = re.compile(r"([0-9]+)([dhms])")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    enabled: bool | None = None
    hold: str | None = None
    severity: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def enables(self, *, by_default: bool) -> bool:
        return by_default if self.enabled is None else self.enabled


@dataclass(frozen=True, slots=True)
class Settings:
    job: str = ".*gpu-triage.*"  # a regular expression that matches the full name of the exporters' scrape jobs
    cluster_label: str = "cluster"  # target label that identifies the cluster
    # Labels that identify replicas of a Prometheus server, for a ruler that reads from all of them.
    replica_labels: tuple[str, ...] = ()
    # Additional target labels that alerts about a GPU or host keep, for routing.
    routing_labels: tuple[str, ...] = ()
    # Base URL of the runbooks; by default, those served by the affected exporter, or by another if that one is down.
    # "" if readers can reach no exporter.
    runbook_base_url: str = "http://{{ $labels.instance }}/runbooks"
    # Command that prints the runbook named after it, for alerts without a URL.
    runbook_command: str = "gpu-triage explain"
    grafana_base_url: str = ""  # URL of Grafana; "" for no dashboard links
    # How many hosts, or which share of the targets of a job (and at least three), make one incident of a fleet if the
    # same fault begins on them within 30 minutes.
    fleet_hosts: float = 10
    fleet_share: float = 0.25
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, AlertSettings] = field(default_factory=dict)  # by key

    @property
    def clusters(self) -> str:
        return ", ".join((self.cluster_label, *self.replica_labels))

    @property
    def fleet(self) -> str:
        return f"{self.clusters}, job"

    @property
    def target(self) -> str:
        """The labels that identify a target, as a PromQL clause or the items of a YAML list."""
        return f"{self.fleet}, instance"

    @property
    def subject(self) -> str:
        """The target labels that alerts keep; with any other, a change of its value would create a new alert."""
        return ", ".join((self.target, "drill", "workload", *self.routing_labels))


DEFAULTS: Final = Settings()


def duration_seconds(text: str) -> int | None:
    """The length of a duration in seconds; None if the text is not a duration."""
    if not text or not re.fullmatch(DURATION, text):
        return None
    return sum(int(number) * _UNITS[unit][0] for number, unit in _PART.findall(text))


def duration_in_words(text: str) -> str:
    """A duration in words: ``10 minutes``, ``1 hour 30 minutes``."""
    parts = [(int(number), _UNITS[unit][1]) for number, unit in _PART.findall(text)]
    return " ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts if number) or "a moment"
