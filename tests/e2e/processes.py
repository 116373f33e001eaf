"""Real processes for end-to-end tests: the exporter and Debian's Prometheus, each ended by its own handle."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.demo.processes import Server, free_port

WAIT_SECONDS = 40.0
"""Far more than anything here takes on an idle machine: only a broken program waits so long."""


@dataclass
class Exporter:
    """A running exporter."""

    process: subprocess.Popen[bytes]  # its handle
    address: str  # ``host:port`` it listens on
    log: Path  # where its stderr goes
    timeout_seconds: float = WAIT_SECONDS  # how long an answer may take

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.request("GET", path, **headers)

    def request(self, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        client = http.client.HTTPConnection(self.address, timeout=self.timeout_seconds)
        try:
            client.request(method, path, headers=headers)
            response = client.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            client.close()

    def metrics(self) -> str:
        return self.get("/metrics")[2].decode()


PROGRAM = (sys.executable, "-m", "gpu_triage")
"""How the exporter is called."""


def listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """``host:port`` of the first address that an exporter's log names; waits until it does.

    Raises:
        AssertionError: the process ended before, or takes too long.
    """
    address = re.compile(r"https?://([0-9.:]+)/metrics")
    wait_for(lambda: address.search(log.read_text()) or process.poll() is not None)
    found = address.search(log.read_text())
    assert found, log.read_text()
    return found[1]


@contextmanager
def started(log: Path, *flags: str, program: Sequence[str] = PROGRAM) -> Iterator[Exporter]:
    """The exporter on a port of its own, for the length of a ``with`` block; all that `program` starts ends with it."""
    command = [*program, "serve", "--web.listen-address", "127.0.0.1:0", *flags]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, start_new_session=True)
    try:
        yield Exporter(process, listening(process, log), log)
    finally:
        end(process, group=True)


@contextmanager
def exporter(tmp_path: Path, *flags: str, program: Sequence[str] = PROGRAM) -> Iterator[Exporter]:
    """As `started`, once it is ready."""
    with started(tmp_path / "exporter.log", *flags, program=program) as running:
        wait_for(lambda: running.get("/-/ready")[0] == 200)
        yield running


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus at an address; call it with an instant query."""

    address: str
    pid: int

    def __call__(self, expression: str) -> list[Any]:
        result: list[Any] = self.ask(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return result

    def ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=WAIT_SECONDS) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data


@contextmanager
def prometheus(program: Path, tmp_path: Path, config: str, *flags: str) -> Iterator[Prometheus]:
    """A Prometheus with this configuration."""
    (tmp_path / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(program),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address={address}",
        *flags,
    ]
    with Server("prometheus", command, tmp_path, f"http://{address}/-/ready").running() as running:
        yield Prometheus(address, running.pid or 0)


@contextmanager
def alertmanager(program: Path, directory: Path, config: Path) -> Iterator[str]:
    """The URL of an Alertmanager with this configuration: its API takes alerts there."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with Server("alertmanager", command, directory, f"http://{address}/-/ready").running():
        yield f"http://{address}/api/v2/alerts"


def fire(url: str, alerts: Iterable[Mapping[str, Any]]) -> None:
    """Send an Alertmanager alerts, each with its labels and whatever else it has."""
    request = urllib.request.Request(url, json.dumps([*alerts]).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def wait_for(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
    """Wait until the condition holds; fail when it does not for far too long."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes], *, group: bool = False) -> None:
    """End a process that this test started; with its group if it leads one."""
    if group:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    try:
        process.wait(WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(WAIT_SECONDS)
