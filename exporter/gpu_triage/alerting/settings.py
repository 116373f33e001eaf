"""What an operator may set about the rules, and the forms that the values must have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SEVERITIES: Final = ("critical", "warning", "info", "none")
RESERVED_LABELS: Final = ("alertname", "severity", "action", "instance", "job", "cluster", "gpu", "uuid", "code")
"""Labels that rules, routes and inhibitions rely on."""

KEPT_LABELS: Final = (*RESERVED_LABELS, "drill", "workload")
"""Labels that are no choice for routing: alerts have them anyway, or they would tell apart what is one incident."""

RESERVED_ANNOTATIONS: Final = ("summary", "description", "runbook_url", "dashboard_uid", "dashboard_url")

MOST_LABELS: Final = 32
MOST_CHARACTERS: Final = 256

LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]{0,63}$"
TEXT: Final = r"^[^\x00-\x1f{}]+$"
"""A value of a label or an annotation: no control character, and nothing that a template or a placeholder begins with.
"""

JOB: Final = r"^([^$\x00-\x1f]|\$+[^${\x00-\x1f])*\$*$"  # a regular expression without what a placeholder begins with
GRAFANA_URL: Final = r"^https?://[^\s{}]+$"
RUNBOOK_URL: Final = r"^https?://([^\s{}]|\{\{ ?\$labels\.[a-zA-Z_][a-zA-Z0-9_]* ?\}\})+$"
"""The address may hold labels, such as ``{{ $labels.instance }}``."""

DURATION: Final = "^([0-9]{1,2}d)?([0-9]{1,3}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$"
"""A duration as Prometheus writes it (``30s``, ``1h30m``), apart from the empty text."""

_UNITS: Final = {"d": (86400, "day"), "h": (3600, "hour"), "m": (60, "minute"), "s": (1, "second")}
_PART: Final = re.compile(r"([0-9]+)([dhms])")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What is set about one alert; None for its default."""

    enabled: bool | None = None
    hold: str | None = None
    severity: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def enables(self, *, by_default: bool) -> bool:
        """Whether the alert is in the rules."""
        return by_default if self.enabled is None else self.enabled


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set about all rules."""

    job: str = ".*gpu-triage.*"  # a regular expression that matches the whole name of the exporters' scrape jobs
    cluster_label: str = "cluster"  # the targets' label that tells clusters apart
    # Labels that tell replicas of one Prometheus apart, where a ruler sees them all.
    replica_labels: tuple[str, ...] = ()
    # Further labels of the targets that alerts about a GPU or a host keep, to route them by.
    routing_labels: tuple[str, ...] = ()
    # Where runbooks are; by default at the exporter that the alert is about.
    runbook_base_url: str = "http://{{ $labels.instance }}/runbooks"
    grafana_base_url: str = ""  # Grafana's address; "" for no link to a dashboard
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, AlertSettings] = field(default_factory=dict)  # by key

    @property
    def clusters(self) -> str:
        """The labels that targets of one cluster share."""
        return ", ".join((self.cluster_label, *self.replica_labels))

    @property
    def fleet(self) -> str:
        """The labels that targets of one job share."""
        return f"{self.clusters}, job"

    @property
    def target(self) -> str:
        """The labels that identify a target, as a clause of PromQL or a list of YAML has them."""
        return f"{self.fleet}, instance"

    @property
    def subject(self) -> str:
        """The labels of a target that its alerts have; each other one would make a new alert where it changes."""
        return ", ".join((self.target, "drill", "workload", *self.routing_labels))


DEFAULTS: Final = Settings()


def duration_seconds(text: str) -> int | None:
    """How long a duration is; None if the text is none."""
    if not text or not re.fullmatch(DURATION, text):
        return None
    return sum(int(number) * _UNITS[unit][0] for number, unit in _PART.findall(text))


def duration_in_words(text: str) -> str:
    """A duration as prose has it: ``10 minutes``, ``1 hour 30 minutes``."""
    parts = [(int(number), _UNITS[unit][1]) for number, unit in _PART.findall(text)]
    return " ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts if number) or "a moment"
