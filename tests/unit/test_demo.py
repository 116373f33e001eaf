"""A demonstration plays a scenario faster, with rules whose windows are as much shorter."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from deploy.demo.paced_rules import paced_expression, write_paced_rules
from tests.rig import rig, scenario_with

from gpu_triage.simulator import at_pace, load_scenario


def test_events_come_sooner_and_hourly_errors_come_as_much_more_often(tmp_path: Path) -> None:
    event = 'at = "10m"\nuntil = "40m"\ngpu = 0\neffect = { kind = "pcie_errors", replays_per_hour = 3600 }'
    fast = at_pace(scenario_with(tmp_path, "idle-downshift", event), 60)
    assert [(e.at, e.until) for e in fast.events][-1] == (10, 40)
    with rig(fast) as running:
        running.run_to(9)
        assert running.value("gpu_pcie_replays_total", gpu="0") == 0
        running.run_to(60)
        assert running.value("gpu_pcie_replays_total", gpu="0") == pytest.approx(30 * 60, rel=0.1)


def test_an_event_that_ends_still_lasts_at_a_great_pace(tmp_path: Path) -> None:
    event = 'at = 10\nuntil = 20\ngpu = 0\neffect = { kind = "lost" }'
    fast = at_pace(scenario_with(tmp_path, "idle-downshift", event), 100)
    assert [(e.at, e.until) for e in fast.events][-1] == (0, 1)


def test_pace_one_leaves_a_scenario_as_it_is() -> None:
    scenario = load_scenario("h100-8-bad-night")
    assert at_pace(scenario, 1) is scenario


@pytest.mark.parametrize(
    ("expression", "shorter"),
    [
        ("rate(gpu_busy_seconds_total[5m])", "rate(gpu_busy_seconds_total[5s])"),
        ("max_over_time(x[6h:1m])", "max_over_time(x[360s:1s])"),
        ("a offset 1d", "a offset 1440s"),
        ("x > time() - 600", "x > time() - 10"),
        ("x > bool (time() - 600)", "x > bool (time() - 10)"),
        ("instance_gpu:gpu_busy:ratio5m >= 0.8", "instance_gpu:gpu_busy:ratio5m >= 0.8"),
        ("rate(x[30s])", "rate(x[1s])"),
        ("15m", "15s"),
    ],
)
def test_windows_shrink_while_names_and_thresholds_stay(expression: str, shorter: str) -> None:
    assert paced_expression(expression, 60) == shorter


def test_every_rule_is_kept_and_only_durations_change(tmp_path: Path, repository: Path) -> None:
    written = write_paced_rules(repository / "rules", tmp_path, 40)
    assert {path.name for path in written} == {path.name for path in (repository / "rules").glob("*.yml")} - {
        "alertmanager-inhibit.yml"
    }
    for path in written:
        before = yaml.safe_load((repository / "rules" / path.name).read_text())
        after = yaml.safe_load(path.read_text())
        for old, new in zip(before["groups"], after["groups"], strict=True):
            assert [set(rule) for rule in old["rules"]] == [set(rule) for rule in new["rules"]]
            assert [r.get("annotations") for r in old["rules"]] == [r.get("annotations") for r in new["rules"]]
