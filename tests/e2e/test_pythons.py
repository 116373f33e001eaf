"""The wheel and nothing but what it asks for, under every supported Python of this host."""

import subprocess
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.distribution import install, interpreters, make_environment
from tests.e2e.processes import exporter, wait_for

PYTHONS = interpreters()


@pytest.fixture(scope="module", params=PYTHONS)
def program(
    request: pytest.FixtureRequest, repository: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ...]:
    """The command ``gpu-triage`` of an environment that has the wheel and its locked dependencies only."""
    environment = tmp_path_factory.mktemp("python") / request.param
    python = make_environment(PYTHONS[request.param], environment, repository / "requirements" / "runtime.txt")
    install(python, "--no-deps", str(wheel))
    # Isolated: neither PYTHONPATH nor the folder these tests run in may lend it a module.
    return str(python), "-I", str(environment / "bin" / "gpu-triage")


def output(tmp_path: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_the_command_explains_itself_and_lists_its_scenarios(program: tuple[str, ...], tmp_path: Path) -> None:
    assert "serve" in output(tmp_path, *program, "--help")
    assert "h100-8-bad-night" in output(tmp_path, *program, "simulate", "--list")


def test_promtool_accepts_the_page(program: tuple[str, ...], tmp_path: Path, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    with exporter(tmp_path, "--simulate", "h100-8", program=program) as running:
        wait_for(lambda: running.metrics().count("\ngpu_up{") == 8)
        page = running.metrics()
        checked = subprocess.run(
            [promtool, "check", "metrics"], input=page, check=False, capture_output=True, text=True
        )
        assert (checked.returncode, checked.stderr) == (0, "")
        assert 'gpu_exporter_collector_success{collector="host_cpu"} 1.0' in page
        running.process.terminate()
        assert running.process.wait(10) == 0
