"""Generates the output in docs/first-diagnosis.md by running its commands; `docs.build` writes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent / "first-diagnosis.md"
_BLOCK: Final = re.compile(r"^```console\n\$ (gpu-triage .*)\n(?:.*\n)*?```$", re.MULTILINE)


def page() -> str:
    """The page, with the present output below each command of gpu-triage."""
    return _BLOCK.sub(_run, PAGE.read_text(encoding="utf-8"))


def _run(block: re.Match[str]) -> str:
    # A pipe gets whole lines, and the program is the one of this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
    command = ("bash", "-c", block[1])
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - ours
    return f"```console\n$ {block[1]}\n{ran.stdout}```"
