"""The host's collectors, and what one of them costs the others."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from tests.rig import Rig, rig
from tests.watched_paths import watched

from gpu_triage.config import Config
from gpu_triage.machine import Blocked
from gpu_triage.registry import HOST_COLLECTORS
from gpu_triage.simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage.subjects.metric import Tier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

HANG_SECONDS = 60.0
STALE_SECONDS = 20.0
"""Three intervals of the medium tier and one more, after which a value is withdrawn."""


class Adapter:
    """What the counters of an InfiniBand adapter do when they are read: nothing special, or not come back."""

    def __init__(self, clock: VirtualClock) -> None:
        self.hangs = False
        self._clock = clock

    def opened(self, path: Path) -> None:
        if self.hangs and path.parent.name == "counters":
            raise Blocked(self._clock.now().monotonic + HANG_SECONDS)


@pytest.fixture
def running() -> Iterator[tuple[Rig, Adapter]]:
    clock = VirtualClock()
    adapter = Adapter(clock)
    with simulated_machine(load_scenario("h100-8"), clock=clock) as simulated:
        machine = dataclasses.replace(simulated.machine, sysfs=watched(simulated.machine.sysfs, adapter.opened))
        yield Rig(simulated, clock, Config(metrics_profile="full"), machine), adapter


def names(rig: Rig) -> set[str]:
    """Metrics of the host that are on the page."""
    own = {spec.name for collector in HOST_COLLECTORS for spec in collector.metrics}
    return {line.partition("{")[0].partition(" ")[0] for line in rig.page().splitlines()} & own


def test_an_adapter_that_hangs_costs_its_own_series_alone_and_they_return(running: tuple[Rig, Adapter]) -> None:
    rig, adapter = running
    rig.run(10)
    healthy = names(rig)
    of_adapters = {name for name in healthy if "infiniband" in name}
    assert of_adapters
    adapter.hangs = True
    rig.run(5 + STALE_SECONDS)
    assert names(rig) == healthy - of_adapters
    now = rig.clock.now().wall
    stamped = rig.series("gpu_exporter_collector_last_success_timestamp_seconds")
    ages = {labels["collector"]: now - at for labels, at in stamped}
    assert ages["host_infiniband"] > STALE_SECONDS
    often = {collector.name for collector in HOST_COLLECTORS if collector.tier is Tier.MEDIUM}
    assert {name for name, age in ages.items() if name in often and age > 5} == {"host_infiniband"}
    adapter.hangs = False
    rig.run(HANG_SECONDS)
    assert names(rig) == healthy


def test_an_adapter_that_hangs_from_the_start_is_a_collector_that_fails(running: tuple[Rig, Adapter]) -> None:
    rig, adapter = running
    adapter.hangs = True
    rig.run(2)
    assert rig.value("gpu_exporter_collector_success", collector="host_infiniband") is None
    rig.run(rig.config.sample_deadline_seconds)
    assert rig.value("gpu_exporter_collector_success", collector="host_infiniband") == 0
    assert rig.value("gpu_exporter_collector_success", collector="host_cpu") == 1
    adapter.hangs = False
    rig.run(HANG_SECONDS)
    assert rig.value("gpu_exporter_collector_success", collector="host_infiniband") == 1


def test_only_collectors_that_ask_hardware_have_a_lane_of_their_own(running: tuple[Rig, Adapter]) -> None:
    assert [collector.name for collector in HOST_COLLECTORS if collector.own_lane] == ["host_infiniband"]
    rig, _ = running
    assert len(rig.sampler._host.lanes) == 2


def test_the_log_of_a_failing_collector_has_no_empty_fields(caplog: pytest.LogCaptureFixture) -> None:
    with rig(load_scenario("idle-downshift")) as running:
        running.run(5)
        modules = running.simulated.machine.procfs / "modules"
        modules.unlink()
        modules.mkdir()
        running.run(70)
    (failed,) = (record for record in caplog.records if record.getMessage() == "collector failed")
    fields = failed.__dict__["fields"]
    assert fields["collector"] == "modules"
    assert "gpu" not in fields
    assert None not in fields.values()
