"""A demonstration plays a scenario faster, with rules whose windows are as much shorter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deploy.demo.durations import paced_duration
from deploy.demo.paced_routes import SHIPPED, paced_alertmanager
from deploy.demo.paced_rules import paced_expression, write_paced_rules
from tests.rig import rig, scenario_with

from gpu_triage_simulator import at_pace, load_scenario

pytestmark = pytest.mark.slow


def test_a_program_that_took_ports_ends_without_a_word(repository: Path) -> None:
    program = "from deploy.demo.processes import free_port; free_port(), free_port()"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=repository, check=True, capture_output=True, text=True
    )
    assert ended.stderr == ""


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


NOW = (
    "on (cluster, job, instance) group_left () (max by (cluster, job, instance) "
    "(gpu_exporter_time_seconds or gpu_exporter_last_publication_timestamp_seconds)"
)
"""The time by a host's clock, as rules write it."""


@pytest.mark.parametrize(
    ("expression", "shorter"),
    [
        ("rate(gpu_busy_seconds_total[5m])", "rate(gpu_busy_seconds_total[5s])"),
        ("max_over_time(x[6h:1m])", "max_over_time(x[360s:1s])"),
        ("a offset 1d", "a offset 1440s"),
        (f"x > {NOW} - 600)", f"x > {NOW} - 10)"),
        (f"x > bool {NOW} - 600)", f"x > bool {NOW} - 10)"),
        ("instance_gpu:gpu_busy:ratio5m >= 0.8", "instance_gpu:gpu_busy:ratio5m >= 0.8"),
        ("rate(x[30s])", "rate(x[1s])"),
        ("15m", "15s"),
        ("max_over_time(x[90s])", "max_over_time(x[1500ms])"),
        (f'x{{xid="79"}} > {NOW} - 86400) and on (uuid) y', f'x{{xid="79"}} > {NOW} - 1440) and on (uuid) y'),
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
            # Each Xid, kernel message and process is told of by its age.
            for old_rule, new_rule in zip(old["rules"], new["rules"], strict=True):
                ages = [int(age) for age in re.findall(rf"{re.escape(NOW)} - (\d+)\)", old_rule["expr"])]
                paced = [int(age) for age in re.findall(rf"{re.escape(NOW)} - (\d+)\)", new_rule["expr"])]
                assert paced == [age // 40 for age in ages]
                assert bool(ages) == ("(gpu_exporter_time_seconds or" in old_rule["expr"])


@pytest.mark.parametrize(("written", "shorter"), [("45s", "750ms"), ("2m", "2s"), ("24h", "1440s"), ("0s", "0s")])
def test_waits_shrink_to_the_millisecond(written: str, shorter: str) -> None:
    assert paced_duration(written, 60) == shorter


@pytest.mark.parametrize("written", ["1h30m", "5", "", "-5m"])
def test_a_duration_that_is_not_of_one_unit_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not a duration of one unit"):
        paced_duration(written, 60)


def test_a_demonstration_has_the_shipped_routes_but_for_drills_and_every_wait_shorter() -> None:
    shipped = yaml.safe_load(SHIPPED.read_bytes())
    paced = paced_alertmanager(60, "http://127.0.0.1:1/", drill=False)
    (ours,) = (each for each in shipped["route"]["routes"] if each["receiver"] == "gpu-tickets")
    (shorter,) = (each for each in paced["route"]["routes"] if each["receiver"] == "gpu-tickets")
    assert [each["matchers"] for each in shorter["routes"]] == [each["matchers"] for each in ours["routes"]][1:]
    (pager,) = (each for each in shorter["routes"] if each["receiver"] == "gpu-pager")
    assert (pager["group_wait"], pager["group_interval"], pager["repeat_interval"]) == ("750ms", "2s", "240s")
    assert paced["inhibit_rules"] == shipped["inhibit_rules"]
    assert "gpu-drill" not in {each["name"] for each in paced["receivers"]}


def test_every_receiver_calls_the_pager_and_sends_resolves_as_it_is_shipped() -> None:
    shipped, paced = yaml.safe_load(SHIPPED.read_bytes()), paced_alertmanager(60, "http://127.0.0.1:1/")
    for before, after in zip(shipped["receivers"], paced["receivers"], strict=True):
        assert after.get("webhook_configs", []) == [
            {**hook, "url": "http://127.0.0.1:1/"} for hook in before.get("webhook_configs", [])
        ]
