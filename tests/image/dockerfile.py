"""Reads a Dockerfile's instructions."""

import json
import re
from dataclasses import dataclass

_CONTINUED = re.compile(r"\\\n\s*")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, the rest of its line, and which stage it stands in (0 before any)."""

    name: str
    rest: str
    stage: int


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


def exec_form(text: str) -> list[str]:
    """The words of an instruction in exec form, ``["gpu-triage"]``, options before it left out."""
    words: list[str] = json.loads(text[text.index("[") :])
    return words
