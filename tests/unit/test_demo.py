"""A demonstration plays a scenario faster, with rules whose windows are as much shorter."""

from pathlib import Path

import pytest
import yaml
from deploy.demo.pace import SHIPPED, paced_alertmanager, paced_duration, paced_expression, write_paced_rules

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("expression", "shorter"),
    [
        ("rate(gpu_busy_seconds_total[5m])", "(rate(gpu_busy_seconds_total[5s]) / 60)"),
        ('clamp_max(rate(x{a=~"b|(c)"}[5m]), 1) > 0', 'clamp_max((rate(x{a=~"b|(c)"}[5s]) / 60), 1) > 0'),
        ("increase(x[1d]) and irate(x[5m]) > 0", "increase(x[1440s]) and irate(x[5s]) > 0"),
        ("max_over_time(x[6h:1m])", "max_over_time(x[360s:1s])"),
        ("a offset 1d", "a offset 1440s"),
        ("x > time() - 600", "x > time() - 10"),
        ("instance_gpu:gpu_busy:ratio5m >= 0.8", "instance_gpu:gpu_busy:ratio5m >= 0.8"),
        ("rate(x[30s])", "(rate(x[1s]) / 60)"),
        ("15m", "15s"),
        ("max_over_time(x[90s])", "max_over_time(x[1500ms])"),
        ('x{xid="79"} > time() - 86400 and on (uuid) y', 'x{xid="79"} > time() - 1440 and on (uuid) y'),
    ],
)
def test_windows_shrink_while_names_and_thresholds_stay(expression: str, shorter: str) -> None:
    assert paced_expression(expression, 60) == shorter


def test_every_rule_is_kept_and_only_durations_change(tmp_path: Path, repository: Path) -> None:
    written = write_paced_rules(repository / "rules", tmp_path, 40)
    assert {path.name for path in written} == {path.name for path in (repository / "rules").glob("*.yml")}
    for path in written:
        before = yaml.safe_load((repository / "rules" / path.name).read_text())
        after = yaml.safe_load(path.read_text())
        for old, new in zip(before["groups"], after["groups"], strict=True):
            assert [set(rule) for rule in old["rules"]] == [set(rule) for rule in new["rules"]]
            assert [r.get("annotations") for r in old["rules"]] == [r.get("annotations") for r in new["rules"]]


@pytest.mark.parametrize(("written", "shorter"), [("45s", "750ms"), ("2m", "2s"), ("24h", "1440s"), ("0s", "0s")])
def test_waits_shrink_to_the_millisecond(written: str, shorter: str) -> None:
    assert paced_duration(written, 60) == shorter


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
