"""A pair of Prometheus servers with two Alertmanagers, live: each page is sent once, also while one of each is down."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.notifications import TICKETS
from tests.e2e.processes import wait_for
from tests.fleet.live import SICK_HOST, running
from tests.fleet.topologies import PAIR

pytestmark = pytest.mark.timeout(900)


def test_a_pair_pages_once_and_goes_on_when_one_server_of_each_kind_is_down(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with running(PAIR, tmp_path, requires_tool) as live:
        live.wait_until_told("GpuXidCritical", SICK_HOST)
        wait_for(lambda: live.hosts_to_drain() == [SICK_HOST])

        live.end("replica-a", "alertmanager-0")
        live.lose_a_gpu_elsewhere()
        live.wait_until_told("GpuXidCritical", "gpu-host-3:9836")
        for name in ("replica-a:9090", "alertmanager-0:9093"):
            live.wait_until_told("GpuReplicaDown", name, TICKETS)

        assert live.told() == {("GpuXidCritical", SICK_HOST): 1, ("GpuXidCritical", "gpu-host-3:9836"): 1}
        down = {key: count for key, count in live.tickets().items() if key[0] == "GpuReplicaDown"}
        assert down == {("GpuReplicaDown", "replica-a:9090"): 1, ("GpuReplicaDown", "alertmanager-0:9093"): 1}
