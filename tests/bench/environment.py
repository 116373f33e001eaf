"""Where and when a benchmark ran."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import psutil

DEPENDENCIES = ("nvidia-ml-py", "prometheus-client", "h11")


@dataclass(frozen=True, slots=True)
class CommandWiring:
    """What a reader needs to judge the figures; `load_*` are load averages over one minute."""

    command: str
    date: str
    machine: str
    python: str
    versions: str
    load_before: float
    load_after: float


def wiring(arguments: list[str], load_before: float) -> CommandWiring:
    memory_gib = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return CommandWiring(
        command="python -m tests.bench peer" + (f" ARGS='{' '.join(arguments)}'" if arguments else ""),
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        machine=f"{os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB, {system}",
        python=f"{platform.python_version()} ({sys.implementation.name})",
        versions=", ".join(f"{name} {version(name)}" for name in DEPENDENCIES),
        load_before=load_before,
        load_after=os.getloadavg()[0],
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
