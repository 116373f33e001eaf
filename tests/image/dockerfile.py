"""Reads a Dockerfile's instructions and plays its build in a folder, where no Docker daemon is at hand.

What stands outside a build's reach here: the base image itself (a fresh virtual environment stands in for its Python)
and absolute paths, which are moved below the folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_CONTINUED = re.compile(r"\\\n\s*")
_ABSOLUTE = re.compile(r"(?<![\w./*-])/(?=opt/|wheels|source|var/lib/gpu-triage)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, the rest of its line, and which stage it stands in (0 before any)."""

    name: str
    rest: str
    stage: int


@dataclass(slots=True)
class Image:
    """What a stage's instructions make."""

    root: Path  # the folder that stands for the stage's root
    environment: dict[str, str] = field(default_factory=dict)  # its variables
    folder: Path = Path("/")  # the working directory


def instructions(text: str) -> list[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found: list[Instruction] = []
    stage = 0
    for line in _CONTINUED.sub(" ", lines).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            stage += name == "FROM"
            found.append(Instruction(name.upper(), rest.strip(), stage))
    return found


def play_stage(each: list[Instruction], context: Path, image: Image) -> list[str]:
    """Carry out one stage's instructions in order; returns the RUN steps, as they ran."""
    ran = []
    for instruction in each:
        if instruction.name == "WORKDIR":
            image.folder = Path(instruction.rest)
            _below(image.root, image.folder).mkdir(parents=True, exist_ok=True)
        elif instruction.name == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", instruction.rest):
                image.environment[name] = value.replace("$PATH", image.environment.get("PATH", ""))
        elif instruction.name == "COPY" and not instruction.rest.startswith("--from"):
            *sources, target = instruction.rest.split()
            _copy([context / source for source in sources], _below(image.root, image.folder) / target)
        elif instruction.name == "RUN":
            ran.append(_run(instruction.rest, image))
    return ran


def _copy(sources: list[Path], target: Path) -> None:
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            folder = target if len(sources) > 1 or target.name == "." else target.parent
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder)


def _run(step: str, image: Image) -> str:
    moved = _ABSOLUTE.sub(f"{image.root}/", step)
    # This machine's proxies and package index count, its Python's paths do not.
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    result = subprocess.run(
        ["/bin/sh", "-ec", moved],
        cwd=_below(image.root, image.folder),
        env={**outside, **image.environment},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"RUN {moved}\n{result.stdout}{result.stderr}"
    return moved


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def exec_form(text: str) -> list[str]:
    """The words of an instruction in exec form, ``["gpu-triage"]``, options before it left out."""
    words: list[str] = json.loads(text[text.index("[") :])
    return words
