"""The exporters that are measured beside each other, over one simulated host: how each is started and watched."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from deploy.demo.processes import Server, free_port
from deploy.generate import REPOSITORY
from tests.bench import scrape
from tests.distribution import make_environment

from gpu_triage import __version__
from gpu_triage_simulator.scenario_file import SCENARIOS

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PEER_ENVIRONMENT = REPOSITORY / "build" / "bench-venv"
PYTHONPATH = f"PYTHONPATH={REPOSITORY}:{REPOSITORY / 'exporter'}"
"""This repository's packages, for an interpreter that has not installed them."""
SCENARIO = SCENARIOS / "h100-8.toml"
HUNG_GPU = 3
START_SECONDS = 60.0
LONGEST_RUN_SECONDS = 3600

_PID = re.compile(r"^pid = \d+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter; in its command, ``{port}``, ``{scenario}`` and ``{meter}`` are filled in."""

    name: str
    version: str
    command: tuple[str, ...]
    ready: str  # text on its page once it has read the GPUs, or the host
    power: str | None  # name of its power gauge, which changes every second on a healthy GPU; None without one


@dataclass(frozen=True, slots=True)
class Running:
    """An exporter at work, on a port of 127.0.0.1."""

    port: int
    process: psutil.Process
    started: float

    def cpu_seconds(self) -> float:
        """CPU time of the process and its ended children so far, user and system."""
        return float(sum(self.process.cpu_times()[:4]))

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)


def this_exporter() -> Exporter:
    """Ours; the simulated driver inside it is metered if there is a file for that."""
    serve = ("serve", "--simulate", "{scenario}", "--web.listen-address", "127.0.0.1:{port}")
    launch = (sys.executable, "-m", "tests.bench.launch", "{meter}", "gpu-triage", *serve)
    return Exporter("gpu-triage", __version__, launch, "gpu_process_memory_bytes{", "gpu_power_watts")


def nvitop_exporter() -> Exporter:
    """The peer on PyPI, over the same simulated library, in an environment of its own that is made if it is missing."""
    python = make_environment(Path(sys.executable), PEER_ENVIRONMENT, REQUIREMENTS)
    flags = ("--bind-address", "127.0.0.1", "--port", "{port}")
    launch = (str(python), "-m", "tests.bench.launch", "{meter}", "nvitop", "{scenario}", *flags)
    version = peer_pins()["nvitop-exporter"]
    return Exporter("nvitop-exporter", version, launch, "process_gpu_memory_MiB{", "gpu_power_usage_W")


def peer_pins() -> dict[str, str]:
    return dict(line.split()[0].split("==") for line in REQUIREMENTS.read_text("utf-8").splitlines() if "==" in line)


def node_exporter() -> Exporter | None:
    """Debian's, on this machine as it is; None where it is not installed."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    words = (said.stdout + said.stderr).split()
    flags = ("--web.listen-address", "127.0.0.1:{port}", "--log.level", "error")
    version = words[words.index("version") + 1]
    return Exporter("node_exporter", version, (program, *flags), "node_memory_MemTotal_bytes", None)


@contextmanager
def running(exporter: Exporter, scenario: Path, logs: Path, meter: Path | None = None) -> Iterator[Running]:
    """The exporter at work for the length of a ``with`` block, its GPUs already on its page."""
    port = free_port()
    values = {"port": port, "scenario": scenario, "meter": meter or "-"}
    command = ["env", PYTHONPATH, *(argument.format(**values) for argument in exporter.command)]
    server = Server(f"{exporter.name}-{port}", command, logs, f"http://127.0.0.1:{port}/metrics")
    with server.running():
        started = time.monotonic()
        while exporter.ready not in scrape.page(port).decode():
            if time.monotonic() > started + START_SECONDS:
                raise RuntimeError(f"{exporter.name} has no {exporter.ready}; see {logs}")
            time.sleep(0.2)
        yield Running(port, psutil.Process(server.pid), started)


def write_scenario(directory: Path, pids: list[int], hang: tuple[int, int] | None = None) -> Path:
    """The scenario h100-8 with the PIDs of processes that really run, because the peer asks the kernel about each.

    Args:
        directory: where the file goes.
        pids: as many as the scenario has processes.
        hang: seconds between which every NVML call on GPU 3 blocks.
    """
    remaining = iter(pids)
    text = _PID.sub(lambda _: f"pid = {next(remaining)}", SCENARIO.read_text("utf-8"))
    if hang:
        starts, ends = hang
        at = f'at = "{starts}s"\nuntil = "{ends}s"\ngpu = {HUNG_GPU}'
        text += f'\n[[event]]\n{at}\neffect = {{ kind = "hang" }}\n'
    path = directory / ("hang.toml" if hang else "steady.toml")
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def sleepers() -> Iterator[list[int]]:
    """PIDs of as many processes as the scenario has; they end with the ``with`` block, or by themselves in an hour."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        count = len(_PID.findall(SCENARIO.read_text("utf-8")))
        processes.extend(subprocess.Popen(["sleep", str(LONGEST_RUN_SECONDS)]) for _ in range(count))
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
