"""Slurm's scripts where nothing could be checked: syslog says so, and the node is drained if so configured."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.slurm_node import GO, HOLD, NOBODY, Node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


@pytest.mark.parametrize("script", ["prolog", "epilog", "health-check"])
def test_a_node_whose_gpus_nobody_could_check_says_so_in_syslog_and_keeps_its_jobs(node: Node, script: str) -> None:
    node.has_no_program()
    result = node.run(script, NOBODY, SLURM_JOB_GPUS="0", SLURM_JOB_ID="42")
    said = f"nothing was checked: no verdict from {NOBODY}, and gpu-triage is not installed"
    assert node.syslog == [f"-t gpu-triage-{script} -p daemon.err -- job 42: {said}"]
    assert result.stderr == f"gpu-triage-{script}: job 42: {said}\n"
    assert result.returncode == GO
    assert node.told == []


@pytest.mark.parametrize(("script", "outcome"), [("prolog", HOLD), ("epilog", 0), ("health-check", 0)])
def test_a_node_whose_gpus_nobody_could_check_is_drained_if_so_configured(
    node: Node, script: str, outcome: int
) -> None:
    node.program("exit 70")
    result = node.run(script, NOBODY, SLURM_JOB_GPUS="0", NODE_CHECK_UNCHECKED="drain")
    assert result.returncode == outcome
    (told,) = node.told
    assert told.startswith("update NodeName=gpu-7 State=DRAIN Reason=gpu-triage: nothing was checked: no verdict from ")
    assert told.endswith("/gpu-triage check' ended with code 70 and without a report")


def test_a_node_with_gpus_of_another_vendor_is_not_drained_for_what_nobody_could_check(node: Node) -> None:
    node.has_no_program()
    node.has_no_gpus()
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="drain").returncode == GO
    assert node.told == []
    assert len(node.syslog) == 1


def test_a_typing_error_in_what_to_do_drains_nothing_and_is_reported(node: Node) -> None:
    node.has_no_program()
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="Drain").returncode == GO
    assert node.told == []
    assert "NODE_CHECK_UNCHECKED is 'Drain' instead of log or drain" in node.syslog[-1]


def test_a_mistake_in_the_settings_drains_nothing_and_is_reported(node: Node, tmp_path: Path, sick: str) -> None:
    """A shell that reads one exits with an error, and slurmd would take that for a failed prolog."""
    settings = tmp_path / "settings"
    for mistake in ("NODE_CHECK_URL=$UNKNOWN\n", "if true\n"):
        settings.write_text(mistake)
        result = node.prolog(sick, "0", NODE_CHECK_SETTINGS=str(settings))
        assert result.returncode == GO
        assert node.syslog.pop().endswith(f"{settings} is ignored: it has an error")
    settings.write_text("[ -e /nonexistent ] && NODE_CHECK_URL=\n")
    assert node.prolog(sick, "0", NODE_CHECK_SETTINGS=str(settings)).stderr == ""


@pytest.mark.parametrize("sign", ["dev/nvidia0", "driver/0000:65:00.0"])
def test_a_gpu_is_known_by_its_device_file_and_by_its_driver_too(node: Node, tmp_path: Path, sign: str) -> None:
    node.has_no_program()
    node.has_no_gpus()
    (tmp_path / sign).mkdir(parents=True)
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="drain").returncode == HOLD


def test_node_exporter_is_told_whether_the_last_run_checked_anything(
    node: Node, tmp_path: Path, sick: str, requires_tool: RequiresTool
) -> None:
    promtool = requires_tool("promtool")
    folder = tmp_path / "textfile"
    folder.mkdir()
    for url, success in ((NOBODY, 0), (sick, 1)):
        node.run("health-check", url, NODE_CHECK_TEXTFILE_DIRECTORY=str(folder), NODE_CHECK_PROGRAM="/nonexistent")
        (file,) = folder.iterdir()
        assert file.name == "slurm-gpu-check-health-check.prom"
        assert file.stat().st_mode & 0o777 == 0o644
        text = file.read_text()
        assert text.splitlines()[-1] == f'slurm_gpu_check_success{{script="health-check"}} {success}'
        subprocess.run([promtool, "check", "metrics"], input=text, check=True, text=True)


def test_root_writes_through_no_link_that_the_owner_of_node_exporters_directory_planted(
    node: Node, tmp_path: Path
) -> None:
    folder, victim, wrapper = tmp_path / "textfile", tmp_path / "victim", tmp_path / "wrapper"
    folder.mkdir()
    victim.write_text("precious")
    planted = folder / "slurm-gpu-check-health-check.prom"
    planted.symlink_to(folder)
    wrapper.write_text(f'#!/bin/sh\nln -s {victim} "{planted}.$$"\nexec {node.scripts / "health-check.sh"}\n')
    wrapper.chmod(0o755)
    node.run_file(wrapper, NOBODY, NODE_CHECK_TEXTFILE_DIRECTORY=str(folder), NODE_CHECK_PROGRAM="/nonexistent")
    assert victim.read_text() == "precious"
    assert [path.is_symlink() for path in folder.iterdir()] == [False]
    assert "slurm_gpu_check_success" in planted.read_text()


def test_a_job_is_not_refused_because_node_exporter_has_no_directory(node: Node, sick: str) -> None:
    assert node.prolog(sick, "0", NODE_CHECK_TEXTFILE_DIRECTORY="/nonexistent").returncode == GO
    assert "cannot write /nonexistent/slurm-gpu-check-prolog.prom" in node.syslog[-1]
