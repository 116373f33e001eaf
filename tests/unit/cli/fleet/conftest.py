"""A real Prometheus that has watched small hosts in several clusters, one of them sick, and four jobs."""

import math
from array import array
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import STEP_SECONDS, Fleet, joined
from tests.dashboards.store import Store, serving
from tests.jobs.histories import with_series
from tests.rig import scenario_with

from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, record_history

MINUTES = 15
LOST = 'at = "5m"\ngpu = 1\neffect = { kind = "lost", xid = 79 }'
RULES_FROM_MINUTE = 10
"""Before, the rules were not loaded."""
SLOW_SICK = {"cluster": "east", "job": "gpu-triage", "owner": "4711/"}
SLOW_DEAD = {"cluster": "south", "job": "gpu-triage", "owner": "ml/train"}
RECOVERED = {"cluster": "west", "job": "gpu-triage", "owner": "4712/"}
JUST_SLOW = {"cluster": "west", "job": "gpu-triage", "owner": "4713/"}
OF_GPU = {"instance": "gpu-07:9836", "gpu": "1", "uuid": "GPU-b"}
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
    history = joined(histories)
    with serving(Fleet(joined([history, _recorded(history)]), hosts), prometheus, promtool, directory) as running:
        yield running


def _recorded(history: History) -> History:
    """What the rules recorded of four jobs, two of them slow."""
    waited_for = "instance_gpu_owner_why:gpu_job_waited_for:affected"
    found = [
        (waited_for, {**SLOW_SICK, **OF_GPU, "why": "computing"}, 0.3),
        (waited_for, {**SLOW_DEAD, "instance": "gpu-09:9836", "why": "starving"}, 0.5),
    ]
    for owner, instance, pace, state in (
        (SLOW_SICK, "gpu-07:9836", 0.7, "firing"),
        (SLOW_DEAD, "gpu-09:9836", 0.5, "firing"),
        (RECOVERED, "gpu-07:9836", 1.0, "firing"),
        (JUST_SLOW, "gpu-07:9836", 0.6, "pending"),
    ):
        found.append(("ALERTS", {**owner, "alertname": "GpuJobSlow", "alertstate": state}, 1))
        member = {**owner, **OF_GPU, "instance": instance, "name": "H100"}
        found.append(("instance_gpu_owner:gpu_job:member", member, 1))
        found.append(("owner:gpu_job:pace", owner, pace))
        found.append(("owner:gpu_job_lost:gpus", owner, 8 * (1 - pace)))
    series = {
        (name, tuple(sorted(labels.items()))): array(
            "d", [math.nan] * RULES_FROM_MINUTE + [value] * (history.steps - RULES_FROM_MINUTE)
        )
        for name, labels, value in found
    }
    return with_series(history, series)
