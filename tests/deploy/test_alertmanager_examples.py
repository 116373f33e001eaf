"""Examples for Alertmanager and Prometheus load, route as their README says, and inhibit symptoms only."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.generate.alertmanager import ALERTMANAGER
from tests.chart.rendering import render
from tests.conftest import RequiresTool
from tests.program_output import output_of
from tests.rules.rulefile import alerts, read_rules, rule_files

AMLINT = Path(sys.executable).with_name("amlint")
ROW = re.compile(r"^\| `([^`]+)`[^|]*\| `([^`]+)` \|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
OTHER_TEAMS = {
    "NodeDown severity=critical": "platform-pager",
    "NodeDown severity=warning": "platform-tickets",
    "CephDown severity=critical team=storage": "storage-pager",
    "Watchdog severity=none": "platform-tickets",
}


def _way(config: Path, labels: str) -> dict[str, Any]:
    answer = json.loads(output_of(AMLINT, "route", config, *labels.split(), "--format", "json"))
    (route,) = answer["routes"]
    way: dict[str, Any] = route
    return way


def _receiver(amtool: Path, config: Path, labels: str) -> str:
    return output_of(amtool, "config", "routes", "test", f"--config.file={config}", *labels.split()).strip()


def test_amlint_finds_nothing_in_the_example_with_and_without_the_rules(repository: Path) -> None:
    rules = (str(repository / "rules" / name) for name in ("alerts-*.yml", "compat/bmc.yml"))
    for options in ((), tuple(word for each in rules for word in ("--rules", each))):
        found = output_of(AMLINT, "check", "--strict", *options, repository / ALERTMANAGER)
        # The receiver of the alert that nobody should receive.
        assert re.findall(r"\[([a-z-]+)\].*receivers\[(\w+)\]", found) == [("empty-receiver", "discard")], found
        assert "1 info" in found, found
        assert "warn" not in found, found


@pytest.mark.slow
def test_every_alert_goes_to_the_receiver_of_its_severity(repository: Path, requires_tool: RequiresTool) -> None:
    amtool = requires_tool("amtool")
    receivers = {"critical": "gpu-pager", "warning": "gpu-tickets", "info": "gpu-context", "none": "gpu-dead-man"}
    config = repository / ALERTMANAGER
    for rule in alerts(read_rules(rule_files())):
        labels = f"alertname={rule.name} severity={rule.labels['severity']} instance=gpu-host-1 rack=17"
        receiver = "discard" if rule.name == "GpuInFleetIncident" else receivers[rule.labels["severity"]]
        assert _receiver(amtool, config, labels) == receiver, labels
    for severity in receivers:
        labels = f"alertname=GpuLost severity={severity} drill=true"
        assert _receiver(amtool, config, labels) == "gpu-drill", labels
    for labels in ("alertname=GpuLost severity=urgent", "alertname=GpuLost"):
        assert _receiver(amtool, config, labels) == "gpu-tickets", "an unknown severity is never dropped"


@pytest.mark.slow
def test_the_readme_says_where_each_alert_goes(repository: Path, requires_tool: RequiresTool) -> None:
    amtool = requires_tool("amtool")
    rows = ROW.findall((repository / "deploy/alertmanager/README.md").read_text(encoding="utf-8"))
    assert len(rows) == 14
    for labels, receiver, per, *waits in rows:
        assert _receiver(amtool, repository / ALERTMANAGER, labels) == receiver, labels
        way = _way(repository / ALERTMANAGER, labels)
        if receiver.startswith("gpu-"):
            assert per.strip() == ", ".join(way["group_by"]).replace("alertname", "alert"), labels
            told = [way[wait] for wait in ("group_wait", "group_interval", "repeat_interval")]
            assert [wait.strip() for wait in waits] == told, labels


@pytest.mark.parametrize("labels", OTHER_TEAMS)
def test_alerts_of_others_go_where_they_went(
    repository: Path, tmp_path: Path, labels: str, requires_tool: RequiresTool
) -> None:
    amtool = requires_tool("amtool")
    without = yaml.safe_load((repository / ALERTMANAGER).read_bytes())
    del without["route"]["routes"][0]
    alone = tmp_path / "alertmanager.yml"
    alone.write_text(yaml.safe_dump(without), encoding="utf-8")
    asked = f"alertname={labels}"
    assert _receiver(amtool, alone, asked) == OTHER_TEAMS[labels]
    assert _receiver(amtool, repository / ALERTMANAGER, asked) == OTHER_TEAMS[labels]


CONFIGURATIONS = (*(f"prometheus/{name}.yml" for name in ("static", "file_sd", "kubernetes")), "compose/prometheus.yml")
DISCOVERY = re.compile(r"^    kubernetes_sd_configs:\n(?:^      .*\n)+", re.MULTILINE)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_prometheus_takes_the_example(repository: Path, tmp_path: Path, name: str, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    text = (repository / "deploy" / name).read_text(encoding="utf-8")
    shutil.copytree(repository / "deploy/prometheus/targets", tmp_path / "targets")
    # Debian builds Prometheus without Kubernetes' client; everything else of that example is checked.
    text = DISCOVERY.sub("    static_configs: [{targets: [pod]}]\n", text)
    text = text.replace("/etc/prometheus/gpu-triage/rules", str(repository / "rules"))
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    output_of(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_the_examples_take_every_file_of_rules_which_know_the_exporter_by_their_jobs(repository: Path) -> None:
    text = (repository / "rules/alerts-exporter.yml").read_text(encoding="utf-8")
    (selector,) = set(re.findall(r'up\{job=~"([^"]+)"\}', text))
    rules = {
        path.name for path in (repository / "rules").glob("*.yml") if "groups" in yaml.safe_load(path.read_bytes())
    }
    for name in CONFIGURATIONS:
        config = yaml.safe_load((repository / "deploy" / name).read_bytes())
        patterns = [pattern.rsplit("/", 1)[1] for pattern in config.get("rule_files", [])]
        taken = {path.name for pattern in patterns for path in (repository / "rules").glob(pattern)}
        assert taken in (rules, set())
        jobs = [each["job_name"] for each in config["scrape_configs"] if each["job_name"] != "prometheus"]
        assert [job for job in jobs if not re.fullmatch(selector, job)] == []


def test_discovery_selects_the_charts_pods(repository: Path) -> None:
    config = yaml.safe_load((repository / "deploy/prometheus/kubernetes.yml").read_bytes())
    (job,) = config["scrape_configs"]
    (discovery,) = job["kubernetes_sd_configs"]
    (selector,) = discovery["selectors"]
    rendered = render({"nameOverride": "other"})
    labels = rendered.only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert discovery["role"] == selector["role"] == "pod"
    assert all(labels[name] == value for name, value in (each.split("=") for each in selector["label"].split(",")))
    keep = job["relabel_configs"][0]
    assert keep["regex"] == rendered.container["ports"][0]["name"]
