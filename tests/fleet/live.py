"""A topology of deploy/fleet that runs ten times faster than real time, and what its pager was told."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.pager import pager
from tests.conftest import RequiresTool
from tests.e2e.notifications import PAGER, TICKETS, Inbox, opened, summary
from tests.e2e.processes import wait_for
from tests.fleet.stack import Fleet, Host, fleet
from tests.fleet.topologies import Topology

from gpu_triage_simulator.scenario_file import SCENARIOS

PACE = 10
TOLD_WITHIN_SECONDS = 240.0  # several times what it takes on a machine with nothing else to do
HEALTHY, LOST = "idle-downshift", "lost-before-start"
SICK_HOST = "gpu-host-4:9836"
OTHER_HOST = "gpu-host-3"  # A host of another shard, and of another site, than the sick one


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

    def lose_a_gpu_elsewhere(self) -> None:
        """Boot `OTHER_HOST` with a GPU that is lost."""
        self.scenario.write_text((SCENARIOS / f"{LOST}.toml").read_text())
        self.fleet.servers[OTHER_HOST].restart()

    def wait_until_told(self, alert: str, of: str, receiver: str = PAGER) -> None:
        """Wait for the first notification that this alert fires for an instance, or for a cluster."""
        try:
            wait_for(lambda: self.told(receiver)[alert, of], TOLD_WITHIN_SECONDS)
        except AssertionError:
            everything = summary(self.inbox.where(lambda _: True))
            raise AssertionError(f"nobody was told of {alert} {of}, but:\n{everything}") from None

    def told(self, receiver: str = PAGER) -> Counter[tuple[str, str]]:
        """How many incidents were opened, by alert and instance, or cluster where an alert is of no instance."""
        notified = self.inbox.where(lambda _: True, receiver)
        about = {
            (alert.labels["alertname"], alert.labels.get("instance") or alert.labels["cluster"])
            for each in notified
            for alert in each.alerts
        }
        return Counter(
            {
                (name, of): opened(
                    [
                        each
                        for each in notified
                        if any(
                            alert.labels["alertname"] == name
                            and of in {alert.labels.get("instance"), alert.labels.get("cluster")}
                            for alert in each.alerts
                        )
                    ]
                )
                for name, of in about
            }
        )

    def tickets(self) -> Counter[tuple[str, str]]:
        """As `told`, of tickets."""
        return self.told(TICKETS)

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
