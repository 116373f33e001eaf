"""What rules read from other groups: groups run side by side, so that such a reading may be an interval old."""

from collections.abc import Mapping

from tests.gathered import every
from tests.promql.expressions import uses
from tests.rules.rulefile import Rule, read_rules, rule_files

RULES = read_rules(rule_files())
RECORDED_IN: Mapping[str, str] = {rule.name: rule.group for rule in RULES if not rule.alert}

WINDOW = "the latest minutes, of which an older one does as well"
DAY = "a window of a day"
PLANNED = "a maintenance begins minutes before the faults that it is for"
FLEET = "an alert about many hosts holds for minutes, and single ones are muted from its beginning on"
ALLOWED: Mapping[tuple[str, str], str] = {
    **{
        (f"gpu-triage-{group}", "instance:gpu_maintenance:until"): PLANNED
        for group in ("exporter", "findings", "fleet", "hangs", "job-pace", "stragglers")
    },
    ("gpu-triage-fleet", "instance_code:gpu_fault:since"): FLEET,
    ("gpu-triage-fleet", "instance_code:gpu_exporter_target:down_since"): FLEET,
    ("gpu-triage-fleet", "instance:gpu_exporter_target:up"): FLEET,
    ("gpu-triage-findings", "instance_code:gpu_fleet_incident:since"): FLEET,
    ("gpu-triage-targets", "instance_code:gpu_fleet_incident:since"): FLEET,
    ("gpu-triage-findings", "instance:gpu_hang:affected"): WINDOW,
    ("gpu-triage-findings", "instance:gpu_slow_job:affected"): WINDOW,
    ("gpu-triage-job-pace", "instance_gpu_owner:gpu_clock:straggling"): WINDOW,
    ("gpu-triage-hangs", "instance_gpu_owner:gpu_job:member"): WINDOW,
    ("gpu-triage-job-pace", "instance_gpu_owner:gpu_hang_left:affected"): WINDOW,
    ("gpu-triage-capacity-copies", "instance_gpu:gpu_busy:ratio5m"): WINDOW,
    ("gpu-triage-capacity", "instance_gpu_name:gpu_available:last5m"): DAY,
    ("gpu-triage-capacity", "instance_gpu_name:gpu_busy:last5m"): DAY,
    ("gpu-triage-capacity-copies", "instance:gpu_maintenance:until"): WINDOW,
    ("gpu-triage-capacity", "instance:gpu_planned:gpus"): DAY,
    ("gpu-triage-capacity", "instance_owner:gpu_allocated:sum"): DAY,
    ("gpu-triage-capacity", "instance_owner:gpu_used:sum"): DAY,
    ("gpu-triage-capacity", "instance_owner:gpu_allocated_idle:sum"): DAY,
    ("gpu-triage-capacity", "instance_owner:gpu_job_lost:gpus"): DAY,
    ("gpu-triage-capacity-copies", "instance_gpu_owner:gpu_job:member"): WINDOW,
    ("gpu-triage-capacity-copies", "owner:gpu_job:pace"): WINDOW,
    ("gpu-triage-capacity", "cluster:gpu_pending_pods:gpus"): DAY,
    ("gpu-triage-capacity", "cluster:gpu_pending_jobs:count"): DAY,
    ("gpu-triage-capacity", "instance_gpu:gpu_energy_joules:last5m"): DAY,
    ("gpu-triage-capacity", "instance_gpu_class:gpu_bottleneck_seconds:max5m"): DAY,
    ("gpu-triage-capacity", "instance_gpu_reason:gpu_throttle_seconds:max5m"): DAY,
}
"""Group and what it reads of another one, with the reason why no expression of its own does as well."""


def readings() -> list[tuple[Rule, str, bool]]:
    """Every rule that reads what another group records: the rule, the series, and whether it reads a window of it."""
    return [
        (rule, use.metric, use.ranged)
        for rule in RULES
        for use in uses(rule.expr)
        if RECORDED_IN.get(use.metric, rule.group) != rule.group
    ]


def test_a_group_reads_of_another_what_is_listed_a_window_unless_an_older_value_does_as_well() -> None:
    assert {(rule.group, metric) for rule, metric, _ in readings()} == set(ALLOWED)
    at_once = {(rule.group, metric) for rule, metric, ranged in readings() if not ranged}
    assert at_once == {pair for pair, reason in ALLOWED.items() if reason in (FLEET, PLANNED)}


def test_a_series_is_recorded_in_one_group_only() -> None:
    assert [rule.name for rule in every(RULES) if not rule.alert and RECORDED_IN[rule.name] != rule.group] == []


def test_within_a_group_what_is_read_is_recorded_above() -> None:
    """Or is the series itself: one that renews itself reads what it was a minute ago."""
    late = []
    for position, rule in enumerate(RULES):
        above = {earlier.name for earlier in RULES[:position]} | {rule.name}
        own = {name for name, group in RECORDED_IN.items() if group == rule.group}
        late += [(rule.name, use.metric) for use in uses(rule.expr) if use.metric in own - above]
    assert late == []
