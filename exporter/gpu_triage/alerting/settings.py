"""User settings for the rules: read from a YAML file, or printed with their defaults."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from string import Template
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from gpu_triage.alerting.rule_source import SETTINGS, SOURCE, Alert, RuleSource
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

_Severity = Literal["critical", "warning", "info", "none"]
SEVERITIES: Final = get_args(_Severity)
RESERVED_LABELS: Final = (
    *("alertname", "severity", "action", "instance", "job", "cluster"),
    *("gpu", "uuid", "pci_bus_id", "code"),
)
"""Labels that the rules, routes and inhibitions depend on."""

KEPT_LABELS: Final = (*RESERVED_LABELS, "drill", "workload")
"""Labels that can't be chosen for routing: alerts have them anyway, or they would split one incident into several."""

RESERVED_ANNOTATIONS: Final = ("summary", "description", "runbook_url", "dashboard_uid", "dashboard_url")

MOST_LABELS: Final = 32
MOST_CHARACTERS: Final = 256

DURATION: Final = "^([0-9]{1,2}d)?([0-9]{1,3}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$"
"""A duration in Prometheus' syntax (``30s``, ``1h30m``); also matches the empty text, which is rejected separately."""

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_PART: Final = re.compile(r"([0-9]+)([dhms])")


_NOT_RE2: Final = re.compile(r"\(\?(=|!|<=|<!|P=)|\\[1-9]")


def _parse_job(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"this is not a regular expression: {error}") from error
    if unsupported := _NOT_RE2.search(text):
        raise ValueError(f"Prometheus does not support {unsupported[0]} in regular expressions; leave it out")
    return text


LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]{0,63}$"
_A_NAME: Final = "a name that begins with a letter and has only letters, digits and underscores"
_LabelName = Annotated[str, Pattern(LABEL_NAME, _A_NAME), AtMost(MOST_CHARACTERS)]
_LabelNames = Annotated[tuple[_LabelName, ...], AtMost(MOST_LABELS)]

# No control characters, and no braces as in templates and placeholders.
_A_TEXT: Final = f"one line of at most {MOST_CHARACTERS} characters without braces"
LabelText = Annotated[str, Pattern(r"^[^\x00-\x1f{}]+$", _A_TEXT), AtMost(MOST_CHARACTERS)]

# A regular expression that can't contain a placeholder.
_A_JOB: Final = f"a regular expression of at most {MOST_CHARACTERS} characters, such as .*gpu-triage.*"
_JOB: Final = Pattern(r"^([^$\x00-\x1f]|\$+[^${\x00-\x1f])+\$*$", _A_JOB)
_Job = Annotated[str, _JOB, AtMost(MOST_CHARACTERS), Parsed(_parse_job)]

# The URL may contain labels, such as ``{{ $labels.instance }}``; it may be empty.
_RUNBOOKS: Final = Pattern(
    r"^(https?://([^\s{}]|\{\{ ?\$labels\.[a-zA-Z_][a-zA-Z0-9_]* ?\}\})+)?$",
    "the address that the runbooks are below, such as https://wiki.example.org/runbooks; "
    "of templates it may hold {{ $labels.instance }} and other labels; empty for none",
)
_GRAFANA: Final = Pattern(r"^https?://[^\s{}]+$", "Grafana's address, such as https://grafana.example.org")
_WITHOUT_SLASH: Final = Parsed(lambda text: text.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Settings:
    job: _Job = ".*gpu-triage.*"  # a regular expression that matches the full name of the exporters' scrape jobs
    cluster_label: _LabelName = "cluster"  # target label that identifies the cluster
    # Labels that identify replicas of a Prometheus server, for a ruler that reads from all of them.
    replica_labels: _LabelNames = ()
    # Additional target labels that alerts about a GPU or host keep, for routing.
    routing_labels: _LabelNames = ()
    # Base URL of the runbooks; by default, those served by the affected exporter, or by another if that one is down.
    # "" if readers can reach no exporter.
    runbook_base_url: Annotated[str, _RUNBOOKS, AtMost(MOST_CHARACTERS), _WITHOUT_SLASH] = (
        "http://{{ $labels.instance }}/runbooks"
    )
    # Command that prints the runbook named after it, for alerts without a URL.
    runbook_command: LabelText = "gpu-triage explain"
    # URL of Grafana; "" for no dashboard links.
    grafana_base_url: Annotated[str, _GRAFANA, AtMost(MOST_CHARACTERS), _WITHOUT_SLASH] = ""
    # How many hosts, or which share of the targets of a job (and at least three), make one incident of a fleet if the
    # same fault begins on them within 30 minutes.
    fleet_hosts: Annotated[float, Range(3, 10_000)] = 10
    fleet_share: Annotated[float, Range(0.01, 1)] = 0.25
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    alerts: Mapping[str, Alert] = field(default_factory=dict)  # those with settings of their own, by key

    @property
    def fleet(self) -> str:
        return ", ".join((self.cluster_label, *self.replica_labels, "job"))

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
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))


_LONGEST_HOLD_DAYS: Final = 7


def plain(number: float) -> str:
    """Format a number without exponent or trailing zeros, as the Helm template does."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def read_settings(path: str, alerts: Mapping[str, Alert]) -> Settings:
    """Read the settings, for all configurable `alerts` by key. Raises ConfigError if the file or a value is invalid."""
    with raised_as(ConfigError):
        document = parse_yaml(read_file(path), path)
        found = read_value(_document(alerts, _target_labels(document)), document, Place(path))
    changed = {key: _changed(alerts[key], **each) for key, each in found.pop("alerts", {}).items()}
    return Settings(**found, alerts=changed)


def _changed(alert: Alert, **settings: Any) -> Alert:
    numbers = settings.pop("thresholds", {})
    thresholds = {name: replace(each, value=numbers.get(name, each.value)) for name, each in alert.thresholds.items()}
    labels = alert.labels | settings.pop("labels", {})
    return replace(alert, hold=settings.pop("for", alert.hold), thresholds=thresholds, labels=labels, **settings)


def default_settings(sources: tuple[RuleSource, ...]) -> str:
    """A document with every default, each with an explanatory comment; ends with a newline."""
    lists = {"reserved": ", ".join(RESERVED_LABELS), "severities": ", ".join(SEVERITIES)}
    head = Template((SOURCE / SETTINGS).read_text(encoding="utf-8"))
    lines = [head.substitute(asdict(DEFAULTS) | lists).rstrip()]
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


def _refuse(problem: str, names: Collection[str] | None = None) -> Callable[[Any], Any]:
    """A parser that accepts nothing, or if there are names, everything else."""

    def parse(written: Any) -> Any:
        if names is None or written in names:
            raise ValueError(problem)
        return written

    return parse


def _parse_hold(text: str) -> str:
    length = duration_seconds(text)
    if length is None:
        raise ValueError("write a duration with its unit, such as 30s, 15m or 1h30m")
    if length > _LONGEST_HOLD_DAYS * _UNITS["d"]:
        raise ValueError(f"the longest is {_LONGEST_HOLD_DAYS}d")
    return text


def _target_labels(document: Any) -> tuple[str, ...]:
    """The target labels configured in the document, which alerts therefore can't use."""
    if not isinstance(document, dict):
        return ()
    replicas = document.get("replica_labels")
    found = [document.get("cluster_label"), *(replicas if isinstance(replicas, list) else ())]
    return tuple(each for each in found if isinstance(each, str))


def _document(alerts: Mapping[str, Alert], target_labels: tuple[str, ...]) -> Keyed:
    labels = _texts((*RESERVED_LABELS, *target_labels))
    kept = "alerts have this label anyway, or it belongs to the rules; leave it out"
    routing = Annotated[_LabelName, Parsed(_refuse(kept, (*KEPT_LABELS, *target_labels)))]
    by_alert = {key: _alert(alert, labels) for key, alert in alerts.items()}
    dynamic = {
        "routing_labels": Annotated[tuple[routing, ...], AtMost(MOST_LABELS)],
        "labels": labels,
        "annotations": _texts(RESERVED_ANNOTATIONS),
        "alerts": Keyed(by_alert, "alert", "gpu-triage rules --print-config lists them all"),
    }
    return Keyed(get_type_hints(Settings, include_extras=True) | dynamic)


def _texts(reserved: tuple[str, ...]) -> Any:
    name = Annotated[_LabelName, Parsed(_refuse("belongs to the rules; choose another name", reserved))]
    return Annotated[dict[name, LabelText], AtMost(MOST_LABELS)]


def _alert(alert: Alert, labels: Any) -> Keyed:
    settings = {"enabled": bool, "severity": _Severity, "labels": labels}
    if alert.codes:
        refuse = _refuse(
            f"the exporter decides this; set judge.{alert.codes[0]} in its configuration "
            "(gpu-triage judge --print-config lists what there is)"
        )
        thresholds = Annotated[Any, Parsed(refuse, written=dict[str, str])]
        return Keyed(settings | {"for": Annotated[str, Parsed(refuse)], "thresholds": thresholds})
    limits = {name: Annotated[float, Range(each.low, each.high)] for name, each in alert.thresholds.items()}
    hold = Annotated[str, Parsed(_parse_hold)]
    return Keyed(settings | {"for": hold, "thresholds": Keyed(limits, "threshold")})
