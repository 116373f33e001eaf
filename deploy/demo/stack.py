"""Starts exporter, Prometheus and Alertmanager in a folder of their own, and ends all of them."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from deploy.demo.paced_rules import write_paced_rules

RULES = Path(__file__).resolve().parents[2] / "rules"

_READY_WITHIN_SECONDS = 60.0
_END_WITHIN_SECONDS = 10.0


class StackError(Exception):
    """A part of the stack is missing or does not start; the message names it and what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the two servers are."""

    prometheus: str
    alertmanager: str


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack, by the addresses a person can open."""

    exporter: str
    prometheus: str
    alertmanager: str


def find_programs() -> Programs:
    """The servers of this machine.

    Raises:
        StackError: one is not installed.
    """
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if prometheus is None or alertmanager is None:
        missing = "Prometheus" if prometheus is None else "Alertmanager"
        raise StackError(f"{missing} is not installed; on Debian: apt-get install prometheus prometheus-alertmanager")
    return Programs(prometheus, alertmanager)


@contextmanager
def stack(
    directory: Path, scenario: str, pace: int, webhook: str, programs: Programs, *, drill: bool = True
) -> Iterator[Stack]:
    """A running stack for the length of a ``with`` block.

    Args:
        directory: for configurations, data and logs.
        scenario: what the exporter simulates.
        pace: how many times faster; the rules' windows are as much shorter.
        webhook: URL that pages go to.
        programs: the servers.
        drill: whether the target carries the label of a fire drill.

    Raises:
        StackError: a program does not start; the message shows the end of its log.
    """
    ports = [_free_port() for _ in range(3)]
    exporter, prometheus, alertmanager = (f"127.0.0.1:{port}" for port in ports)
    (directory / "rules").mkdir()
    write_paced_rules(RULES, directory / "rules", pace)
    _write(directory / "prometheus.yml", _prometheus_config(exporter, alertmanager, drill=drill))
    _write(directory / "alertmanager.yml", _alertmanager_config(webhook))
    with ExitStack() as running:

        def start(name: str, command: Sequence[str], url: str) -> None:
            running.enter_context(_process(name, command, directory / f"{name}.log", url))

        start(
            "alertmanager",
            [
                programs.alertmanager,
                f"--config.file={directory / 'alertmanager.yml'}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={alertmanager}",
                # Links in its pages lead to where it listens, not to the host's name.
                f"--web.external-url=http://{alertmanager}",
                "--cluster.listen-address=",
            ],
            f"http://{alertmanager}/-/ready",
        )
        start(
            "prometheus",
            [
                programs.prometheus,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address={prometheus}",
                f"--web.external-url=http://{prometheus}",
            ],
            f"http://{prometheus}/-/ready",
        )
        start("exporter", _exporter_command(exporter, scenario, pace), f"http://{exporter}/-/ready")
        yield Stack(f"http://{exporter}", f"http://{prometheus}", f"http://{alertmanager}")


def _exporter_command(address: str, scenario: str, pace: int) -> list[str]:
    flags = ["--web.listen-address", address, "--simulate", scenario, "--simulate-pace", str(pace)]
    intervals = [] if pace == 1 else ["--sample.medium", "1s", "--sample.slow", "5s"]
    return [sys.executable, "-m", "gpu_triage", "serve", *flags, *intervals, "--log.level", "warning"]


def _prometheus_config(exporter: str, alertmanager: str, *, drill: bool) -> object:
    labels = {"instance": "demo-host", **({"drill": "true"} if drill else {})}
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {"job_name": "gpu-triage", "static_configs": [{"targets": [exporter], "labels": labels}]},
        ],
    }


def _alertmanager_config(webhook: str) -> object:
    inhibitions = yaml.safe_load((RULES / "alertmanager-inhibit.yml").read_text(encoding="utf-8"))
    by = ["alertname", "instance", "uuid"]
    return {
        "route": {
            "receiver": "ticket",
            "group_by": by,
            # Sources and symptoms of an inhibition may come in any order; the wait lets the source arrive first.
            "group_wait": "3s",
            "group_interval": "3s",
            "repeat_interval": "1h",
            "routes": [
                {"receiver": "nobody", "matchers": ['alertname="GpuTriageWatchdog"']},
                {"receiver": "pager", "matchers": ['severity="critical"']},
            ],
        },
        "receivers": [
            {"name": name, "webhook_configs": [{"url": webhook, "send_resolved": True}]} for name in ("pager", "ticket")
        ]
        + [{"name": "nobody"}],
        **inhibitions,
    }


@contextmanager
def _process(name: str, command: Sequence[str], log: Path, ready: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C is for the person's program, which ends its parts in order.
            start_new_session=True,
        )
    try:
        _wait(lambda: _answers(ready) or process.poll() is not None)
        if not _answers(ready):
            raise StackError(f"{name} does not start; the end of its log:\n{log.read_text(errors='replace')[-2000:]}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + _READY_WITHIN_SECONDS
    while not condition() and time.monotonic() < limit:
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, http.client.HTTPException, urllib.error.URLError):
        return False


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
