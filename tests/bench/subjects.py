"""The exporters that are measured: how each is started, watched and ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from deploy.demo.processes import free_port
from tests.bench import scrape

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PEER_ENVIRONMENT = Path(__file__).with_name(".venv")
PYTHONPATH = f"{REPOSITORY}:{REPOSITORY / 'exporter'}"
"""This repository's packages, for an interpreter that has not installed them."""

START_SECONDS = 60.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Subject:
    """An exporter."""

    name: str  # as in the report
    version: str  # its version
    command: tuple[str, ...]  # its arguments; ``{port}``, ``{scenario}`` and ``{meter}`` are filled in
    metered_command: tuple[str, ...] | None  # the same with the stand-in driver metered; None where none is inside
    ready: str  # text on its page once it has read the GPUs, or the host
    power: str | None  # name of its power gauge, the value that a healthy GPU changes every second; None without


@dataclass(frozen=True, slots=True)
class Running:
    """An exporter at work, on a port of 127.0.0.1."""

    port: int
    process: psutil.Process
    started: float

    def cpu_seconds(self) -> float:
        """CPU time of the process and its ended children so far, user and system."""
        times = self.process.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in self.process.children(recursive=True):
            total += child.cpu_times().user + child.cpu_times().system
        return float(total)

    def resident_bytes(self) -> int:
        family = (self.process, *self.process.children(recursive=True))
        return sum(int(member.memory_info().rss) for member in family)


def this_exporter(version: str) -> Subject:
    serve = ("serve", "--simulate", "{scenario}", "--web.listen-address", "127.0.0.1:{port}")
    return Subject(
        name="gpu-triage",
        version=version,
        # The same interpreter and package as `.venv/bin/gpu-triage`.
        command=(sys.executable, "-m", "gpu_triage", *serve),
        metered_command=(sys.executable, "-m", "tests.bench.launch_exporter", "{meter}", *serve),
        ready="gpu_process_memory_bytes{",
        power="gpu_power_watts",
    )


def nvitop_exporter() -> Subject:
    """The peer on PyPI, over the same simulated library; installed into its own environment when needed."""
    python = _peer_python()
    launch = (str(python), "-m", "tests.bench.launch_nvitop", "{scenario}")
    flags = ("--bind-address", "127.0.0.1", "--port", "{port}")
    return Subject(
        name="nvitop-exporter",
        version=peer_pins()["nvitop-exporter"],
        command=(*launch, "-", *flags),
        metered_command=(*launch, "{meter}", *flags),
        ready="process_gpu_memory_MiB{",
        power="gpu_power_usage_W",
    )


def peer_pins() -> dict[str, str]:
    return dict(line.split()[0].split("==") for line in REQUIREMENTS.read_text("utf-8").splitlines() if "==" in line)


def node_exporter() -> Subject | None:
    """Debian's, on this machine as it is; None where it is not installed."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        subprocess.run([REPOSITORY / "tests/environment/install-servers.sh"], check=True)
        program = shutil.which("prometheus-node-exporter")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    words = (said.stdout + said.stderr).split()
    return Subject(
        name="node_exporter",
        version=words[words.index("version") + 1],
        command=(program, "--web.listen-address", "127.0.0.1:{port}", "--log.level", "error"),
        metered_command=None,
        ready="node_memory_MemTotal_bytes",
        power=None,
    )


@contextmanager
def running(subject: Subject, scenario: Path, logs: Path, meter: Path | None = None) -> Iterator[Running]:
    """The exporter at work for the length of a ``with`` block, its GPUs already on its page.

    Raises:
        RuntimeError: it does not come up; with the end of what it logged.
    """
    port = free_port()
    template = subject.command if meter is None else subject.metered_command
    if template is None:
        raise ValueError(f"{subject.name} has no stand-in to meter")
    values = {"port": port, "scenario": scenario, "meter": meter}
    log = logs / f"{subject.name}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [argument.format(**values) for argument in template],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": PYTHONPATH},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        started = time.monotonic()
        if not _came_up(process, port, subject.ready):
            raise RuntimeError(f"{subject.name} does not come up:\n{log.read_text('utf-8')[-2000:]}")
        yield Running(port, psutil.Process(process.pid), started)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _came_up(process: subprocess.Popen[bytes], port: int, text: str) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if text in scrape.page(port):
                return True
        except OSError:
            pass
        time.sleep(0.2)
    return False


def _peer_python() -> Path:
    """The interpreter of the peer's environment, made anew when the requirements have changed."""
    python, stamp = PEER_ENVIRONMENT / "bin/python", PEER_ENVIRONMENT / ".stamp"
    wanted = REQUIREMENTS.read_text("utf-8")
    if not stamp.is_file() or stamp.read_text("utf-8") != wanted:
        venv.create(PEER_ENVIRONMENT, clear=True, with_pip=True)
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
        subprocess.run([*install, "--require-hashes", "-r", REQUIREMENTS], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return python
