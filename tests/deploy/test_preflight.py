"""A sick GPU keeps a job away, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml


def test_the_pod_asks_what_the_program_knows(repository: Path) -> None:
    pod = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    (container,) = pod["spec"]["template"]["spec"]["initContainers"]
    command = [sys.executable, "-m", "gpu_triage", *container["args"], "--simulate", "no-such-scenario"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "no scenario" in result.stderr, "the flags before it are known"


def test_kubernetes_takes_the_pod(repository: Path) -> None:
    job = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    for version in ("1.25.0", "1.37.0"):
        kubernetes_validate.validate(job, version, strict=True)
