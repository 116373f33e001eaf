"""The topologies of deploy/fleet, live: an incident is one page, also while servers are down, and those are told."""

from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.e2e.notifications import TICKETS
from tests.e2e.processes import wait_for
from tests.fleet.live import OTHER_HOST, SICK_HOST, running
from tests.fleet.topologies import AGENTS, PAIR, SHARDS, VICTORIA, Topology

pytestmark = pytest.mark.timeout(900)

Alert = tuple[str, str]
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
        live.lose_a_gpu_elsewhere()
        live.wait_until_told("GpuXidCritical", f"{OTHER_HOST}:9836")
        for ticket in outage.tickets:
            live.wait_until_told(*ticket, TICKETS)

        paged = [("GpuXidCritical", SICK_HOST), ("GpuXidCritical", f"{OTHER_HOST}:9836"), outage.page]
        assert live.told() == dict.fromkeys(filter(None, paged), 1)
        about = {alert for alert, _ in outage.tickets}
        opened = {ticket: count for ticket, count in live.tickets().items() if ticket[0] in about}
        assert opened == dict.fromkeys(outage.tickets, 1)
