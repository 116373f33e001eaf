"""The node problem detector's plugin against a running exporter, and its configuration by the detector's own rules."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.demo.processes import free_port
from tests.e2e.processes import exporter, wait_for
from tests.listening import answering
from tests.rig import scenario_with

NONE, FOUND, UNKNOWN = 0, 1, 2
FOLDER = "deploy/kubernetes/node-problem-detector"
LOST = 'at = "5s"\ngpu = 1\neffect = { kind = "lost" }'


def ask(
    repository: Path, severity: str, host: str, port: int | str, **environment: str
) -> subprocess.CompletedProcess[str]:
    given = {"PATH": "/usr/bin:/bin", "GPU_VERDICT_HOST": host, "GPU_VERDICT_PORT": str(port), **environment}
    command: list[str | Path] = [repository / FOLDER / "gpu-verdict.sh", severity]
    return subprocess.run(command, env=given, check=False, capture_output=True, text=True)


def ask_one_that_answers(repository: Path, severity: str, answer: str) -> subprocess.CompletedProcess[str]:
    with answering(answer.encode()) as (url, _):
        return ask(repository, severity, *url.removeprefix("http://").split(":"))


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Host and port of an exporter whose GPU 1 is lost."""
    folder = tmp_path_factory.mktemp("sick")
    scenario_with(folder, "idle-downshift", LOST)
    with exporter(folder, "--simulate", str(folder / "idle-downshift-changed.toml")) as running:
        wait_for(lambda: b"\tgpu.lost\t" in running.get("/api/v1/verdict", Accept="text/plain")[2], 60)
        host, _, port = running.address.partition(":")
        yield host, port


def test_a_gpu_to_be_drained_is_a_problem_and_the_message_says_which(repository: Path, sick: tuple[str, str]) -> None:
    result = ask(repository, "critical", *sick)
    assert result.returncode == FOUND
    assert result.stdout.startswith("GPU 1 gpu.lost: GPU lost: the driver cannot reach it")
    assert len(result.stdout.splitlines()) == 1


def test_an_exporter_that_is_not_there_is_unknown_and_no_problem(repository: Path) -> None:
    result = ask(repository, "critical", "127.0.0.1", free_port())
    assert (result.returncode, "no exporter responds at 127.0.0.1" in result.stdout) == (UNKNOWN, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "HTTP/1.1 503 Service Unavailable\r\n\r\nwaiting for the driver\n",
            "no verdict (503): waiting for the driver",
        ),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "no verdict (401)"),
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "is not a gpu-triage exporter"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "no exporter responds"),
    ],
    ids=["not yet", "locked", "another page", "another service"],
)
def test_what_is_no_verdict_is_unknown(repository: Path, answer: str, said: str) -> None:
    result = ask_one_that_answers(repository, "critical", answer)
    assert (result.returncode, said in result.stdout) == (UNKNOWN, True), result.stdout


@pytest.mark.parametrize(
    ("severity", "said"),
    [
        ("critical", "GPU 1 gpu.lost: lost\n"),
        ("warning", "GPU 5 pcie.width: 4 of 16 lanes (pending); GPU 2 gpu.lost: lost (gone); GPU 3 power.brake: on\n"),
    ],
)
def test_a_critical_finding_warns_until_confirmed(repository: Path, severity: str, said: str) -> None:
    findings = (
        "finding\t5\t0000:ab:00.0\twarning\tpcie.width\tinspect_hardware\t4 of 16 lanes\tpending\t40\t600\tyes\n"
        "finding\t1\t0000:18:00.0\tcritical\tgpu.lost\tdrain\tlost\tconfirmed\t10\t0\tyes\n"
        "finding\t2\t0000:2a:00.0\twarning\tgpu.lost\tdrain\tlost\tconfirmed\t10\t0\tno\n"
        "finding\t3\t0000:3a:00.0\twarning\tpower.brake\tinspect_hardware\ton\tconfirmed\t10\t0\t-\n"
    )
    answer = f"HTTP/1.1 200 OK\r\n\r\nhost\tdrain\tgpu-7\t-\n{findings}"
    assert ask_one_that_answers(repository, severity, answer).stdout == said


def test_nothing_is_a_problem_in_maintenance_or_without_a_finding(repository: Path) -> None:
    lost = "finding\t1\t-\tcritical\tgpu.lost\tdrain\tlost\tconfirmed\t9\t0\tyes\n"
    for lines, code in ((f"maintenance\t1795975200\tcommand\triser\n{lost}", NONE), (lost, FOUND), ("", NONE)):
        answer = f"HTTP/1.1 200 OK\r\n\r\nhost\tdrain\tgpu-7\t-\n{lines}"
        assert ask_one_that_answers(repository, "critical", answer).returncode == code


def test_an_exporter_that_hangs_is_unknown(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = ask(repository, "critical", *server.getsockname(), GPU_VERDICT_SECONDS="1")
    assert result.returncode == UNKNOWN
    assert "did not respond within 1 s" in result.stdout


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)(s|m)", text)
    assert found, text
    return float(found[1]) * {"s": 1, "m": 60}[found[2]]


@pytest.mark.parametrize("name", ["gpu-triage.json", "gpu-triage-events.json"])
def test_a_configuration_is_one_that_the_detector_takes(repository: Path, name: str) -> None:
    config: dict[str, Any] = json.loads((repository / FOLDER / name).read_text())
    plugin = config["pluginConfig"]
    script = (repository / FOLDER / "gpu-verdict.sh").read_text()
    longest = re.search(r"^longest=(\d+)$", script, re.MULTILINE)
    assert longest
    assert int(longest[1]) <= plugin["max_output_length"]
    seconds = re.search(r"GPU_VERDICT_SECONDS:-(\d+)", script)
    assert seconds
    assert config["plugin"] == "custom"
    conditions = {condition["type"] for condition in config["conditions"]}
    assert len(config["rules"]) == 1
    for rule in config["rules"]:
        assert rule["path"] == "/config/plugin/gpu-triage/gpu-verdict.sh"
        assert rule["args"] in (["critical"], ["warning"])
        assert int(seconds[1]) < _seconds(rule["timeout"]) <= _seconds(plugin["timeout"])
        assert _seconds(plugin["timeout"]) <= _seconds(plugin["invoke_interval"])
        # A rule of another type, or of a condition that is not declared, ends the detector when it starts.
        assert (rule["type"], rule.get("condition")) in {("permanent", "GpuUnhealthy"), ("temporary", None)}
        assert {rule["condition"]} == conditions if rule["type"] == "permanent" else not conditions


def test_kubernetes_takes_the_service_and_it_finds_the_exporter(repository: Path) -> None:
    service = yaml.safe_load((repository / FOLDER / "service.yaml").read_bytes())
    for version in ("1.26.0", "1.37.0"):
        kubernetes_validate.validate(service, version, strict=True)
    exporter_pods = yaml.safe_load((repository / "deploy/kubernetes/exporter/daemonset.yaml").read_bytes())
    template = exporter_pods["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for each in template["spec"]["containers"] for port in each.get("ports", [])}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    kustomization = yaml.safe_load((repository / FOLDER / "kustomization.yaml").read_bytes())
    assert set(kustomization["configMapGenerator"][0]["files"]) == {
        path.name for path in (repository / FOLDER).iterdir() if path.suffix in {".json", ".sh"}
    }
