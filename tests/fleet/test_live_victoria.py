"""Shards that send to VictoriaMetrics, live: it answers for the fleet, and pages need none of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.fleet.live import SICK_HOST, running
from tests.fleet.topologies import VICTORIA

pytestmark = pytest.mark.timeout(900)


def test_pages_go_on_without_victoria_metrics_and_a_dead_shard_is_told_by_the_other(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with running(VICTORIA, tmp_path, requires_tool) as live:
        live.wait_until_told("GpuXidCritical", SICK_HOST)
        wait_for(lambda: live.hosts_to_drain() == [SICK_HOST])

        live.end("victoria", "shard-1")
        live.lose_a_gpu_elsewhere()
        live.wait_until_told("GpuShardSilent", "shard-1:9090")
        live.wait_until_told("GpuXidCritical", "gpu-host-3:9836")

        assert live.told() == {
            ("GpuXidCritical", SICK_HOST): 1,
            ("GpuShardSilent", "shard-1:9090"): 1,
            ("GpuXidCritical", "gpu-host-3:9836"): 1,
        }
