"""What an operator may set about the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SEVERITIES: Final = ("critical", "warning", "info", "none")
RESERVED_LABELS: Final = ("alertname", "severity", "action", "instance", "job", "cluster", "gpu", "uuid")
"""Labels that rules, routes and inhibitions rely on."""

RESERVED_ANNOTATIONS: Final = ("summary", "description", "runbook_url", "dashboard_uid", "dashboard_url")

MOST_LABELS: Final = 32
MOST_CHARACTERS: Final = 256

LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]{0,63}$"
TEXT: Final = r"^[^\x00-\x1f{}]+$"
"""A value of a label or an annotation: no control character, and nothing that a template or a token begins with."""

JOB: Final = r"^([^$\x00-\x1f]|\$+[^${\x00-\x1f])*\$*$"
"""A regular expression without what a token begins with."""

GRAFANA_URL: Final = r"^https?://[^\s{}]+$"
RUNBOOK_URL: Final = r"^https?://([^\s{}]|\{\{ ?\$labels\.[a-zA-Z_][a-zA-Z0-9_]* ?\}\})+$"
"""The address may hold labels, such as ``{{ $labels.instance }}``."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What is set about one alert; None for its default."""

    enabled: bool = True
    hold: str | None = None
    severity: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set about all rules.

    Attributes:
        job: a regular expression that matches the whole name of the exporters' scrape jobs.
        cluster_label: the targets' label that tells clusters apart.
        replica_labels: labels that tell replicas of one Prometheus apart, where a ruler sees them all.
        runbook_base_url: where runbooks are; by default at the exporter that the alert is about.
        grafana_base_url: Grafana's address; "" for no link to a dashboard.
        labels, annotations: on every alert.
        alerts: by key.
    """

    job: str = ".*gpu-triage.*"
    cluster_label: str = "cluster"
    replica_labels: tuple[str, ...] = ()
    runbook_base_url: str = "http://{{ $labels.instance }}/runbooks"
    grafana_base_url: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, AlertSettings] = field(default_factory=dict)

    @property
    def fleet(self) -> str:
        """The labels that targets of one job share."""
        return ", ".join((self.cluster_label, *self.replica_labels, "job"))

    @property
    def target(self) -> str:
        """The labels that identify a target, as a clause of PromQL or a list of YAML has them."""
        return f"{self.fleet}, instance"


DEFAULTS: Final = Settings()
