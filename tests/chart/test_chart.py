"""The chart renders, what it renders is valid, and the program accepts the flags that it is given."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import helm_python
import kubernetes_validate
import pytest
from tests.chart.rendering import CHART, IMAGE, MATRIX, Rendered, render
from tests.e2e.processes import exporter
from tests.gathered import every
from tests.parts import some

from gpu_triage import __version__
from gpu_triage.cli.run import run_cli
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand, serve_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES

# The oldest that Chart.yaml allows and that the schemas have, one in between, the newest.
KUBERNETES_VERSIONS = ("1.25.0", "1.31.0", "1.37.0")
CUSTOM = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    report = helm_python.lint(CHART, values, strict=True)
    assert report["errors"] == []
    assert report["messages"] == []


@pytest.mark.parametrize("version", some(KUBERNETES_VERSIONS, (KUBERNETES_VERSIONS[0], KUBERNETES_VERSIONS[-1])))
@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_kubernetes_takes_every_object(values: dict[str, Any], version: str) -> None:
    checked = [each for each in render(values).objects if each["kind"] not in CUSTOM]
    assert any(each["kind"] == "DaemonSet" for each in checked)
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_objects_have_names_of_their_own_and_the_releases_labels(values: dict[str, Any]) -> None:
    objects = render(values).objects
    names = [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    for each in objects:
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpu"
        assert each["metadata"]["labels"]["app.kubernetes.io/version"] == __version__


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_only_the_exporters_pods_are_selected(values: dict[str, Any]) -> None:
    rendered = render(values)
    selector = rendered.only("DaemonSet")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= rendered.only("DaemonSet")["spec"]["template"]["metadata"]["labels"].items()
    for test_pod in rendered.of_kind("Pod"):
        assert not selector.items() <= test_pod["metadata"]["labels"].items()
    for service in rendered.of_kind("Service"):
        assert service["spec"]["selector"] == selector


def _flags(rendered: Rendered, root: Path) -> list[str]:
    """The container's arguments, `$(NODE_NAME)` expanded and the container's paths below a folder of the test."""
    for folder in ("host/proc", "host/sys", "etc"):
        (root / folder).mkdir(parents=True)
    expanded = (argument.replace("$(NODE_NAME)", "node-1") for argument in rendered.container["args"])
    return [re.sub(r"=(/host|/etc)/", rf"={root}\1/", argument) for argument in expanded]


def _accepted(flags: list[str]) -> Config:
    seen: list[Config] = []

    @click.group()
    def group() -> None:
        """Stand in for the real command, whose serve command would go on to serve."""

    @group.command(cls=OptionsCommand)
    @serve_options(COLLECTOR_SWITCHES, lambda _scenario: {})
    def serve(config: Config) -> None:
        seen.append(config)

    assert run_cli(group, flags) == 0
    return seen[0]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_the_program_accepts_the_flags(values: dict[str, Any], tmp_path: Path) -> None:
    config = _accepted(_flags(render(values), tmp_path))
    assert config.web_telemetry_path == values.get("web", {}).get("telemetryPath", "/metrics")
    assert config.simulate == values.get("simulate")


def test_allowed_hosts_become_flags_beside_the_name_that_the_charts_own_test_uses(tmp_path: Path) -> None:
    config = _accepted(_flags(render({"web": {"allowedHosts": ["GPU-1.example.com", ".example.org"]}}), tmp_path))
    assert config.web_allowed_hosts == ("gpu-gpu-triage-exporter", "gpu-1.example.com", ".example.org")
    assert "--web.allowed-hosts" not in str(render({}).container["args"])


def test_without_an_image_the_chart_says_how_to_build_one() -> None:
    with pytest.raises(helm_python.HelmError, match=r"image\.repository is not set.*docker build --tag .*docker push"):
        render({"image": {"repository": ""}})
    assert render({"image": {"tag": "2"}}).container["image"] == f"{IMAGE}:2"


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("gpu-triage", {}, "gpu-triage"),
        ("gpu-triage-exporter", {}, "gpu-triage-exporter"),
        ("gpu-triage-a100", {}, "gpu-triage-a100"),
        ("prod", {}, "prod-gpu-triage-exporter"),
        ("prod", {"nameOverride": "gpus"}, "prod-gpus"),
        ("gpu-triage", {"nameOverride": "gpus"}, "gpu-triage-gpus"),
        ("prod", {"fullnameOverride": "gpus"}, "gpus"),
    ],
)
def test_a_name_is_not_said_twice(release: str, values: dict[str, Any], name: str) -> None:
    assert render(values, release=release).only("DaemonSet")["metadata"]["name"] == name


def test_expectations_become_flags_and_nothing_is_expected_by_default(tmp_path: Path) -> None:
    config = _accepted(_flags(render({"expected": MATRIX["everything"]["expected"]}), tmp_path))
    assert config.expect_gpu_count == 8
    assert config.expect_pcie_generation == 5
    assert config.expect_pcie_width == 16
    assert config.expect_p2p is False
    assert _accepted(_flags(render({"expected": {"gpuCount": 0}}), tmp_path / "none")).expect_gpu_count == 0
    assert [argument for argument in every(render().container["args"]) if argument.startswith("--expect")] == []


@pytest.mark.parametrize(
    ("code", "name", "value", "expected"),
    [
        ("thermal.hw", "wait", "5m", 300.0),
        ("thermal.hw", "share", 0.2, 0.2),
        ("thermal.hw", "share", 1, 1.0),
        ("thermal.hw", "share", "7 %", 0.07),
        ("pcie.aer", "count", 1_000_000, 1e6),
        ("memory.swapping", "rate", 1_048_576, 1024.0**2),
        ("memory.swapping", "rate", "1.5MiB", 1.5 * 1024**2),
    ],
)
def test_settings_become_flags(tmp_path: Path, code: str, name: str, value: str | float, expected: float) -> None:
    config = _accepted(_flags(render({"judge": {code: {name: value}}}), tmp_path))
    settings = judge_settings(config.judge)
    assert [(each.code, each.name, each.value) for each in settings.changed] == [(code, name, expected)]


def test_the_helm_test_passes_beside_an_exporter_and_fails_without(tmp_path: Path) -> None:
    (pod,) = render().of_kind("Pod")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    (script,) = container["args"]

    def run(address: str) -> subprocess.CompletedProcess[str]:
        moved = script.replace("gpu-gpu-triage-exporter:9836", address)
        return subprocess.run([sys.executable, "-c", moved], check=False, capture_output=True, text=True)

    with exporter(tmp_path, "--simulate", "dual-a10") as running:
        passed = run(running.address)
        assert passed.returncode == 0, passed.stderr
        assert "gpu_driver_up 1.0" in passed.stdout
    assert run(running.address).returncode != 0


def test_the_helm_test_only_connects_where_it_has_no_credentials(tmp_path: Path) -> None:
    (pod,) = render({"web": {"configSecret": "web", "tls": True, "clientAuth": True}}).of_kind("Pod")
    (script,) = pod["spec"]["containers"][0]["args"]
    with exporter(tmp_path, "--simulate", "dual-a10") as running:
        host, port = running.address.split(":")
        moved = script.replace('"gpu-gpu-triage-exporter", 9836', f'"{host}", {port}')
        assert subprocess.run([sys.executable, "-c", moved], check=False, capture_output=True).returncode == 0
