"""Starts a topology's servers and the simulated hosts that they monitor, using the configurations in this folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from deploy.demo.durations import paced_duration
from deploy.demo.paced_routes import paced_alertmanager
from deploy.demo.paced_rules import write_paced_rules
from deploy.demo.processes import Server, StackError, free_port
from deploy.demo.stack import (
    SHORTEST_SCRAPE_SECONDS,
    Programs,
    alertmanager_command,
    exporter_command,
    find_programs,
    prometheus_command,
    write_rules,
)
from deploy.fleet.topologies import Part, Program, Topology

FOLDER: Final = Path(__file__).parent
EXPORTER_PORT: Final = 9836
_WAITS: Final = ("scrape_interval", "scrape_timeout", "evaluation_interval")
_JOB: Final = "gpu-triage"
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9-]*:[0-9]+\b")


@dataclass(frozen=True, slots=True)
class Host:
    """A simulated GPU host.

    Attributes:
        name: name in targets and alerts.
        scenario: name of a scenario, or path of its file.
    """

    name: str
    scenario: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running topology.

    Attributes:
        urls: URL of each server and host, by name.
        servers: the processes by the same names, for stopping and restarting them.
    """

    urls: Mapping[str, str]
    servers: Mapping[str, Server]


def addresses_of(topology: Topology, hosts: Sequence[Host], listen: str, ports: Mapping[str, int]) -> dict[str, str]:
    """Listen address of each server and host, by the ``NAME:PORT`` used for it in the configurations.

    Args:
        topology: its parts.
        hosts: the GPU hosts.
        listen: IP address of this machine to listen on.
        ports: requested ports by name, of a part's web interface or of a host; all others get a free one.

    Raises:
        StackError: a name is duplicated or invalid, or a port is given for an unknown name.
    """
    named = [(part.name, port) for part in topology.parts for port in part.program.ports]
    named += [(host.name, EXPORTER_PORT) for host in hosts]
    names = [part.name for part in topology.parts] + [host.name for host in hosts]
    for name in names:
        if not _NAME.fullmatch(name):
            raise StackError(f"{name!r} cannot be a host's name: use lower-case letters, digits and hyphens")
        if names.count(name) > 1:
            raise StackError(f"{name!r} is the name of two servers or hosts")
    unknown = sorted(set(ports) - set(names))
    if unknown:
        raise StackError(f"--port {unknown[0]}: there is no such server or host; there are {', '.join(names)}")
    web = {part.name: part.program.ports[0] for part in topology.parts} | {h.name: EXPORTER_PORT for h in hosts}
    return {
        f"{name}:{port}": f"{listen}:{ports[name] if name in ports and port == web[name] else free_port()}"
        for name, port in named
    }


@contextmanager
def fleet(
    topology: Topology,
    hosts: Sequence[Host],
    directory: Path,
    webhook: str,
    addresses: Mapping[str, str],
    *,
    pace: int = 1,
    starting: Callable[[str], None] = lambda _name: None,
) -> Iterator[Fleet]:
    """A topology and its simulated hosts, inside a ``with`` block.

    Args:
        topology: the servers.
        hosts: the GPU hosts.
        directory: for configurations, data and logs.
        webhook: URL for notifications.
        addresses: from `addresses_of`.
        pace: speed relative to real time.
        starting: called with the name of each server before waiting for it.

    Raises:
        StackError: a program is missing or doesn't start; the message names it and has the end of its log.
    """
    programs = find_programs()
    _write_rules(directory, pace)
    _write(directory / "alertmanager.yml", paced_alertmanager(pace, webhook, drill=False))
    servers: dict[str, Server] = {}
    for host in hosts:
        address = addresses[f"{host.name}:{EXPORTER_PORT}"]
        command = exporter_command(address, host.scenario, pace)
        servers[host.name] = Server(host.name, command, directory, f"http://{address}/-/ready", starting)
    watched = _split(topology, hosts)
    for part in topology.parts:
        config = directory / f"{part.name}.yml"
        if part.config:
            _write(config, configuration(part, addresses, directory, watched.get(part.name, hosts), pace))
        command, ready = _command(part, programs, directory, addresses, pace)
        servers[part.name] = Server(part.name, command, directory, ready, starting)
    with ExitStack() as running:
        for server in servers.values():
            running.enter_context(server.running())
        yield Fleet(urls_of(topology, hosts, addresses), servers)


def urls_of(topology: Topology, hosts: Sequence[Host], addresses: Mapping[str, str]) -> dict[str, str]:
    """The URL of each server and host, by name."""
    web = [(part.name, part.program.ports[0]) for part in topology.parts]
    web += [(host.name, EXPORTER_PORT) for host in hosts]
    return {name: f"http://{addresses[f'{name}:{port}']}" for name, port in web}


def configuration(
    part: Part, addresses: Mapping[str, str], directory: Path, hosts: Sequence[Host], pace: int
) -> dict[str, Any]:
    """A Prometheus configuration from this folder, with names, addresses, paths and pace adapted.

    Args:
        part: the server.
        addresses: the real address for each ``NAME:PORT``.
        directory: contains the rules.
        hosts: its targets, before sharding.
        pace: divisor for intervals.
    """
    text = (FOLDER / "prometheus" / part.config).read_text(encoding="utf-8")
    for name, value in part.values.items():
        text = text.replace(f"${{{name}}}", value)
    config: dict[str, Any] = yaml.safe_load(text.replace("/etc/prometheus", str(directory)))
    for job in config.get("scrape_configs", ()):
        if job["job_name"] == _JOB:
            # Targets keep their names, which determine their shard; relabeling then redirects them to the simulation.
            job["static_configs"] = [
                {"targets": [f"{host.name}:{EXPORTER_PORT}" for host in hosts], "labels": {"drill": "true"}}
            ]
            job["relabel_configs"] = [
                *job.get("relabel_configs", ()),
                {"source_labels": ["__address__"], "target_label": "instance"},
                *(_to_host(f"{host.name}:{EXPORTER_PORT}", addresses) for host in hosts),
            ]
        else:
            job["relabel_configs"] = [{"source_labels": ["__address__"], "target_label": "instance"}]
            job["relabel_configs"] += [
                _to_host(target, addresses) for each in job["static_configs"] for target in each["targets"]
            ]
        _pace(job, pace)
    for manager in config.get("alerting", {}).get("alertmanagers", ()):
        for each in manager["static_configs"]:
            each["targets"] = [addresses[target] for target in each["targets"]]
    for remote in config.get("remote_write", ()):
        remote["url"] = _with_addresses(remote["url"], addresses)
    _pace(config["global"], pace)
    return config


def _to_host(target: str, addresses: Mapping[str, str]) -> dict[str, Any]:
    return {
        "source_labels": ["__address__"],
        "regex": target.replace(".", r"\."),
        "target_label": "__address__",
        "replacement": addresses[target],
    }


def _with_addresses(text: str, addresses: Mapping[str, str]) -> str:
    return _ADDRESS.sub(lambda found: addresses.get(found[0], found[0]), text)


def _pace(section: dict[str, Any], pace: int) -> None:
    for key in _WAITS:
        if key in section:
            section[key] = paced_duration(section[key], pace, shortest_seconds=SHORTEST_SCRAPE_SECONDS)


def _split(topology: Topology, hosts: Sequence[Host]) -> dict[str, Sequence[Host]]:
    """The hosts of each agent: each agent monitors one site."""
    agents = [part.name for part in topology.parts if part.program is Program.AGENT]
    return {name: hosts[place :: len(agents)] for place, name in enumerate(agents)}


def _write_rules(directory: Path, pace: int) -> None:
    write_rules(directory, pace)
    (directory / "rules").rename(directory / "gpu-triage")
    (directory / "gpu-fleet").mkdir()
    write_paced_rules(FOLDER / "rules", directory / "gpu-fleet", pace)


def _command(
    part: Part, programs: Programs, directory: Path, addresses: Mapping[str, str], pace: int
) -> tuple[list[str], str]:
    """Command line of a part, and the URL that responds once it is ready."""
    address = addresses[f"{part.name}:{part.program.ports[0]}"]
    config, data = directory / f"{part.name}.yml", directory / f"{part.name}-data"
    flags = tuple(_with_addresses(flag, addresses) for flag in part.flags)
    ready = f"http://{address}/-/ready"
    if part.program is Program.ALERTMANAGER:
        shared = directory / "alertmanager.yml"
        return alertmanager_command(programs.alertmanager, shared, data, address, *flags), ready
    if part.program is Program.VICTORIA_METRICS:
        command = [_victoria_metrics(), f"-storageDataPath={data}", f"-httpListenAddr={address}"]
        return [*command, "-retentionPeriod=1y", "-search.latencyOffset=0s"], f"http://{address}/health"
    if part.program is Program.AGENT:
        # Agents don't evaluate rules, so they accept none of the flags for rules.
        agent = ["--enable-feature=agent", f"--config.file={config}", f"--storage.agent.path={data}"]
        return [programs.prometheus, *agent, f"--web.listen-address={address}", *flags], ready
    return prometheus_command(programs.prometheus, config, data, address, pace, *flags), ready


def _victoria_metrics() -> str:
    found = shutil.which("victoria-metrics")
    if found is None:
        raise StackError("VictoriaMetrics is not installed; on Debian: apt-get install victoria-metrics")
    return found


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
