"""The topologies of deploy/fleet, live: an incident is one page, also while servers are down, and those are told."""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from deploy.demo.pace import paced_alertmanager, paced_duration, write_paced_rules
from deploy.demo.pager import Notification, pager
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
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.e2e.rehearsal.stage import PAGER, TICKETS, Inbox, opened, summary
from tests.fleet.topologies import AGENTS, PAIR, SHARDS, VICTORIA, Part, Program, Topology

from gpu_triage_simulator.scenario_file import SCENARIOS

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
    named = [(part.name, port) for part in topology.parts for port in part.program.value]
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
        web = {part.name: addresses[f"{part.name}:{part.program.value[0]}"] for part in topology.parts}
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
    (directory / "gpu-triage").mkdir()
    (directory / "rules").rename(directory / "gpu-triage/rules")
    (directory / "gpu-fleet").mkdir()
    write_paced_rules(FOLDER / "rules", directory / "gpu-fleet", pace)


def _command(
    part: Part, programs: Programs, directory: Path, addresses: Mapping[str, str], pace: int
) -> tuple[list[str], str]:
    """Command line of a part, and the URL that responds once it is ready."""
    address = addresses[f"{part.name}:{part.program.value[0]}"]
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


PACE = 10
TOLD_WITHIN_SECONDS = 240.0  # several times what it takes on a machine with nothing else to do
HEALTHY, LOST = "idle-downshift", "lost-before-start"
SICK_HOST = "gpu-host-4:9836"
OTHER_HOST = "gpu-host-3"  # A host of another shard, and of another site, than the sick one


Alert = tuple[str, str]
"""Its name, and the instance or cluster that it is about."""


@dataclass(frozen=True, slots=True)
class Live:
    """A running topology with four hosts, of which the last has lost a GPU."""

    topology: Topology  # what runs
    fleet: Fleet  # its servers and hosts
    inbox: Inbox  # what was told to the receivers of Alertmanager
    scenario: Path  # the file with what happens on `OTHER_HOST`

    def end(self, *names: str) -> None:
        """End servers."""
        for name in names:
            self.fleet.servers[name].end()

    def wait_until_told(self, alert: str, of: str, receiver: str = PAGER) -> None:
        """Wait for the first notification that this alert fires for an instance, or for a cluster."""
        try:
            wait_for(lambda: self.told(receiver)[alert, of], TOLD_WITHIN_SECONDS)
        except AssertionError:
            everything = summary(self.inbox.where(lambda _: True))
            raise AssertionError(f"nobody was told of {alert} {of}, but:\n{everything}") from None

    def told(self, receiver: str = PAGER) -> Counter[Alert]:
        """How many incidents were opened, by alert and instance, or cluster where an alert is of no instance."""
        notified: defaultdict[Alert, list[Notification]] = defaultdict(list)
        for each in self.inbox.where(lambda _: True, receiver):
            labels = [alert.labels for alert in each.alerts]
            for about in {(of["alertname"], of.get("instance") or of["cluster"]) for of in labels}:
                notified[about].append(each)
        return Counter({about: opened(each) for about, each in notified.items()})

    def hosts_to_drain(self) -> list[str]:
        """The instances that ``gpu-triage fleet`` says to drain, from the server that has all hosts."""
        url = self.fleet.urls[self.topology.asked]
        command = [sys.executable, "-m", "gpu_triage", "fleet", "--prometheus", url, "--format", "json"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return [host["instance"] for host in json.loads(answer.stdout or "{}").get("drain", ())]


@contextmanager
def running(topology: Topology, directory: Path, requires_tool: RequiresTool) -> Iterator[Live]:
    """The topology, for the length of a ``with`` block."""
    for program in ("prometheus", "prometheus-alertmanager", "victoria-metrics"):
        requires_tool(program)
    scenario = directory / "other-host.toml"
    scenario.write_text((SCENARIOS / f"{HEALTHY}.toml").read_text())
    hosts = [
        Host("gpu-host-1", HEALTHY),
        Host("gpu-host-2", HEALTHY),
        Host(OTHER_HOST, str(scenario)),
        Host(SICK_HOST.partition(":")[0], LOST),
    ]
    inbox = Inbox()
    with pager(inbox.add) as webhook, fleet(topology, hosts, directory, webhook, PACE) as servers:
        yield Live(topology, servers, inbox, scenario)


pytestmark = pytest.mark.timeout(900)

SILENT_SHARD = ("GpuShardSilent", "shard-1:9090")
REPLICAS_DOWN = (("GpuReplicaDown", "replica-a:9090"), ("GpuReplicaDown", "alertmanager-0:9093"))


class Outage(NamedTuple):
    """Servers that end, and who is told of it: after the first ones a page, in the end tickets."""

    topology: Topology
    first: tuple[str, ...]
    page: Alert | None = None
    then: tuple[str, ...] = ()
    tickets: tuple[Alert, ...] = ()


OUTAGES = {
    # Shard 1 and agent-west have the sick host.
    "shards": Outage(SHARDS, ("shard-1",), SILENT_SHARD, ("above",), (("GpuFleetServerDown", "above:9090"),)),
    "pair": Outage(PAIR, ("replica-a", "alertmanager-0"), tickets=REPLICAS_DOWN),
    "VictoriaMetrics": Outage(VICTORIA, ("victoria", "shard-1"), SILENT_SHARD),
    "agents": Outage(AGENTS, ("agent-west",), ("GpuAgentSilent", "west")),
}


@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)
def test_an_incident_is_paged_once_and_dead_servers_are_told(
    outage: Outage, tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with running(outage.topology, tmp_path, requires_tool) as live:
        live.wait_until_told("GpuXidCritical", SICK_HOST)
        wait_for(lambda: live.hosts_to_drain() == [SICK_HOST])

        live.end(*outage.first)
        if outage.page is not None:
            live.wait_until_told(*outage.page)
        live.end(*outage.then)
        live.scenario.write_text((SCENARIOS / f"{LOST}.toml").read_text())  # a GPU that is lost
        live.fleet.servers[OTHER_HOST].restart()
        live.wait_until_told("GpuXidCritical", f"{OTHER_HOST}:9836")
        for ticket in outage.tickets:
            live.wait_until_told(*ticket, TICKETS)

        paged = [("GpuXidCritical", SICK_HOST), ("GpuXidCritical", f"{OTHER_HOST}:9836"), outage.page]
        assert live.told() == dict.fromkeys(filter(None, paged), 1)
        about = {alert for alert, _ in outage.tickets}
        opened = {ticket: count for ticket, count in live.told(TICKETS).items() if ticket[0] in about}
        assert opened == dict.fromkeys(outage.tickets, 1)
