"""Alerts about the servers themselves fire when one is down, and only then."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.conftest import RequiresTool
from tests.promql.promtool import Alert, Run, ask

FOLDER = Path(__file__).resolve().parents[2] / "deploy/fleet/rules"
RULES = (FOLDER / "servers.yml", FOLDER / "agents.yml")
GONE = math.nan  # A sample that a scrape did not find any more
UP, DOWN = 1.0, 0.0
TWELVE_HOURS = 720  # in minutes, as all times here

Firing = Callable[[str, dict[str, list[float]], tuple[int, ...]], list[tuple[Alert, ...]]]


@pytest.fixture
def firing(requires_tool: RequiresTool, tmp_path: Path) -> Firing:
    """Which alerts of a name fire at each of some minutes, for series with a value a minute."""
    promtool = requires_tool("promtool")
    groups = tuple(group["name"] for path in RULES for group in yaml.safe_load(path.read_bytes())["groups"])

    def at(alert: str, series: dict[str, list[float]], minutes: tuple[int, ...]) -> list[tuple[Alert, ...]]:
        moments = tuple((alert, minute * 60.0) for minute in minutes)
        answers = ask(promtool, Run(RULES, groups, 60.0, series, alerts=moments), tmp_path)
        return [answers.alerts[moment] for moment in moments]

    return at


def test_a_shard_that_is_down_for_two_minutes_is_told_with_the_hosts_that_are_missing(firing: Firing) -> None:
    series = {
        'up{job="gpu-shards",instance="shard-0:9090"}': [UP] * 40,
        'up{job="gpu-shards",instance="shard-1:9090"}': [UP] * 10 + [DOWN] * 10 + [UP] * 20,
        'gpu_up{instance="gpu-1",gpu="0"}': [UP] * 40,
        'gpu_up{instance="gpu-2",gpu="0"}': [UP] * 10 + [GONE] * 10 + [UP] * 20,
        'gpu_up{instance="gpu-3",gpu="0"}': [UP] * 10 + [GONE] * 10 + [UP] * 20,
    }
    before, down, back = firing("GpuShardSilent", series, (11, 13, 25))
    assert before == back == ()
    (told,) = down
    assert told.labels["instance"] == "shard-1:9090"
    assert told.labels["severity"] == "critical"
    assert "do not show them (missing: 2)." in told.annotations["description"]


def test_a_replica_that_is_down_for_five_minutes_is_a_ticket(firing: Firing) -> None:
    series = {
        'up{job="gpu-replicas",instance="replica-a:9090"}': [UP] * 10 + [DOWN] * 10,
        'up{job="gpu-replicas",instance="alertmanager-1:9093"}': [UP] * 10 + [DOWN] * 3 + [UP] * 7,
    }
    before, down = firing("GpuReplicaDown", series, (14, 16))
    assert before == ()
    assert [(each.labels["instance"], each.labels["severity"]) for each in down] == [("replica-a:9090", "warning")]


def test_the_server_that_has_all_hosts_is_a_ticket_too(firing: Firing) -> None:
    series = {'up{job="gpu-fleet",instance="above:9090"}': [UP] * 10 + [DOWN] * 10}
    before, down = firing("GpuFleetServerDown", series, (14, 16))
    assert before == ()
    assert [(each.labels["instance"], each.labels["severity"]) for each in down] == [("above:9090", "warning")]


def test_a_site_that_sends_nothing_is_told_until_twelve_hours_have_passed(firing: Firing) -> None:
    # A sender that dies leaves no marker: its series are found for five more minutes.
    series = {
        'up{job="gpu-triage",cluster="west",instance="gpu-1:9836"}': [UP] * 31,
        'up{job="gpu-triage",cluster="west",instance="gpu-2:9836"}': [DOWN] * 31,
        'up{job="gpu-triage",cluster="east",instance="gpu-1:9836"}': [UP] * (TWELVE_HOURS + 60),
    }
    soon, later, forgotten = firing("GpuAgentSilent", series, (36, 38, 30 + TWELVE_HOURS + 5))
    assert soon == forgotten == ()
    (told,) = later
    assert told.labels["cluster"] == "west"
    assert "The 2 GPU hosts of west have sent nothing" in told.annotations["description"]


def test_hosts_that_are_down_do_not_silence_their_site(firing: Firing) -> None:
    series = {'up{job="gpu-triage",cluster="west",instance="gpu-1:9836"}': [UP] * 10 + [DOWN] * 30}
    assert firing("GpuAgentSilent", series, (30,)) == [()]


def test_nothing_is_told_where_no_such_servers_are_scraped(firing: Firing) -> None:
    series = {'up{job="gpu-triage",instance="gpu-1:9836"}': [UP] * 20, 'up{job="node",instance="a"}': [DOWN] * 20}
    for alert in ("GpuShardSilent", "GpuReplicaDown", "GpuFleetServerDown", "GpuAgentSilent"):
        assert firing(alert, series, (15,)) == [()]
