"""Prometheus and Alertmanager with the shipped rules and routes at a pace, monitoring a simulated exporter."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from deploy.demo.pace import paced_alertmanager, paced_duration, write_paced_rules
from deploy.demo.processes import Server, StackError, free_port

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import DEFAULTS, Settings
from gpu_triage.alerting.shipped import shipped_sources

SHORTEST_SCRAPE_SECONDS = 0.5
SCRAPE_INTERVAL = "15s"
_DELAYS = {
    "rules.alert.resend-delay": "1m",
    "rules.alert.for-grace-period": "10m",
    "rules.alert.for-outage-tolerance": "1h",
    "query.lookback-delta": "5m",
}
"""Prometheus' own delays, at their defaults."""


@dataclass(frozen=True, slots=True)
class Programs:
    prometheus: str
    alertmanager: str


@dataclass(frozen=True, slots=True)
class Stack:
    """URLs of a running stack, and its processes; `exporter` is "" if `servers` monitors something else."""

    exporter: str
    prometheus: str
    alertmanager: str
    server: Server  # Prometheus
    pager: Server  # Alertmanager


def find_programs() -> Programs:
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
    """A simulated host and the servers that monitor it, inside a ``with`` block; raises StackError."""
    address = f"127.0.0.1:{free_port()}"
    exporter = f"http://{address}"
    # The target has a name instead of an address, which would not work in a link.
    write_rules(directory, pace, Settings(runbook_base_url=f"{exporter}/runbooks"))
    labels = {"instance": "demo-host", **({"drill": "true"} if drill else {})}
    job = {"job_name": "gpu-triage", "static_configs": [{"targets": [address], "labels": labels}]}
    # Route the drill's alerts like real ones, because that is what the demo shows.
    routes = paced_alertmanager(pace, webhook, drill=False)
    served = Server("exporter", exporter_command(address, scenario, pace), directory, f"{exporter}/-/ready", starting)
    with servers(directory, pace, [job], routes, programs, starting=starting) as running, served.running():
        yield replace(running, exporter=exporter)


def write_rules(directory: Path, pace: int, settings: Settings = DEFAULTS) -> None:
    """Write the rules at a pace to the folder that `servers` uses.

    Without the one about a host's clock: that of a host at a pace runs away from Prometheus'.
    """
    alerts = (alert for source in shipped_sources() for alert in source.alerts)
    off = {alert.key: replace(alert, enabled=False) for alert in alerts if alert.key == "GpuHostClockWrong"}
    settings = replace(settings, alerts={**settings.alerts, **off})
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
    delays: Mapping[str, str] = MappingProxyType({}),
    alerts_to: str = "",
    interval: str = SCRAPE_INTERVAL,
    starting: Callable[[str], None] = lambda _name: None,
) -> Iterator[Stack]:
    """Alertmanager, and Prometheus with the rules in ``rules/``, inside a ``with`` block; raises StackError.

    Prometheus sends its alerts to the address `alerts_to`, if that is not ""; `delays` are flags of it, such as
    ``rules.alert.resend-delay``, that are divided by the pace, as is the `interval` of scrapes and evaluations.
    """
    prometheus, alertmanager = (f"127.0.0.1:{free_port()}" for _ in range(2))
    _write(directory / "alertmanager.yml", routes)
    _write(directory / "prometheus.yml", _prometheus_config(jobs, alerts_to or alertmanager, interval, pace))
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
            programs.prometheus, directory / "prometheus.yml", directory / "prometheus", prometheus, pace, delays=delays
        ),
        directory,
        f"http://{prometheus}/-/ready",
        starting,
    )
    with pager.running(), server.running():
        yield Stack("", f"http://{prometheus}", f"http://{alertmanager}", server, pager)


def alertmanager_command(program: str, config: Path, data: Path, address: str, *flags: str) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address={address}",
        # Makes links in its pages use the listen address instead of the host name.
        f"--web.external-url=http://{address}",
        *(flags or ("--cluster.listen-address=",)),
    ]


def prometheus_command(
    program: str,
    config: Path,
    data: Path,
    address: str,
    pace: int,
    *flags: str,
    delays: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    return [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={address}",
        f"--web.external-url=http://{address}",
        *(f"--{flag}={paced_duration(written, pace)}" for flag, written in {**_DELAYS, **delays}.items()),
        # The first scrape is five seconds earlier, which is minutes of scenario time.
        "--scrape.discovery-reload-interval=1s",
        *flags,
    ]


def exporter_command(address: str, scenario: str, pace: int) -> list[str]:
    flags = ["--web.listen-address", address, "--simulate", scenario, "--simulate-pace", str(pace)]
    intervals = [] if pace == 1 else ["--sample.medium", "1s", "--sample.slow", "5s"]
    return [sys.executable, "-m", "gpu_triage", "serve", *flags, *intervals, "--log.level", "warning"]


def _prometheus_config(jobs: Sequence[dict[str, Any]], alertmanager: str, written: str, pace: int) -> object:
    interval = paced_duration(written, pace, shortest_seconds=SHORTEST_SCRAPE_SECONDS)
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": list(jobs),
    }


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
