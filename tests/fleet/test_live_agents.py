"""Agents at two sites that send to a central Prometheus, live: one page, and a site that falls silent is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.fleet.live import SICK_HOST, running
from tests.fleet.topologies import AGENTS

pytestmark = pytest.mark.timeout(900)


def test_an_incident_at_a_site_is_paged_once_and_a_silent_site_is_told_while_the_other_goes_on(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with running(AGENTS, tmp_path, requires_tool) as live:
        live.wait_until_told("GpuXidCritical", SICK_HOST)
        wait_for(lambda: live.hosts_to_drain() == [SICK_HOST])

        live.end("agent-west")  # it has the sick host
        live.wait_until_told("GpuAgentSilent", "west")
        live.lose_a_gpu_elsewhere()
        live.wait_until_told("GpuXidCritical", "gpu-host-3:9836")

        assert live.told() == {
            ("GpuXidCritical", SICK_HOST): 1,
            ("GpuAgentSilent", "west"): 1,
            ("GpuXidCritical", "gpu-host-3:9836"): 1,
        }
