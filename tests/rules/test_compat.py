"""Series of earlier releases, recorded from what replaced them for whoever loads rules/compat."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.rules.cases import load_any
from tests.rules.examine import class_of, prepare
from tests.rules.expressions import windows_matched_as_one
from tests.rules.promtool import Answers, ask
from tests.rules.queries import faults
from tests.rules.rulefile import REPOSITORY, Rule, read_rules, rule_files
from tests.rules.vocabulary import CLASSES, series_labels

FILE = REPOSITORY / "rules" / "compat" / "recorded.yml"
COMPAT = read_rules([FILE])
SHIPPED = read_rules(rule_files())
LABELS = series_labels((*SHIPPED, *COMPAT))
ADDS_REASONS = {"instance_gpu_reason:gpu_throttle:ratio5m"}
"""Recorded by default for some of the reasons, and here for the others."""

STEP_SECONDS = 60
MINUTES = (8, 33, 47, 55, 79)
"""Moments of the bad night, in which GPUs are in five classes."""
ACTIVE = "instance_gpu:gpu_bottleneck:active == 1"
ALL_ACTIVE = "instance_gpu:gpu_bottleneck:active"
RANK = "instance_gpu:gpu_bottleneck:rank"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Answers:
    """What the old and new names say in the bad night."""
    questions = tuple((question, minute * 60.0) for minute in MINUTES for question in (ACTIVE, ALL_ACTIVE, RANK))
    files = (*rule_files(), FILE)
    seconds = MINUTES[-1] * 60.0
    scenario = load_any("h100-8-bad-night")
    run = prepare(scenario, files, step_seconds=STEP_SECONDS, seconds=seconds)
    return ask(requires_tool("promtool"), run.asking(questions), tmp_path_factory.mktemp("compat"))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("minute", MINUTES)
def test_exactly_one_class_of_each_gpu_is_active_and_it_is_the_exporters(night: Answers, minute: int) -> None:
    at = minute * 60.0
    active = {sample.labels["gpu"]: sample.labels["class"] for sample in night.samples[ACTIVE, at]}
    judged = {sample.labels["gpu"]: class_of(sample.value) for sample in night.samples[RANK, at]}
    assert len(night.samples[ACTIVE, at]) == len(judged) == 8
    assert active == judged
    assert len(night.samples[ALL_ACTIVE, at]) == 8 * len(CLASSES)


@pytest.mark.full
def test_several_classes_are_seen(night: Answers) -> None:
    assert len({sample.value for minute in MINUTES for sample in night.samples[RANK, minute * 60.0]}) >= 4


@for_each("rule", COMPAT, ids=lambda rule: "-".join([rule.name, *rule.labels.values()]))
def test_its_expressions_are_as_sound_as_those_of_the_rules(rule: Rule) -> None:
    assert not rule.alert
    assert faults(rule.expr, LABELS) == []
    assert windows_matched_as_one(rule.expr) == ()


def test_no_name_is_recorded_twice() -> None:
    assert {rule.name for rule in COMPAT} & {rule.name for rule in SHIPPED} == ADDS_REASONS


def test_no_shipped_rule_needs_it() -> None:
    of_rules = series_labels(SHIPPED)
    assert [fault for rule in SHIPPED for fault in faults(rule.expr, of_rules)] == []


def test_it_is_off_by_default() -> None:
    assert FILE not in rule_files()
    assert FILE not in (REPOSITORY / "rules").glob("*.yml")


def test_promtool_finds_nothing_to_object_to(requires_tool: RequiresTool) -> None:
    command: list[str | Path] = [requires_tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", FILE]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


BEFORE = """
instance:gpu_host_iowait:ratio5m instance:gpu_host_memory:saturated instance:gpu_host_network:saturated
instance:gpu_host_storage:saturated instance:gpu_host_swap_in_bytes:rate5m instance:gpu_nvlink_up:max
instance_device:gpu_host_disk:ratio5m instance_device:gpu_host_network:ratio5m instance_gpu:gpu_allocated_idle:active
instance_gpu:gpu_allocated_idle_seconds:increase1d instance_gpu:gpu_allocated_idle_seconds:increase1h
instance_gpu:gpu_bottleneck:active instance_gpu:gpu_bottleneck:rank instance_gpu:gpu_busy:avg1d
instance_gpu:gpu_busy:ratio15m instance_gpu:gpu_busy:ratio5m instance_gpu:gpu_busy_seconds:increase1d
instance_gpu:gpu_busy_seconds:increase1h instance_gpu:gpu_compute_processes:sum
instance_gpu:gpu_energy_joules:increase1d instance_gpu:gpu_energy_joules:last5m
instance_gpu:gpu_hw_slowdown_unattributed:ratio5m instance_gpu:gpu_memory_used:max1d instance_gpu:gpu_memory_used:max1h
instance_gpu:gpu_observed_seconds:increase1d instance_gpu:gpu_observed_seconds:increase1h
instance_gpu:gpu_pcie_link:ratio_to_expected instance_gpu:gpu_power:ratio_to_limit
instance_gpu:gpu_power_limit:ratio_to_default instance_gpu:gpu_under_load:active instance_gpu:gpu_under_load:lasting
instance_gpu:gpu_utilization:p95_1d instance_gpu:gpu_waiting:active instance_gpu:gpu_xid_critical:active
instance_gpu_attribute:gpu_pcie_link_expected:level instance_gpu_class:gpu_bottleneck:candidate
instance_gpu_class:gpu_bottleneck_seconds:increase1d instance_gpu_class:gpu_bottleneck_seconds:increase1h
instance_gpu_class:gpu_hours_lost:sum1d instance_gpu_name:gpu_clock_hertz:busy_median5m
instance_gpu_name:gpu_info:last1d instance_gpu_name:gpu_info:present instance_gpu_peer:gpu_p2p:allowed
instance_gpu_peer:gpu_topology:level instance_gpu_peer_level:gpu_p2p:allowed instance_gpu_reason:gpu_throttle:ratio5m
instance_gpu_reason:gpu_throttle_seconds:increase1d instance_gpu_reason:gpu_throttle_seconds:last5m
instance_job_name:gpu_job_steps:rate5m instance_job_name:gpu_job_steps:ratio_to_day_before
instance_mount:gpu_host_nfs_operation_seconds:mean5m instance_numa_node:gpu_host_cpu:ratio5m
instance_numa_node:gpu_host_cpu:saturated instance_resource_kind:gpu_host_pressure:ratio5m name:gpu_busy:avg1d
name:gpu_hours_lost:sum1d workload:gpu_allocated_idle_seconds:sum1d workload:gpu_busy:avg1d
workload:gpu_energy_joules:sum1d cluster:gpu_devices:sum
"""
"""What the release before recorded."""


def test_the_readme_tells_of_every_name_that_is_gone_and_whether_it_is_here() -> None:
    section = (
        (REPOSITORY / "rules" / "README.md").read_text(encoding="utf-8").split("## Names of the release before")[1]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    told = {name: here for gone, here, _ in rows for name in re.findall(r"`(\w+:\w+:\w+)`", gone)}
    gone = set(BEFORE.split()) - {rule.name for rule in SHIPPED} | ADDS_REASONS
    assert set(told) == gone
    assert {name for name, here in told.items() if here == "yes"} == {rule.name for rule in COMPAT}
