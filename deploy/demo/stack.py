"""Prometheus and Alertmanager with the shipped rules and routes at a pace, and a simulated exporter that they watch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from deploy.demo.durations import paced_duration
from deploy.demo.paced_routes import paced_alertmanager
from deploy.demo.paced_rules import write_paced_rules
from deploy.demo.processes import Server, StackError, free_port

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import DEFAULTS, Settings

SHORTEST_SCRAPE_SECONDS = 0.5
_FLAGS = {
    "rules.alert.resend-delay": "1m",
    "rules.alert.for-grace-period": "10m",
    "rules.alert.for-outage-tolerance": "1h",
    "query.lookback-delta": "5m",
}
"""Prometheus' own times, at their defaults."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the two servers are."""

    prometheus: str
    alertmanager: str


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack, by the addresses a person can open.

    Attributes:
        exporter: the simulated exporter; "" where `servers` watches something else.
        prometheus, alertmanager: the two servers.
        server: Prometheus itself, to end it and start it again.
    """

    exporter: str
    prometheus: str
    alertmanager: str
    server: Server


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
    directory: Path,
    scenario: str,
    pace: int,
    webhook: str,
    programs: Programs,
    *,
    drill: bool = True,
    starting: Callable[[str], None] = lambda _name: None,
) -> Iterator[Stack]:
    """A simulated host and what watches it, for the length of a ``with`` block.

    Args:
        directory: for configurations, data and logs.
        scenario: what the exporter simulates.
        pace: how many times faster; the waits of rules and routes are as much shorter.
        webhook: URL that notifications go to.
        programs: the servers.
        drill: whether the target carries the label of a fire drill.
        starting: told the name of each server before it is waited for.

    Raises:
        StackError: a program does not start; the message shows the end of its log.
    """
    address = f"127.0.0.1:{free_port()}"
    exporter = f"http://{address}"
    # The host has a name instead of an address: a link to it would lead nowhere.
    write_rules(directory, pace, Settings(runbook_base_url=f"{exporter}/runbooks"))
    labels = {"instance": "demo-host", **({"drill": "true"} if drill else {})}
    job = {"job_name": "gpu-triage", "static_configs": [{"targets": [address], "labels": labels}]}
    # The pages of this drill take the way of real ones: that is what it shows.
    routes = paced_alertmanager(pace, webhook, drill=False)
    served = Server("exporter", exporter_command(address, scenario, pace), directory, f"{exporter}/-/ready", starting)
    with servers(directory, pace, [job], routes, programs, starting=starting) as running, served.running():
        yield Stack(exporter, running.prometheus, running.alertmanager, running.server)


def write_rules(directory: Path, pace: int, settings: Settings = DEFAULTS) -> None:
    """Write the rules at a pace to where `servers` looks for them."""
    for folder in ("unpaced", "rules"):
        (directory / folder).mkdir()
    for name, text in rule_files(settings).items():
        if "/" not in name:
            (directory / "unpaced" / name).write_text(text, encoding="utf-8")
    write_paced_rules(directory / "unpaced", directory / "rules", pace)


@contextmanager
def servers(
    directory: Path,
    pace: int,
    jobs: Sequence[dict[str, Any]],
    routes: dict[str, Any],
    programs: Programs,
    *,
    flags: Sequence[str] = (),
    starting: Callable[[str], None] = lambda _name: None,
) -> Iterator[Stack]:
    """Alertmanager, and Prometheus with the rules in ``rules/`` of the directory, for the length of a ``with`` block.

    Args:
        directory: for configurations, data and logs.
        pace: how many times faster scrapes and Prometheus' own waits are.
        jobs: the scrape jobs.
        routes: Alertmanager's configuration.
        programs: the servers.
        flags: more of Prometheus.
        starting: told the name of each before it is waited for.

    Raises:
        StackError: a program does not start; the message shows the end of its log.
    """
    prometheus, alertmanager = (f"127.0.0.1:{free_port()}" for _ in range(2))
    _write(directory / "alertmanager.yml", routes)
    _write(directory / "prometheus.yml", _prometheus_config(jobs, alertmanager, pace))
    pager = Server(
        "alertmanager",
        alertmanager_command(
            programs.alertmanager, directory / "alertmanager.yml", directory / "alertmanager", alertmanager
        ),
        directory,
        f"http://{alertmanager}/-/ready",
        starting,
    )
    server = Server(
        "prometheus",
        prometheus_command(
            programs.prometheus, directory / "prometheus.yml", directory / "prometheus", prometheus, pace, *flags
        ),
        directory,
        f"http://{prometheus}/-/ready",
        starting,
    )
    with pager.running(), server.running():
        yield Stack("", f"http://{prometheus}", f"http://{alertmanager}", server)


def alertmanager_command(program: str, config: Path, data: Path, address: str, *flags: str) -> list[str]:
    """How an Alertmanager is started.

    Args:
        program: the server.
        config: its configuration.
        data: where it keeps silences and what it has sent.
        address: where it listens, HOST:PORT.
        flags: others; without those of a cluster it works alone.
    """
    return [
        program,
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address={address}",
        # Links in its pages lead to where it listens, not to the host's name.
        f"--web.external-url=http://{address}",
        *(flags or ("--cluster.listen-address=",)),
    ]


def prometheus_command(program: str, config: Path, data: Path, address: str, pace: int, *flags: str) -> list[str]:
    """How a Prometheus is started that evaluates rules at a pace.

    Args:
        program: the server.
        config: its configuration.
        data: its database.
        address: where it listens, HOST:PORT.
        pace: how many times faster its own waits are.
        flags: others.
    """
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={address}",
        f"--web.external-url=http://{address}",
        *(f"--{flag}={paced_duration(written, pace)}" for flag, written in _FLAGS.items()),
        # Targets are scraped five seconds sooner after the start: minutes of a play.
        "--scrape.discovery-reload-interval=1s",
        *flags,
    ]


def exporter_command(address: str, scenario: str, pace: int) -> list[str]:
    """How an exporter of a simulated host is started.

    Args:
        address: where it listens, HOST:PORT.
        scenario: what it simulates: a name, or the path of a file.
        pace: how many times faster.
    """
    flags = ["--web.listen-address", address, "--simulate", scenario, "--simulate-pace", str(pace)]
    intervals = [] if pace == 1 else ["--sample.medium", "1s", "--sample.slow", "5s"]
    return [sys.executable, "-m", "gpu_triage", "serve", *flags, *intervals, "--log.level", "warning"]


def _prometheus_config(jobs: Sequence[dict[str, Any]], alertmanager: str, pace: int) -> object:
    interval = paced_duration("15s", pace, shortest_seconds=SHORTEST_SCRAPE_SECONDS)
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": list(jobs),
    }


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
