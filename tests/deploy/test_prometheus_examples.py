"""Prometheus takes the examples with the rules, and finds the exporter."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from tests.chart.rendering import render
from tests.conftest import RequiresTool
from tests.program_output import output_of

CONFIGURATIONS = (
    "prometheus/static.yml",
    "prometheus/file_sd.yml",
    "prometheus/kubernetes.yml",
    "compose/prometheus.yml",
)
DISCOVERY = re.compile(r"^    kubernetes_sd_configs:\n(?:^      .*\n)+", re.MULTILINE)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_prometheus_takes_the_example(repository: Path, tmp_path: Path, name: str, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    text = (repository / "deploy" / name).read_text(encoding="utf-8")
    shutil.copytree(repository / "deploy/prometheus/targets", tmp_path / "targets")
    # Debian builds Prometheus without Kubernetes' client; everything else of that example is checked.
    text = DISCOVERY.sub("    static_configs: [{targets: [pod]}]\n", text)
    text = text.replace("/etc/prometheus/gpu-triage", str(repository / "rules"))
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    output_of(promtool, "check", "config", tmp_path / "prometheus.yml")


def test_the_examples_take_every_file_of_rules(repository: Path) -> None:
    rules = {
        path.name for path in (repository / "rules").glob("*.yml") if "groups" in yaml.safe_load(path.read_bytes())
    }
    for name in CONFIGURATIONS:
        config = yaml.safe_load((repository / "deploy" / name).read_bytes())
        patterns = [pattern.rsplit("/", 1)[1] for pattern in config.get("rule_files", [])]
        taken = {path.name for pattern in patterns for path in (repository / "rules").glob(pattern)}
        assert taken in (rules, set())


def test_the_rules_know_the_exporter_by_the_examples_jobs(repository: Path) -> None:
    text = (repository / "rules/alerts-exporter.yml").read_text(encoding="utf-8")
    (selector,) = set(re.findall(r'up\{job=~"([^"]+)"\}', text))
    for name in CONFIGURATIONS:
        config = yaml.safe_load((repository / "deploy" / name).read_bytes())
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
