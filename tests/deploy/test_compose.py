"""What the Compose example mounts, names and starts fits together; no Compose runs here."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from tests.gathered import every

from gpu_triage_simulator import load_scenario


@pytest.fixture
def folder(repository: Path) -> Path:
    return repository / "deploy" / "compose"


@pytest.fixture
def services(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((folder / "compose.yaml").read_bytes())["services"]
    return found


def _mounts(service: dict[str, Any]) -> dict[str, str]:
    mounts = (mount.split(":") for mount in service.get("volumes", []))
    return {target: source for source, target, *_ in mounts}


def test_everything_mounted_from_the_repository_is_there(folder: Path, services: dict[str, dict[str, Any]]) -> None:
    named = yaml.safe_load((folder / "compose.yaml").read_bytes())["volumes"]
    for service in every(services.values()):
        for source in _mounts(service).values():
            assert source in named or (folder / source).exists(), source


def test_every_configuration_is_found_where_it_is_mounted(folder: Path, services: dict[str, dict[str, Any]]) -> None:
    for name in ("prometheus", "alertmanager"):
        (config,) = (word.split("=")[1] for word in services[name]["command"] if word.startswith("--config.file="))
        assert config in _mounts(services[name])
    config = yaml.safe_load((folder / "prometheus.yml").read_bytes())
    mounted = _mounts(services["prometheus"])
    assert {str(PurePosixPath(pattern).parent) for pattern in config["rule_files"]} <= set(mounted)


def test_prometheus_finds_the_other_services(folder: Path, services: dict[str, dict[str, Any]]) -> None:
    config = yaml.safe_load((folder / "prometheus.yml").read_bytes())
    groups = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    targets = [target for group in groups for each in group["static_configs"] for target in each["targets"]]
    ports = {f"{name}:{port.rsplit(':', 1)[1]}" for name, each in services.items() for port in each["ports"]}
    assert {target for target in targets if not target.startswith("localhost:")} <= ports


def test_grafana_finds_prometheus_and_the_dashboards(folder: Path, services: dict[str, dict[str, Any]]) -> None:
    provisioning = folder / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_bytes())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/gpu-triage.yml").read_bytes())["providers"]
    mounts = _mounts(services["grafana"])
    assert (folder / mounts[provider["options"]["path"]]).name == "dashboards"
    assert (folder / mounts["/etc/grafana/provisioning"]) == provisioning


def test_nothing_listens_beyond_this_machine(services: dict[str, dict[str, Any]]) -> None:
    assert [
        port for each in every(services.values()) for port in each["ports"] if not port.startswith("127.0.0.1:")
    ] == []


def test_the_exporter_has_few_rights_and_a_real_scenario(repository: Path, services: dict[str, dict[str, Any]]) -> None:
    exporter = services["exporter"]
    assert exporter["cap_drop"] == ["ALL"]
    assert exporter["read_only"] is True
    assert load_scenario(exporter["command"][-1]).name == exporter["command"][-1]
    dockerfile = (repository / "Dockerfile").read_text(encoding="utf-8")
    (default,) = map(json.loads, re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE))
    assert exporter["command"][: len(default)] == default


def test_real_gpus_replace_the_simulated_ones(folder: Path) -> None:
    exporter = yaml.safe_load((folder / "gpu.yaml").read_bytes())["services"]["exporter"]
    assert "--simulate" not in exporter["command"]
    mounts = _mounts(exporter)
    assert {
        flag: mounts[exporter["command"][exporter["command"].index(flag) + 1]]
        for flag in ("--path.procfs", "--path.sysfs")
    } == {"--path.procfs": "/proc", "--path.sysfs": "/sys"}
