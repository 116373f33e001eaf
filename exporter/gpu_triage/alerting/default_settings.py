"""The default settings as a YAML file with comments, to start one's own from."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpu_triage.alerting.settings import DEFAULTS, RESERVED_LABELS, SEVERITIES
from gpu_triage.alerting.sources import Alert, RuleSource
from gpu_triage.alerting.tokens import plain

_HEAD = f"""\
# Settings of the alert rules, with their defaults. Keep what you change and delete the rest: what is not here keeps its
# default, also in later versions.
#
#   gpu-triage rules --config rules.yaml --output DIR

# Regular expression that matches the whole name of the exporters' scrape jobs.
job: {json.dumps(DEFAULTS.job)}
# Label of the targets that tells clusters apart. Targets need not have it.
cluster_label: {DEFAULTS.cluster_label}
# Labels that tell the replicas of one Prometheus apart, if a ruler evaluates the rules over the series of all of them.
replica_labels: []
# Where the runbooks are. By default, every exporter serves them.
runbook_base_url: {json.dumps(DEFAULTS.runbook_base_url)}
# Grafana's address, for links to the dashboards. Without it, alerts carry the dashboard's uid only.
#grafana_base_url: https://grafana.example.org
# Labels on every alert, such as {{team: ml}}. These belong to the rules:
# {", ".join(RESERVED_LABELS)}.
labels: {{}}
# Annotations on every alert, such as {{channel: gpu-oncall}}.
annotations: {{}}

# For each alert: enabled (true or false), for (how long its condition holds before it fires; 0s to 7d), severity
# ({", ".join(SEVERITIES)}), labels and thresholds, with their ranges. An alert whose name ends in a dot and a word is
# a second condition of the alert that is named before the dot.
alerts:
"""


def default_settings(sources: tuple[RuleSource, ...]) -> str:
    """The file's text; ends with a newline."""
    lines = [_HEAD.rstrip("\n")]
    for source in sources:
        alerts = tuple(source.alerts)
        if alerts:
            lines += ["", *(f"  # {line}".rstrip() for line in source.about.split("\n\n")[0].splitlines())]
        for alert in alerts:
            lines += _alert(alert)
    return "\n".join(lines) + "\n"


def _alert(alert: Alert) -> Iterator[str]:
    yield f"  {alert.key}:"
    yield "    enabled: true"
    yield f"    for: {alert.hold or '0s'}"
    yield f"    severity: {alert.severity}"
    if alert.thresholds:
        yield "    thresholds:"
    for name, each in alert.thresholds.items():
        yield f"      # {each.about} ({plain(each.low)} to {plain(each.high)})"
        yield f"      {name}: {plain(each.value)}"
