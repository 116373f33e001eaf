"""Rule settings as a YAML document: reads a settings file, and prints one with the defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from gpu_triage.alerting.placeholders import plain
from gpu_triage.alerting.rule_source import Alert, RuleSource
from gpu_triage.alerting.settings import (
    DEFAULTS,
    FLEET_HOSTS,
    FLEET_SHARE,
    GRAFANA_URL,
    JOB,
    KEPT_LABELS,
    LABEL_NAME,
    MOST_CHARACTERS,
    MOST_LABELS,
    RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
    RUNBOOK_URL,
    SEVERITIES,
    TEXT,
    AlertSettings,
    Settings,
    duration_seconds,
)
from gpu_triage.documents import (
    AtMost,
    Keyed,
    Parsed,
    Pattern,
    Place,
    Range,
    parse_yaml,
    raised_as,
    read_file,
    read_value,
)
from gpu_triage.errors import ConfigError

_NOT_RE2: Final = re.compile(r"\(\?(=|!|<=|<!|P=)|\\[1-9]")
_LONGEST_HOLD: Final = "7d"

_DEFAULTS_HEAD: Final = f"""\
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
# Further labels of the targets that alerts about a GPU or a host keep, to route them by, such as [zone, team].
routing_labels: []
# Where the runbooks are. By default, every exporter serves them. "" if nobody can reach an exporter with a browser.
runbook_base_url: {json.dumps(DEFAULTS.runbook_base_url)}
# What to run where there is no such address: this command, with the alert's name.
runbook_command: {DEFAULTS.runbook_command}
# Grafana's address, for links to the dashboards. Without it, alerts carry the dashboard's uid only.
#grafana_base_url: https://grafana.example.org
# One alert reports all hosts on which the same fault begins within 30 minutes, if they are so many (3 to 10000).
fleet_hosts: {plain(DEFAULTS.fleet_hosts)}
# Or if they are this share of the targets of their job, and at least three (0.01 to 1).
fleet_share: {plain(DEFAULTS.fleet_share)}
# Labels on every alert, such as {{team: ml}}. These belong to the rules:
# {", ".join(RESERVED_LABELS)}.
labels: {{}}
# Annotations on every alert, such as {{channel: gpu-oncall}}.
annotations: {{}}

# For each alert: enabled (true or false), severity ({", ".join(SEVERITIES)}), labels and, where Prometheus
# judges, for (how long its condition holds before it fires; 0s to 7d) and thresholds, with their ranges. Waits and
# thresholds of all other alerts are options of the exporter (gpu-triage judge --print-config). An alert whose name ends
# in a dot and a word is a second rule of the alert that is named before the dot.
alerts:"""


def read_settings(path: str, alerts: Mapping[str, Alert]) -> Settings:
    """Read the settings in a file; an empty file changes nothing. `alerts` are all configurable alerts, by key.

    Raises:
        ConfigError: the file is unreadable or isn't YAML, or a key or value is invalid.
    """
    with raised_as(ConfigError):
        document = parse_yaml(read_file(path), path)
        found = read_value(_document(alerts, _target_labels(document)), document, Place(path))
    chosen = found.pop("alerts", {})
    return Settings(
        **found, alerts={key: AlertSettings(hold=each.pop("for", None), **each) for key, each in chosen.items()}
    )


def default_settings(sources: tuple[RuleSource, ...]) -> str:
    """A document with every default, each with an explanatory comment; ends with a newline."""
    lines = [_DEFAULTS_HEAD]
    for source in sources:
        alerts = tuple(source.alerts)
        if alerts:
            lines += ["", *(f"  # {line}".rstrip() for line in source.about.split("\n\n")[0].splitlines())]
        for alert in alerts:
            lines += _alert_defaults(alert)
    return "\n".join(lines) + "\n"


def _alert_defaults(alert: Alert) -> Iterator[str]:
    yield f"  {alert.key}:"
    yield f"    enabled: {str(alert.enabled).lower()}"
    if not alert.codes:
        yield f"    for: {alert.hold or '0s'}"
    yield f"    severity: {alert.severity}"
    if alert.thresholds:
        yield "    thresholds:"
    for name, each in alert.thresholds.items():
        yield f"      # {each.about} ({plain(each.low)} to {plain(each.high)})"
        yield f"      {name}: {plain(each.value)}"


def _parse_job(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"this is not a regular expression: {error}") from error
    if unsupported := _NOT_RE2.search(text):
        raise ValueError(f"Prometheus does not support {unsupported[0]} in regular expressions; leave it out")
    return text


def _parse_unreserved(reserved: tuple[str, ...]) -> Callable[[str], str]:
    def name(text: str) -> str:
        if text in reserved:
            raise ValueError("belongs to the rules; choose another name")
        return text

    return name


def _parse_routing(kept: tuple[str, ...]) -> Callable[[str], str]:
    def name(text: str) -> str:
        if text in kept:
            raise ValueError("alerts have this label anyway, or it belongs to the rules; leave it out")
        return text

    return name


def _parse_hold(text: str) -> str:
    length = duration_seconds(text)
    if length is None:
        raise ValueError("write a duration with its unit, such as 30s, 15m or 1h30m")
    if length > (duration_seconds(_LONGEST_HOLD) or 0):
        raise ValueError(f"the longest is {_LONGEST_HOLD}")
    return text


def _refuse_judged(code: str) -> Callable[[Any], Any]:
    def refuse(_written: Any) -> Any:
        raise ValueError(
            f"the exporter decides this; set judge.{code} in its configuration "
            "(gpu-triage judge --print-config lists what there is)"
        )

    return refuse


_WITHOUT_SLASH: Final = Parsed(lambda text: text.rstrip("/"))
_A_JOB: Final = f"a regular expression of at most {MOST_CHARACTERS} characters, such as .*gpu-triage.*"
_A_TEXT: Final = f"one line of at most {MOST_CHARACTERS} characters without braces"
_A_WIKI: Final = (
    "the address that the runbooks are below, such as https://wiki.example.org/runbooks; "
    "of templates it may hold {{ $labels.instance }} and other labels; empty for none"
)
_A_GRAFANA: Final = "Grafana's address, such as https://grafana.example.org"

_Job = Annotated[str, Pattern(f"(?=.){JOB}", _A_JOB), AtMost(MOST_CHARACTERS), Parsed(_parse_job)]
_LabelText = Annotated[str, Pattern(TEXT, _A_TEXT), AtMost(MOST_CHARACTERS)]
_GrafanaUrl = Annotated[str, Pattern(GRAFANA_URL, _A_GRAFANA), AtMost(MOST_CHARACTERS), _WITHOUT_SLASH]
_RunbookUrl = Annotated[str, Pattern(RUNBOOK_URL, _A_WIKI), AtMost(MOST_CHARACTERS), _WITHOUT_SLASH]
_LabelName = Annotated[
    str, Pattern(LABEL_NAME, "a name that begins with a letter and has only letters, digits and underscores")
]


def _target_labels(document: Any) -> tuple[str, ...]:
    """The target labels configured in the document, which alerts therefore can't use."""
    if not isinstance(document, dict):
        return ()
    replicas = document.get("replica_labels")
    found = [document.get("cluster_label"), *(replicas if isinstance(replicas, list) else ())]
    return tuple(each for each in found if isinstance(each, str))


def _document(alerts: Mapping[str, Alert], target_labels: tuple[str, ...]) -> Keyed:
    labels = _texts((*RESERVED_LABELS, *target_labels))
    routing = Annotated[_LabelName, Parsed(_parse_routing((*KEPT_LABELS, *target_labels)))]
    by_alert = {key: _alert(alert, labels) for key, alert in alerts.items()}
    return Keyed(
        {
            "job": _Job,
            "cluster_label": _LabelName,
            "replica_labels": Annotated[tuple[_LabelName, ...], AtMost(MOST_LABELS)],
            "routing_labels": Annotated[tuple[routing, ...], AtMost(MOST_LABELS)],
            "runbook_base_url": _RunbookUrl,
            "runbook_command": _LabelText,
            "grafana_base_url": _GrafanaUrl,
            "fleet_hosts": Annotated[float, Range(*FLEET_HOSTS)],
            "fleet_share": Annotated[float, Range(*FLEET_SHARE)],
            "labels": labels,
            "annotations": _texts(RESERVED_ANNOTATIONS),
            "alerts": Keyed(by_alert, "alert", "gpu-triage rules --print-config lists them all"),
        }
    )


def _texts(reserved: tuple[str, ...]) -> Any:
    name = Annotated[_LabelName, Parsed(_parse_unreserved(reserved))]
    return Annotated[dict[name, _LabelText], AtMost(MOST_LABELS)]


def _alert(alert: Alert, labels: Any) -> Keyed:
    settings = {"enabled": bool, "severity": Literal["critical", "warning", "info", "none"], "labels": labels}
    if alert.codes:
        refuse = _refuse_judged(alert.codes[0])
        thresholds = Annotated[Any, Parsed(refuse, written=dict[str, str])]
        return Keyed(settings | {"for": Annotated[str, Parsed(refuse)], "thresholds": thresholds})
    limits = {name: Annotated[float, Range(each.low, each.high)] for name, each in alert.thresholds.items()}
    hold = Annotated[str, Parsed(_parse_hold)]
    return Keyed(settings | {"for": hold, "thresholds": Keyed(limits, "threshold")})
