"""What rules read from other groups: groups run side by side, so that such a reading may be an interval old."""

from collections.abc import Mapping

from tests.gathered import every
from tests.promql.expressions import uses
from tests.rules.rulefile import read_rules, rule_files

RULES = read_rules(rule_files())
RECORDED_IN: Mapping[str, str] = {rule.name: rule.group for rule in RULES if not rule.alert}

MAINTENANCE = "instance:gpu_maintenance:until"
"""It begins minutes before the faults that it is for."""
OF_FLEETS = {
    ("gpu-triage-fleet", "instance_code:gpu_fault:since"),
    ("gpu-triage-fleet", "instance_code:gpu_exporter_target:down_since"),
    ("gpu-triage-fleet", "instance:gpu_exporter_target:up"),
    ("gpu-triage-findings", "instance_code:gpu_fleet_incident:since"),
    ("gpu-triage-targets", "instance_code:gpu_fleet_incident:since"),
}
"""An alert about many hosts holds for minutes, and single ones are muted from its beginning on."""


def test_a_group_reads_a_window_of_another_unless_an_older_value_does_as_well() -> None:
    at_once = {
        (rule.group, use.metric)
        for rule in RULES
        for use in uses(rule.expr)
        if RECORDED_IN.get(use.metric, rule.group) != rule.group and not use.ranged and use.metric != MAINTENANCE
    }
    assert at_once == OF_FLEETS


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
