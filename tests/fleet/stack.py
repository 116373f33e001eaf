"""Starts a topology's servers and the simulated hosts that they monitor, with the configurations of deploy/fleet."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from deploy.demo.durations import paced_duration
from deploy.demo.paced_routes import paced_alertmanager
from deploy.demo.paced_rules import write_paced_rules
from deploy.demo.processes import Server, free_port
from deploy.demo.stack import (
    SHORTEST_SCRAPE_SECONDS,
    Programs,
    alertmanager_command,
    exporter_command,
    find_programs,
    prometheus_command,
    write_rules,
)
from tests.fleet.topologies import Part, Program, Topology

FOLDER: Final = Path(__file__).parents[2] / "deploy/fleet"
EXPORTER_PORT: Final = 9836
_WAITS: Final = ("scrape_interval", "scrape_timeout", "evaluation_interval")
_JOB: Final = "gpu-triage"
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9-]*:[0-9]+\b")


@dataclass(frozen=True, slots=True)
class Host:
    """A simulated GPU host."""

    name: str  # name in targets and alerts
    scenario: str  # name of a scenario, or path of its file


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running topology."""

    urls: Mapping[str, str]  # URL of each server, by name
    servers: Mapping[str, Server]  # servers and hosts by name, for stopping and restarting them


def _addresses(topology: Topology, hosts: Sequence[Host]) -> dict[str, str]:
    """A free address of this machine for each ``NAME:PORT`` of the configurations."""
    named = [(part.name, port) for part in topology.parts for port in part.program.ports]
    named += [(host.name, EXPORTER_PORT) for host in hosts]
    return {f"{name}:{port}": f"127.0.0.1:{free_port()}" for name, port in named}


@contextmanager
def fleet(topology: Topology, hosts: Sequence[Host], directory: Path, webhook: str, pace: int) -> Iterator[Fleet]:
    """A topology and its simulated hosts, inside a ``with`` block; notifications go to the webhook."""
    addresses = _addresses(topology, hosts)
    programs = find_programs()
    _write_rules(directory, pace)
    _write(directory / "alertmanager.yml", paced_alertmanager(pace, webhook, drill=False))
    servers: dict[str, Server] = {}
    for host in hosts:
        address = addresses[f"{host.name}:{EXPORTER_PORT}"]
        command = exporter_command(address, host.scenario, pace)
        servers[host.name] = Server(host.name, command, directory, f"http://{address}/-/ready")
    watched = _split(topology, hosts)
    for part in topology.parts:
        config = directory / f"{part.name}.yml"
        if part.config:
            _write(config, _configuration(part, addresses, directory, watched.get(part.name, hosts), pace))
        command, ready = _command(part, programs, directory, addresses, pace)
        servers[part.name] = Server(part.name, command, directory, ready)
    with ExitStack() as running:
        for server in servers.values():
            running.enter_context(server.running())
        web = {part.name: addresses[f"{part.name}:{part.program.ports[0]}"] for part in topology.parts}
        yield Fleet({name: f"http://{address}" for name, address in web.items()}, servers)


def _configuration(
    part: Part, addresses: Mapping[str, str], directory: Path, hosts: Sequence[Host], pace: int
) -> dict[str, Any]:
    """A configuration of deploy/fleet, with names, addresses, paths and pace adapted."""
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
        command = ["victoria-metrics", f"-storageDataPath={data}", f"-httpListenAddr={address}"]
        return [*command, "-retentionPeriod=1y", "-search.latencyOffset=0s"], f"http://{address}/health"
    if part.program is Program.AGENT:
        # Agents don't evaluate rules, so they accept none of the flags for rules.
        agent = ["--enable-feature=agent", f"--config.file={config}", f"--storage.agent.path={data}"]
        return [programs.prometheus, *agent, f"--web.listen-address={address}", *flags], ready
    return prometheus_command(programs.prometheus, config, data, address, pace, *flags), ready


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False, width=1000), encoding="utf-8")
