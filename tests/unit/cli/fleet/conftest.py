"""A real Prometheus that has watched small hosts in several clusters, one of them sick."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import STEP_SECONDS, Fleet, joined
from tests.dashboards.store import Store, serving
from tests.rig import scenario_with

from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import record_history

MINUTES = 15
LOST = 'at = "5m"\ngpu = 1\neffect = { kind = "lost", xid = 79 }'
DOWN = 'at = "8m"\nuntil = "20m"\neffect = { kind = "exporter_down" }'


@pytest.fixture(scope="session")
def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Cluster east has the sick host, whose GPU 1 is lost at minute 5; in cluster west, its namesake is well.

    The exporter of another in cluster south is down from minute 8 on.
    """
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("fleet")
    sick = replace(scenario_with(directory, "sick-host", LOST), name="gpu-07:9836")
    well = replace(load_scenario("sick-host"), name=sick.name, events=())
    silenced = scenario_with(directory, "sick-host", DOWN)
    dead = replace(silenced, name="gpu-09:9836", events=silenced.events[-1:])
    histories = [
        record_history(host, seconds=MINUTES * 60, step_seconds=STEP_SECONDS, target={"cluster": cluster})
        for host, cluster in ((sick, "east"), (well, "west"), (dead, "south"))
    ]
    hosts = {host.name: host for host in (sick, dead)}
    with serving(Fleet(joined(histories), hosts), prometheus, promtool, directory) as running:
        yield running
