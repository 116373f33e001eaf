"""Two shards and the Prometheus above them, live: one incident is one page, and a dead shard is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.notifications import TICKETS
from tests.e2e.processes import wait_for
from tests.fleet.live import SICK_HOST, running
from tests.fleet.topologies import SHARDS

pytestmark = pytest.mark.timeout(900)


def test_an_incident_is_paged_once_and_a_dead_shard_is_told_while_the_other_goes_on(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with running(SHARDS, tmp_path, requires_tool) as live:
        live.wait_until_told("GpuXidCritical", SICK_HOST)
        wait_for(lambda: live.hosts_to_drain() == [SICK_HOST])

        live.end("shard-1")  # it has the sick host
        live.wait_until_told("GpuShardSilent", "shard-1:9090")
        live.end("above")
        live.lose_a_gpu_elsewhere()
        live.wait_until_told("GpuXidCritical", "gpu-host-3:9836")
        live.wait_until_told("GpuFleetServerDown", "above:9090", TICKETS)

        assert live.told() == {
            ("GpuXidCritical", SICK_HOST): 1,
            ("GpuShardSilent", "shard-1:9090"): 1,
            ("GpuXidCritical", "gpu-host-3:9836"): 1,
        }
        assert live.tickets()["GpuFleetServerDown", "above:9090"] == 1
