"""Series of earlier releases, recorded from what replaced them for whoever loads rules/compat."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.conftest import RequiresTool
from tests.gathered import every, for_each
from tests.promql.expressions import windows_matched_as_one
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import REPOSITORY, Rule, read_rules, rule_files

from gpu_triage.alerting.files import rule_files as rule_files_of
from gpu_triage.alerting.previous import previous_sources
from gpu_triage.alerting.rule_source import RecordingRule
from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_OWNER_INFO

FILE = REPOSITORY / "rules" / "compat" / "recorded.yml"
COMPAT = read_rules([FILE])
SHIPPED = read_rules(rule_files())
LABELS = series_labels((*SHIPPED, *COMPAT))


@for_each("rule", COMPAT, ids=lambda rule: "-".join([rule.name, *rule.labels.values()]))
def test_its_expressions_are_as_sound_as_those_of_the_rules(rule: Rule) -> None:
    assert not rule.alert
    assert faults(rule.expr, LABELS) == []
    assert windows_matched_as_one(rule.expr) == ()


def test_no_name_is_recorded_twice() -> None:
    assert {rule.name for rule in COMPAT} & {rule.name for rule in SHIPPED} == set()


def test_no_shipped_rule_needs_it() -> None:
    of_rules = series_labels(SHIPPED)
    assert [fault for rule in every(SHIPPED) for fault in faults(rule.expr, of_rules)] == []


def test_promtool_finds_nothing_to_object_to(requires_tool: RequiresTool) -> None:
    command: list[str | Path] = [requires_tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", FILE]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


BEFORE = """
cluster:gpu_devices:sum instance:gpu_exporter_target:up instance:gpu_nvlink_up:ever
instance_address_xid:gpu_xid_open:timestamp instance_class:gpu_hours_lost:sum1d
instance_device_port:gpu_host_infiniband_up:ever instance_gpu:gpu_allocated_idle:active
instance_gpu:gpu_allocated_idle_seconds:increase1d instance_gpu:gpu_busy:avg1d instance_gpu:gpu_busy:ratio5m
instance_gpu:gpu_damage:lasting instance_gpu:gpu_energy_joules:increase1d instance_gpu:gpu_energy_joules:last5m
instance_gpu:gpu_held:active instance_gpu:gpu_memory_used:max1d instance_gpu:gpu_observed_seconds:increase1d
instance_gpu:gpu_pcie_link:ratio_to_expected instance_gpu:gpu_power:ratio_to_limit instance_gpu:gpu_utilization:p95_1d
instance_gpu_class:gpu_bottleneck_seconds:increase1d instance_gpu_class:gpu_bottleneck_seconds:max5m
instance_gpu_name:gpu_clock_hertz:busy_median5m instance_gpu_name:gpu_info:last1d instance_gpu_name:gpu_info:present
instance_gpu_owner:gpu_allocated:share instance_gpu_owner:gpu_busy:share instance_gpu_reason:gpu_throttle:ratio5m
instance_gpu_reason:gpu_throttle_seconds:increase1d instance_gpu_reason:gpu_throttle_seconds:max5m
instance_gpu_xid:gpu_xid_open:timestamp instance_job_name:gpu_job_steps:rate5m
instance_job_name:gpu_job_steps:ratio_to_day_before name:gpu_busy:avg1d name:gpu_hours_lost:sum1d
name:gpu_observed_seconds:sum1d owner:gpu_allocated_hours:sum1d owner:gpu_busy_hours:sum1d
workload:gpu_allocated_idle_seconds:sum1d workload:gpu_busy:avg1d workload:gpu_energy_joules:sum1d
workload:gpu_observed_seconds:sum1d
"""
"""What the release before recorded."""


def test_the_readme_tells_of_every_name_that_is_gone_and_whether_it_is_here() -> None:
    section = (
        (REPOSITORY / "rules" / "README.md").read_text(encoding="utf-8").split("## Names of the release before")[1]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    told = {name: here for gone, here, _ in rows for name in re.findall(r"`(\w+:\w+:\w+)`", gone)}
    assert set(told) == set(BEFORE.split()) - {rule.name for rule in SHIPPED}
    assert {name for name, here in told.items() if here == "yes"} == {rule.name for rule in COMPAT}


def test_the_previous_rules_are_sound_on_what_is_published_and_recorded_now(tmp_path: Path) -> None:
    """They are for one release, while exporters are upgraded."""
    sources = previous_sources()
    for path, text in rule_files_of(DEFAULTS, sources).items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    previous = read_rules(sorted(tmp_path.glob("*.yml")))
    labels = series_labels(previous)
    assert len([rule for rule in previous if rule.alert]) == len([alert for each in sources for alert in each.alerts])
    assert [fault for rule in previous for fault in faults(rule.expr, labels)] == []


def test_what_the_previous_rules_record_needs_no_metric_of_this_release() -> None:
    """Exporters of the release before have processes, and no owners."""
    shares = [
        rule.expr
        for source in previous_sources()
        for group in source.groups
        for rule in group.rules
        if isinstance(rule, RecordingRule) and rule.name == "instance_gpu_owner:gpu_allocated:share"
    ]
    assert [(GPU_PROCESS_INFO.name in expr, GPU_PROCESS_OWNER_INFO.name in expr) for expr in shares] == [(True, False)]
