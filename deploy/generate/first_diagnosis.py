"""Generates the output in docs/first-diagnosis.md by running its commands."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.generate import REPOSITORY

PAGE: Final = Path("docs/first-diagnosis.md")
COMMAND: Final = re.compile(r"^```console\n\$ (gpu-triage .*)\n(?:.*\n)*?```$", re.MULTILINE)


def files() -> dict[Path, str]:
    """The page, with the present output below each command of gpu-triage, by path in the repository."""
    return {PAGE: COMMAND.sub(_run, (REPOSITORY / PAGE).read_text(encoding="utf-8"))}


def _run(block: re.Match[str]) -> str:
    # A pipe gets whole lines, or pages of 80 columns, and the program is the one of this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
    command = ("bash", "-c", block[1])
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return f"```console\n$ {block[1]}\n{ran.stdout}```"
