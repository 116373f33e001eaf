"""The configurations of deploy/fleet are accepted, complete, and hand on what the dashboards and commands read.

Alerts about the servers themselves fire when one is down, and only then.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from deploy.generate.fleet import DRIFT_ALERT, OF_OTHERS, federated, remote_written
from tests.conftest import RequiresTool
from tests.fleet.topologies import TOPOLOGIES, Part, Program
from tests.program_output import output_of
from tests.promql.expressions import uses
from tests.promql.promtool import Alert as Fired
from tests.promql.promtool import Run, ask
from tests.rules.rulefile import read_rules

from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.read.selection import metrics_of_rules

FLEET = Path(__file__).resolve().parents[2] / "deploy/fleet"
PARTS = {part.name: part for topology in TOPOLOGIES for part in topology.parts if part.config}


def test_a_federating_server_gets_fewer_series_than_one_that_has_all_dashboards(repository: Path) -> None:
    above, everywhere = set(federated(repository)), set(remote_written(repository))
    assert above < everywhere
    assert set(OF_OTHERS) <= above
    assert any(name not in everywhere for name in metrics_of_rules())


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_prometheus_takes_its_part(part: Part, repository: Path, tmp_path: Path, requires_tool: RequiresTool) -> None:
    text = (FLEET / "prometheus" / part.config).read_text(encoding="utf-8")
    for name, value in part.values.items():
        assert f"${{{name}}}" in text
        text = text.replace(f"${{{name}}}", value)
    assert "${" not in text
    text = text.replace("/etc/prometheus/gpu-triage/rules/*.yml", f"{repository}/rules/recording.yml")
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/gpu-fleet", f"{FLEET}/rules"))
    agent = ["--agent"] if part.program is Program.AGENT else []
    output_of(requires_tool("promtool"), "check", "config", *agent, tmp_path / "prometheus.yml")


def test_every_rule_that_needs_all_hosts_is_evaluated_above_and_dropped_below() -> None:
    above = yaml.safe_load((FLEET / "rules/drift.yml").read_bytes())
    assert [rule["alert"] for group in above["groups"] for rule in group["rules"]] == [DRIFT_ALERT]
    shard = yaml.safe_load((FLEET / "prometheus/shard.yml").read_bytes())
    dropped = [each["regex"] for each in shard["alerting"]["alert_relabel_configs"] if each["action"] == "drop"]
    assert dropped == [DRIFT_ALERT]


def test_what_is_evaluated_above_is_made_of_what_is_handed_on(repository: Path) -> None:
    files = (FLEET / "rules/drift.yml", FLEET / "rules/servers.yml")
    asked = {use.metric for rule in read_rules(files) for query in (rule.expr, *rule.queries()) for use in uses(query)}
    assert {"up", "gpu_driver_info"} <= asked
    assert asked <= set(federated(repository))


def test_the_readme_tells_of_every_alert_that_is_about_no_single_host() -> None:
    section = (FLEET / "README.md").read_text(encoding="utf-8").split("## What does not work across shards", 1)[1]
    rules = [rule for source in shipped_sources() for group in source.groups for rule in group.rules]
    about_many = {rule.name for rule in rules if isinstance(rule, Alert) and rule.fleet}
    named = set(re.findall("`(Gpu[A-Za-z]+)(…?)`", section.split("\n## ", 1)[0]))
    assert len(about_many) > 1
    assert [name for name in about_many if (name, "") not in named and ("GpuFleet", "…") not in named] == []
    assert [name for name in about_many if not name.startswith("GpuFleet") and (name, "") not in named] == []


def test_every_alert_about_a_server_has_its_section_in_the_readme() -> None:
    readme = (FLEET / "README.md").read_text(encoding="utf-8")
    rules = [
        rule
        for path in (FLEET / "rules").glob("*.yml")
        if path.name != "drift.yml"
        for group in yaml.safe_load(path.read_bytes())["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) > 1
    for rule in rules:
        assert f"\n### {rule['alert']}\n" in readme
        assert rule["annotations"]["runbook_url"] == f"deploy/fleet/README.md#{rule['alert'].lower()}"


def test_every_job_that_an_alert_is_about_is_scraped() -> None:
    jobs = set(re.findall(r'up\{job="([^"]+)"\}', (FLEET / "rules/servers.yml").read_text(encoding="utf-8")))
    configurations = [yaml.safe_load(path.read_bytes()) for path in (FLEET / "prometheus").glob("*.yml")]
    scraped = {job["job_name"] for config in configurations for job in config.get("scrape_configs", ())}
    assert jobs == scraped - {"gpu-triage"}


def test_vmalert_takes_the_rule_that_needs_all_hosts(requires_tool: RequiresTool) -> None:
    servers = ["-datasource.url=http://victoria:8428", "-notifier.url=http://alertmanager:9093"]
    output_of(requires_tool("vmalert"), "-dryRun", f"-rule={FLEET / 'rules/drift.yml'}", *servers)


RULES = (FLEET / "rules/servers.yml", FLEET / "rules/agents.yml")
GONE = math.nan  # A sample that a scrape did not find any more
UP, DOWN = 1.0, 0.0
TWELVE_HOURS = 720  # in minutes, as all times here

Firing = Callable[[str, dict[str, list[float]], tuple[int, ...]], list[tuple[Fired, ...]]]


@pytest.fixture
def firing(requires_tool: RequiresTool, tmp_path: Path) -> Firing:
    """Which alerts of a name fire at each of some minutes, for series with a value a minute."""
    promtool = requires_tool("promtool")
    groups = tuple(group["name"] for path in RULES for group in yaml.safe_load(path.read_bytes())["groups"])

    def at(alert: str, series: dict[str, list[float]], minutes: tuple[int, ...]) -> list[tuple[Fired, ...]]:
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


@pytest.mark.parametrize(
    ("job", "instance", "alert"),
    [("gpu-replicas", "replica-a:9090", "GpuReplicaDown"), ("gpu-fleet", "above:9090", "GpuFleetServerDown")],
)
def test_another_server_that_is_down_for_five_minutes_is_a_ticket(
    firing: Firing, job: str, instance: str, alert: str
) -> None:
    series = {
        f'up{{job="{job}",instance="{instance}"}}': [UP] * 10 + [DOWN] * 10,
        f'up{{job="{job}",instance="other:9093"}}': [UP] * 10 + [DOWN] * 3 + [UP] * 7,
    }
    before, down = firing(alert, series, (14, 16))
    assert before == ()
    assert [(each.labels["instance"], each.labels["severity"]) for each in down] == [(instance, "warning")]


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
