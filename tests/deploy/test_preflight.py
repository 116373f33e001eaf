"""A sick GPU keeps a job away, and nothing else does."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import kubernetes_validate
import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

GO, DRAIN = 0, 1


def _prolog(repository: Path, tmp_path: Path, program: str, **job: str) -> subprocess.CompletedProcess[str]:
    stand_in = tmp_path / "gpu-triage"
    stand_in.write_text(f"#!/bin/sh\n{program}\n")
    stand_in.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "PREFLIGHT_PROGRAM": str(stand_in), "PREFLIGHT_SECONDS": "1", **job}
    return subprocess.run(
        [repository / "deploy/slurm/prolog.sh"], env=environment, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("exit 0", GO, ""),
        ("echo 'GPU 3 is lost'; exit 1", DRAIN, "GPU 3 is lost"),
        ("echo 'the driver is missing'; exit 2", DRAIN, "the driver is missing"),
        ("echo 'unknown variable' >&2; exit 2", GO, "unknown variable"),
        ("exec sleep 60", DRAIN, "no answer in 1 s"),
        ("echo Traceback >&2; exit 70", GO, "Traceback"),
    ],
    ids=["sound", "critical", "cannot look", "wrong options", "hangs", "broken program"],
)
def test_the_prolog_drains_for_what_the_check_says(
    repository: Path, tmp_path: Path, program: str, outcome: int, said: str
) -> None:
    result = _prolog(repository, tmp_path, program, SLURM_JOB_GPUS="0,1", SLURM_JOB_ID="42")
    assert result.returncode == outcome
    assert said in result.stderr
    assert ("job 42" in result.stderr) == bool(said)


def test_the_prolog_leaves_jobs_without_gpus_alone(repository: Path, tmp_path: Path) -> None:
    assert _prolog(repository, tmp_path, "exit 1").returncode == GO


def test_a_program_that_is_missing_does_not_drain_the_cluster(repository: Path, tmp_path: Path) -> None:
    result = _prolog(repository, tmp_path, "", SLURM_JOB_GPUS="0", PREFLIGHT_PROGRAM=str(tmp_path / "nowhere"))
    assert result.returncode == GO
    assert "nothing was checked" in result.stderr


def test_the_prolog_and_the_pod_ask_what_the_program_knows(repository: Path) -> None:
    prolog = (repository / "deploy/slurm/prolog.sh").read_text(encoding="utf-8")
    (asked,) = re.findall(r'"\$program" (.*?)\)', prolog)
    pod = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    (container,) = pod["spec"]["template"]["spec"]["initContainers"]
    assert container["args"] == asked.split()
    command = [sys.executable, "-m", "gpu_triage", *asked.split(), "--simulate", "no-such-scenario"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "no scenario" in result.stderr, "the flags before it are known"


def test_kubernetes_takes_the_pod(repository: Path) -> None:
    job = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    for version in ("1.25.0", "1.37.0"):
        kubernetes_validate.validate(job, version, strict=True)
