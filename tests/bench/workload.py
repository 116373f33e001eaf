"""The host that both GPU exporters watch: eight simulated H100, their 64 processes, and one GPU that may hang.

The processes really run on this machine (as `sleep`), because the peer asks the kernel about every PID it meets.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

BASE_SCENARIO = "h100-8"
LONGEST_RUN_SECONDS = 3600
HUNG_GPU = 3

_PID = re.compile(r"^pid = \d+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Hang:
    """A span of scenario time, in seconds, in which every NVML call on GPU 3 blocks."""

    starts: int
    ends: int


def scenario_text(pids: Sequence[int], hang: Hang | None = None) -> str:
    """The scenario h100-8 with other PIDs, and a hang where one is given.

    Raises:
        ValueError: the scenario has another number of processes.
    """
    base = resources.files("gpu_triage_simulator").joinpath(f"scenarios/{BASE_SCENARIO}.toml").read_text("utf-8")
    remaining = iter(pids)
    if len(_PID.findall(base)) != len(pids):
        raise ValueError(f"{BASE_SCENARIO} has {len(_PID.findall(base))} processes, not {len(pids)}")
    text = _PID.sub(lambda _match: f"pid = {next(remaining)}", base)
    if hang is None:
        return text
    event = f'at = "{hang.starts}s"\nuntil = "{hang.ends}s"\ngpu = {HUNG_GPU}\neffect = {{ kind = "hang" }}\n'
    return f"{text}\n[[event]]\n{event}"


def process_count() -> int:
    base = resources.files("gpu_triage_simulator").joinpath(f"scenarios/{BASE_SCENARIO}.toml")
    return len(_PID.findall(base.read_text("utf-8")))


def write_scenario(directory: Path, pids: Sequence[int], hang: Hang | None = None) -> Path:
    path = directory / ("hang.toml" if hang else "steady.toml")
    path.write_text(scenario_text(pids, hang), encoding="utf-8")
    return path


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """PIDs of `count` processes that do nothing; they end with the ``with`` block, or by themselves in an hour."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(subprocess.Popen(["sleep", str(LONGEST_RUN_SECONDS)]) for _ in range(count))
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
