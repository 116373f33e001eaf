"""What a program prints that has to succeed."""

import os
import subprocess
from pathlib import Path


def output_of(*command: str | Path, stdin: str = "", **environment: str) -> str:
    """Its stdout; if it fails, all that it printed is in the failure of the test."""
    ended = subprocess.run(
        command, check=False, input=stdin, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
