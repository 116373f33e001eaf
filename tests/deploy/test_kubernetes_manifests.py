"""The plain Kubernetes manifests are the chart's objects, and Kubernetes takes them; for the Prometheus operator see
tests/chart/test_monitoring.py."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.generate.kubernetes import EXPORTER, OPERATOR
from tests.chart.rendering import render
from tests.rules.rulefile import alerts, read_rules, rule_files

LARGEST_BYTES = 256 << 10
"""``kubectl apply`` keeps an object's last state in an annotation, and annotations may have so much."""


def _objects(repository: Path, folder: Path) -> list[dict[str, Any]]:
    files = sorted((repository / folder).glob("*.yaml"))
    every = (each for path in files for each in yaml.safe_load_all(path.read_bytes()))
    return [each for each in every if each["kind"] != "Kustomization"]


@pytest.mark.parametrize("version", ["1.25.0", "1.31.0", "1.37.0"])
def test_kubernetes_takes_every_manifest(repository: Path, version: str) -> None:
    for each in _objects(repository, EXPORTER):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("folder", [EXPORTER, OPERATOR])
def test_a_kustomization_lists_every_manifest_of_its_folder(repository: Path, folder: Path) -> None:
    listed = yaml.safe_load((repository / folder / "kustomization.yaml").read_bytes())["resources"]
    files = {path.name for path in (repository / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(files)


def test_the_pods_are_the_charts(repository: Path) -> None:
    (daemon_set,) = [each for each in _objects(repository, EXPORTER) if each["kind"] == "DaemonSet"]
    theirs = render({"image": {"repository": "gpu-triage-exporter"}}, release="gpu-triage-exporter")
    assert daemon_set["spec"]["template"]["spec"] == theirs.pod


def test_the_monitor_and_the_service_find_the_pods(repository: Path) -> None:
    objects = {each["kind"]: each for folder in (EXPORTER, OPERATOR) for each in _objects(repository, folder)}
    labels = objects["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    monitor = objects["ServiceMonitor"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= objects["Service"]["metadata"]["labels"].items()
    assert "gpu-triage" in objects["Service"]["metadata"]["labels"][monitor["spec"]["jobLabel"]]


def test_every_alert_is_there_and_each_object_fits_into_an_annotation(repository: Path) -> None:
    found = _objects(repository, OPERATOR)
    rules = [rule for each in found for group in each["spec"].get("groups", ()) for rule in group["rules"]]
    wanted = [rule.name for rule in alerts(read_rules(rule_files()))]
    assert sorted(rule["alert"] for rule in rules if "alert" in rule) == sorted(wanted)
    assert max(len(yaml.safe_dump(each)) for each in found) < LARGEST_BYTES
    assert "Helm" not in str(found)


def test_the_preflight_asks_what_the_program_knows(repository: Path) -> None:
    pod = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    (container,) = pod["spec"]["template"]["spec"]["initContainers"]
    command = [sys.executable, "-m", "gpu_triage", *container["args"], "--simulate", "no-such-scenario"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "no scenario" in result.stderr, "the flags before it are known"


def test_kubernetes_takes_the_preflight(repository: Path) -> None:
    job = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    for version in ("1.25.0", "1.37.0"):
        kubernetes_validate.validate(job, version, strict=True)
