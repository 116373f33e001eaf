"""What a page shows: profiles, what is added to them and left out, and that alerts keep what they need."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.promql.expressions import uses
from tests.rig import rig, scenario_with
from tests.rules.rulefile import read_rules, rule_files

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.activity import GPU_ENCODER_SESSIONS, GPU_TENSOR_ACTIVE_RATIO
from gpu_triage.read.gpu.ecc import GPU_REPAIR_PENDING, GPU_ROW_REMAP_BANKS
from gpu_triage.read.gpu.fabric import GPU_FABRIC_CONFIGURATION, GPU_FABRIC_FAULT
from gpu_triage.read.gpu.modes import GPU_MEMORY_OS_MANAGED, GPU_VIRTUALIZATION_MODE
from gpu_triage.read.gpu.nvlink import (
    GPU_NVLINK_LINK_ERRORS_TOTAL,
    GPU_NVLINK_LINK_SPEED_RATIO,
    GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL,
    GPU_NVLINK_UP,
)
from gpu_triage.read.gpu.power import GPU_POWER_WATTS
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.registry import METRICS
from gpu_triage.read.selection import (
    EVERYTHING,
    Selection,
    metrics_of_rules,
    needed_but_excluded,
    refuse_unknown_metrics,
)
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

SLOWLY = Config(sample_fast_seconds=15.0, sample_medium_seconds=15.0)
POWER = GPU_POWER_WATTS.sample(1.0, "0", "GPU-a")
DOWN, UP = (GPU_NVLINK_UP.sample(value, "0", "GPU-a", "3") for value in (0.0, 1.0))
SENT = GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL.sample(1.0, "0", "GPU-a", "3")
TENSOR = GPU_TENSOR_ACTIVE_RATIO.sample(0.5, "0", "GPU-a")
ALL = (POWER, DOWN, UP, SENT, TENSOR)


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        (Config(), (POWER, DOWN, TENSOR)),
        (Config(metrics_profile="full"), ALL),
        (Config(metrics_profile="rules"), (POWER,)),
        (Config(metrics_include=("gpu_nvlink_*",)), ALL),
        (Config(metrics_profile="rules", metrics_include=("gpu_tensor_*",)), (POWER, TENSOR)),
        (Config(metrics_exclude=("gpu_nvlink_*", "gpu_power_watts")), (TENSOR,)),
        (Config(metrics_profile="full", metrics_exclude=("*_active_ratio",)), (POWER, DOWN, UP, SENT)),
        (Config(metrics_include=("gpu_nvlink_*",), metrics_exclude=("gpu_nvlink_up",)), (POWER, SENT, TENSOR)),
    ],
)
def test_a_page_shows_the_profile_and_what_is_added(config: Config, shown: tuple[object, ...]) -> None:
    assert tuple(Selection(config).of(ALL)) == shown


def test_without_a_configuration_everything_is_shown() -> None:
    assert tuple(EVERYTHING.of(ALL)) == ALL


DETAILS: tuple[tuple[MetricSpec, tuple[str, ...], float, float], ...] = (
    (GPU_ENCODER_SESSIONS, (), 1, 0),
    (GPU_FABRIC_CONFIGURATION, (), 2, 1),
    (GPU_FABRIC_FAULT, ("route_recovery",), 1, 0),
    (GPU_MEMORY_OS_MANAGED, (), 1, 0),
    (GPU_NVLINK_LINK_ERRORS_TOTAL, ("3", "crc"), 1, 0),
    (GPU_NVLINK_LINK_SPEED_RATIO, ("3",), 0.5, 1),
    (GPU_NVLINK_UP, ("3",), 0, 1),
    (GPU_REPAIR_PENDING, ("tpc",), 1, 0),
    (GPU_ROW_REMAP_BANKS, ("low",), 1, 0),
    (GPU_THROTTLE_ACTIVE, ("sw_thermal",), 1, 0),
    (GPU_THROTTLE_SECONDS_TOTAL, ("reliability",), 1, 0),
    (GPU_VIRTUALIZATION_MODE, (), 1, 0),
)


@pytest.mark.parametrize(("spec", "labels", "shown", "hidden"), DETAILS, ids=[spec.name for spec, *_ in DETAILS])
def test_only_what_is_unusual_is_shown_by_default(
    spec: MetricSpec, labels: tuple[str, ...], shown: float, hidden: float
) -> None:
    samples = [spec.sample(value, "0", "GPU-a", *labels) for value in (shown, hidden)]
    assert list(Selection(Config()).of(samples)) == samples[:1]


@pytest.mark.parametrize("config", [Config(metrics_include=("power",)), Config(metrics_exclude=("gpu_?",))])
def test_a_pattern_that_matches_no_metric_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="matches no metric; write a name of"):
        refuse_unknown_metrics(config, METRICS)


def test_patterns_match_metrics_by_their_whole_name() -> None:
    known = Config(metrics_include=("gpu_power_watts", "gpu_pow?r_watts"), metrics_exclude=("gpu_*_ratio",))
    refuse_unknown_metrics(known, METRICS)


def test_the_profile_of_the_rules_has_every_metric_that_a_rule_reads() -> None:
    names = {spec.name for spec in METRICS}
    rules = read_rules(rule_files())
    read = {use.metric for rule in rules for query in (rule.expr, *rule.queries()) for use in uses(query)}
    assert read & names <= metrics_of_rules().keys() & names < names


def test_the_profile_of_the_rules_has_every_series_of_a_finding() -> None:
    selection = Selection(Config(metrics_profile="rules"))
    findings = {spec.name for spec in METRICS if re.match("gpu_(host_)?finding(s|_|$)", spec.name)}
    assert len(findings) == 10
    assert findings < {spec.name for spec in METRICS if selection.shown(spec)}


def test_an_excluded_metric_that_an_alert_needs_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = Config(metrics_exclude=("gpu_tensor_*", "gpu_finding"))
    assert needed_but_excluded(config) == ("gpu_finding",)
    with rig(scenario_with(tmp_path, "dual-a10"), config) as running:
        running.run_to(5)
        assert running.series("gpu_finding") == []
        assert running.value("gpu_exporter_degraded_info", feature="gpu_finding", reason="excluded") == 1
    assert "alerts that need this metric cannot fire" in str([record.__dict__ for record in caplog.records])


@pytest.mark.parametrize(("profile", "most"), [("rules", 500), ("default", 1810)])
def test_a_host_of_eight_gpus_and_64_processes_stays_within_the_documented_series(profile: str, most: int) -> None:
    with rig(load_scenario("h100-8"), replace(SLOWLY, metrics_profile=profile)) as running:
        running.run_to(75)
        page = running.page()
    assert sum(not line.startswith("#") for line in page.splitlines()) <= most
    assert ('clock="sm"' in page, 'clock="memory"' in page) == (True, profile == "default")


def test_a_gpu_without_processes_has_at_most_190_series_by_default() -> None:
    with rig(load_scenario("h100-8"), replace(SLOWLY, process_max=0)) as running:
        running.run_to(75)
        page = running.page()
    assert sum('gpu="0"' in line for line in page.splitlines()) <= 190
