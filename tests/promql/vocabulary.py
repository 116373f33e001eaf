"""The words that labels can hold, as the code that makes them has them, and the labels of every series."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.promql.expressions import recorded_labels
from tests.rules.rulefile import Rule
from tests.rules.schedulers import exposed

from gpu_triage.driver.nvml.nvml_errors import NAMES
from gpu_triage.judge.findings.table import CHECKS, Action, Severity
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.metrics.metric import Kind
from gpu_triage.read.registry import METRICS, SUBJECTS
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.host_gpus import DRIVER_UNAVAILABLE, MISSING

TARGET_LABELS: Final = frozenset({"cluster", "instance", "job", "workload", "drill", "recorded_from"})
"""Labels that a scrape configuration attaches to every series of a target; the last one, the rules of compat/."""

CLASSES: Final = BOTTLENECK_CLASSES
SEVERITIES_OF_ALERTS: Final = frozenset({"none", *(severity.value for severity in Severity)})
ACTIONS: Final = frozenset(action.value for action in Action)

_OF_ALERTS: Final = ("alertname", "severity", "action", "uuid", "owner", "code")
ELSEWHERE: Final[Mapping[str, tuple[Kind, tuple[str, ...]]]] = {
    "up": (Kind.GAUGE, ("leaf", "rack")),
    "process_start_time_seconds": (Kind.GAUGE, ()),
    "scrape_duration_seconds": (Kind.GAUGE, ()),
    "prometheus_rule_group_last_evaluation_timestamp_seconds": (Kind.GAUGE, ("rule_group",)),
    "prometheus_notifications_alertmanagers_discovered": (Kind.GAUGE, ()),
    "ALERTS": (Kind.GAUGE, (*_OF_ALERTS, "alertstate", "gpu", "job_name", "subject")),
    "ALERTS_FOR_STATE": (Kind.GAUGE, (*_OF_ALERTS, "pci_bus_id", "collector", "field", "name", "rank")),
    "gpu_job_steps_total": (Kind.COUNTER, ("job_name", "owner", "rank")),
    "gpu_job_samples_total": (Kind.COUNTER, ("job_name", "owner")),
    "gpu_job_step_seconds_bucket": (Kind.COUNTER, ("job_name", "owner", "le")),
    "gpu_job_step_seconds_sum": (Kind.COUNTER, ("job_name", "owner")),
    "gpu_job_step_seconds_count": (Kind.COUNTER, ("job_name", "owner")),
    "nccl_collective_exec_time_microseconds": (
        Kind.GAUGE,
        ("gpu", "uuid", "owner", "slurm_job_id", "comm_name", "collective", "message_size"),
    ),
    "ipmi_sensor_state": (Kind.GAUGE, ("id", "name", "type")),
    "ipmi_power_state": (Kind.GAUGE, ("id", "name")),
    "ipmi_fan_speed_state": (Kind.GAUGE, ("id", "name")),
    "ipmi_temperature_state": (Kind.GAUGE, ("id", "name")),
    "ipmi_chassis_power_state": (Kind.GAUGE, ()),
    "node_hwmon_fan_rpm": (Kind.GAUGE, ("chip", "sensor")),
    "node_hwmon_fan_min_rpm": (Kind.GAUGE, ("chip", "sensor")),
    "kube_pod_labels": (Kind.INFO, ("namespace", "pod", "label_team")),
    "kube_node_spec_unschedulable": (Kind.GAUGE, ("node",)),
    **{name: (Kind.GAUGE, tuple(label for label, _ in labels)) for name, labels in exposed()},
}
"""Series that are neither the exporter's nor recorded: of Prometheus, of jobs' files, of other exporters."""

OF_OTHER_TARGETS: Final = frozenset({"kube_pod_labels", "kube_node_spec_unschedulable"})
"""Those whose job and instance are not the hosts'."""

_ERRORS = frozenset({*NAMES.values(), STALLED, MISSING, DRIVER_UNAVAILABLE, "library_invalid"})
_COLLECTORS = frozenset(subject.name for subject in SUBJECTS)
_XIDS = frozenset(map(str, range(1, 300)))
_FINDINGS = tuple(spec for spec in METRICS if spec.name.startswith(("gpu_finding", "gpu_host_finding")))


def _known_elsewhere() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Metrics, labels and words that the metric's subject cannot know."""
    yield "ALERTS", "action", ACTIONS
    yield "ALERTS", "severity", SEVERITIES_OF_ALERTS
    known = {
        "action": ACTIONS,
        "severity": SEVERITIES_OF_ALERTS - {"none"},
        "code": frozenset(check.code for check in CHECKS),
    }
    yield "instance_code:gpu_exporter_target:down_since", "code", frozenset({"host.down"})
    for spec in _FINDINGS:
        yield from ((spec.name, label, known[label]) for label in known.keys() & set(spec.labels))
    for metric in ("gpu_error_info", "gpu_driver_error_info"):
        yield metric, "error", _ERRORS
    for spec in METRICS:
        if "xid" in spec.labels:
            yield spec.name, "xid", _XIDS
        if "collector" in spec.labels and "function" not in spec.labels:
            yield spec.name, "collector", _COLLECTORS


def _by_label() -> Mapping[str, Mapping[str, frozenset[str]]]:
    declared = ((spec.name, label, frozenset(said)) for spec in METRICS for label, said in spec.label_values.items())
    found: defaultdict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for metric, label, said in (*declared, *_known_elsewhere()):
        found[label][metric] = said
    return found


WORDS: Final = _by_label()
"""By label, the words it can hold in each metric that has it; a label not listed holds names, not words."""


def words(metric: str, label: str) -> frozenset[str] | None:
    """What a label can hold: in this metric, or where that is recorded, in any; None where it can hold anything."""
    by_metric = WORDS.get(label, {})
    if ":" in metric and by_metric:
        return frozenset().union(*by_metric.values())
    return by_metric.get(metric)


def kinds() -> dict[str, Kind]:
    """Kind of every series that is not recorded."""
    return {spec.name: spec.kind for spec in METRICS} | {name: kind for name, (kind, _) in ELSEWHERE.items()}


def series_labels(rules: tuple[Rule, ...]) -> Callable[[str], frozenset[str]]:
    """Labels that the series of a name can carry, recorded ones included.

    The function raises KeyError for a name that nothing makes.
    """
    base = {spec.name: frozenset(spec.labels) | TARGET_LABELS for spec in METRICS}
    base |= {name: frozenset(labels) | TARGET_LABELS for name, (_, labels) in ELSEWHERE.items()}
    records: dict[str, tuple[tuple[str, Mapping[str, str]], ...]] = {}
    for rule in rules:
        if not rule.alert:
            records[rule.name] = (*records.get(rule.name, ()), (rule.expr, rule.labels))
    return recorded_labels(records, base.__getitem__)
