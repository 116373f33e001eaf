"""The words that labels can hold, as the code that makes them has them, and the labels of every series."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.rules.expressions import recorded_labels
from tests.rules.rulefile import Rule

from gpu_triage.catalogue import BOTTLENECK_CLASSES, Kind
from gpu_triage.collectors import judgement
from gpu_triage.collectors.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.diagnosis.codes import CHECKS
from gpu_triage.hardware.clocks import CLOCKS
from gpu_triage.hardware.ecc import SEVERITIES
from gpu_triage.hardware.host_cpu import MODES
from gpu_triage.hardware.memory_repair import BANK_AVAILABILITIES, RETIREMENT_CAUSES
from gpu_triage.hardware.modes import COMPUTE_MODES
from gpu_triage.hardware.nvlink import CRC, RECOVERY, REPLAY
from gpu_triage.hardware.nvml_errors import NAMES
from gpu_triage.hardware.pcie_errors import TYPE_FIELDS
from gpu_triage.hardware.throttle import REASONS, UNKNOWN
from gpu_triage.hardware.topology import CAPABILITIES, LEVELS, P2P_STATUSES
from gpu_triage.reference import catalogue_specs
from gpu_triage.sampler.fleet import DRIVER_UNAVAILABLE, MISSING, STALLED

TARGET_LABELS: Final = frozenset({"cluster", "instance", "job", "workload", "drill"})
"""Labels that a scrape configuration attaches to every series of a target."""

CLASSES: Final = BOTTLENECK_CLASSES
SEVERITIES_OF_ALERTS: Final = frozenset({"critical", "warning", "info", "none"})
ACTIONS: Final = frozenset({"drain", "reset", "inspect_hardware", "fix_host", "fix_job", "none"})

ELSEWHERE: Final[Mapping[str, tuple[Kind, tuple[str, ...]]]] = {
    "up": (Kind.GAUGE, ()),
    "process_start_time_seconds": (Kind.GAUGE, ()),
    "ALERTS": (Kind.GAUGE, ("alertname", "alertstate", "severity", "action", "gpu", "uuid")),
    "gpu_job_steps_total": (Kind.COUNTER, ("job_name",)),
    "gpu_job_samples_total": (Kind.COUNTER, ("job_name",)),
    "gpu_job_step_seconds_bucket": (Kind.COUNTER, ("job_name", "le")),
    "gpu_job_step_seconds_sum": (Kind.COUNTER, ("job_name",)),
    "gpu_job_step_seconds_count": (Kind.COUNTER, ("job_name",)),
}
"""Series that are neither in the catalogue nor recorded: Prometheus's own, and those of jobs' files."""

_ERRORS = frozenset({*NAMES.values(), STALLED, MISSING, DRIVER_UNAVAILABLE, "library_invalid"})
_COLLECTORS = frozenset(
    {
        *(c.name for c in GPU_COLLECTORS),
        *(c.name for c in HOST_COLLECTORS),
        "presence",
        "exporter",
        "xid",
        "baseline",
        "incidents",
        judgement.NAME,
    }
)
_DIRECTIONS = frozenset({"receive", "transmit"})
_FINDINGS = ("gpu_finding_since_timestamp_seconds", "gpu_host_finding_since_timestamp_seconds")

WORDS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "action": {"ALERTS": ACTIONS, **dict.fromkeys(_FINDINGS, ACTIONS)},
    "attribute": {"gpu_pcie_link_transitions_total": frozenset({"generation", "width"})},
    "availability": {"gpu_row_remap_banks": frozenset(BANK_AVAILABILITIES)},
    "capability": {"gpu_p2p_status": frozenset(CAPABILITIES)},
    "cause": {
        "gpu_retired_pages": frozenset(RETIREMENT_CAUSES),
        "gpu_remapped_rows": frozenset({"correctable", "uncorrectable"}),
    },
    "class": {},
    "code": dict.fromkeys(_FINDINGS, frozenset(check.code for check in CHECKS)),
    "clock": {f"gpu_clock_{what}hertz": frozenset(CLOCKS) for what in ("", "max_", "target_", "default_")},
    "collector": {
        f"gpu_exporter_{what}": _COLLECTORS
        for what in (
            "collector_success",
            "collector_duration_seconds",
            "collector_interval_seconds",
            "collector_last_success_timestamp_seconds",
            "errors_total",
        )
    },
    "device": {"gpu_pcie_aer_errors_total": frozenset({"gpu", "port"})},
    "direction": {
        "gpu_pcie_throughput_bytes_per_second": _DIRECTIONS,
        "gpu_host_network_errors_total": _DIRECTIONS,
        "gpu_host_network_drops_total": _DIRECTIONS,
        "gpu_host_nfs_bytes_total": frozenset({"read", "write"}),
    },
    "error": {"gpu_error_info": _ERRORS, "gpu_driver_error_info": _ERRORS},
    "by": {"gpu_incidents_recent": frozenset({"board", "slot"})},
    "days": dict.fromkeys(("gpu_incidents_recent", "gpu_incident_boards_recent"), frozenset({"7", "30"})),
    "fatal": {},
    "kind": {"gpu_host_pressure_seconds_total": frozenset({"some", "full"})},
    "level": {
        "gpu_topology_info": frozenset(LEVELS.values()),
        "gpu_nic_topology_info": frozenset(LEVELS.values()),
    },
    "mode": {
        "gpu_host_cpu_seconds_total": frozenset(MODES),
        "gpu_compute_mode_info": frozenset(COMPUTE_MODES.values()),
    },
    "reason": {f"gpu_throttle_{what}": frozenset({*REASONS, UNKNOWN}) for what in ("active", "seconds_total")},
    "resource": {"gpu_host_pressure_seconds_total": frozenset({"cpu", "io", "memory"})},
    "sensor": {"gpu_temperature_celsius": frozenset({"gpu", "memory"})},
    "severity": {
        "gpu_pcie_aer_errors_total": frozenset({"correctable", "nonfatal", "fatal"}),
        "gpu_ecc_volatile_errors_total": frozenset(SEVERITIES),
        "gpu_ecc_aggregate_errors_total": frozenset(SEVERITIES),
        "ALERTS": SEVERITIES_OF_ALERTS,
        **dict.fromkeys(_FINDINGS, SEVERITIES_OF_ALERTS - {"none"}),
    },
    "source": {
        "gpu_devices": frozenset({"nvml", "pci", "expected", "boot"}),
        "gpu_exporter_xid_source_up": frozenset({"nvml", "kmsg"}),
    },
    "status": {"gpu_p2p_status": frozenset({*P2P_STATUSES.values(), "unknown"})},
    "threshold": {"gpu_temperature_threshold_celsius": frozenset({"slowdown", "shutdown", "gpu_max", "memory_max"})},
    "type": {
        "gpu_nvlink_errors_total": frozenset({REPLAY, RECOVERY, CRC}),
        "gpu_pcie_errors_total": frozenset(TYPE_FIELDS),
        "gpu_processes": frozenset({"compute", "compute_graphics", "graphics", "mps"}),
    },
    "xid": {
        f"gpu_xid_{what}": frozenset(map(str, range(1, 300)))
        for what in (
            "errors_total",
            "last_timestamp_seconds",
            "unassigned_errors_total",
            "unassigned_last_timestamp_seconds",
        )
    },
}
"""By label, the words it can hold in each metric that has it; a label not listed holds names, not words."""


def words(metric: str, label: str) -> frozenset[str] | None:
    """What a label can hold: in this metric, or where that is recorded, in any; None where it can hold anything."""
    if label == "class":
        return frozenset(CLASSES)
    if label == "fatal":
        return frozenset({"true", "false", ""})
    by_metric = WORDS.get(label, {})
    if ":" in metric and by_metric:
        return frozenset().union(*by_metric.values())
    return by_metric.get(metric)


def kinds() -> dict[str, Kind]:
    """Kind of every series that is not recorded."""
    return {spec.name: spec.kind for spec in catalogue_specs()} | {name: kind for name, (kind, _) in ELSEWHERE.items()}


def series_labels(rules: tuple[Rule, ...]) -> Callable[[str], frozenset[str]]:
    """Labels that the series of a name can carry, recorded ones included.

    The function raises KeyError for a name that nothing makes.
    """
    base = {spec.name: frozenset(spec.labels) | TARGET_LABELS for spec in catalogue_specs()}
    base |= {name: frozenset(labels) | TARGET_LABELS for name, (_, labels) in ELSEWHERE.items()}
    records: dict[str, tuple[tuple[str, Mapping[str, str]], ...]] = {}
    for rule in rules:
        if not rule.alert:
            records[rule.name] = (*records.get(rule.name, ()), (rule.expr, rule.labels))
    return recorded_labels(records, base.__getitem__)
