"""The host's collectors, and what one of them costs the others."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.rig import Rig, pair, rig
from tests.watched_paths import watched

from gpu_triage.machine import CallBlocked
from gpu_triage.options.config import Config
from gpu_triage.read.host import network_interfaces as network_link
from gpu_triage.read.host.host_memory import HOST_MEMORY
from gpu_triage.read.metrics.contract import HostRound, runs
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.outcomes import sampled
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow

HOST_ALONE = Config(metrics_profile="full", collectors={each.name: False for each in GPU_COLLECTORS})
HANG_SECONDS = 60.0
STALE_SECONDS = 20.0
"""Three intervals of the medium tier and one more, after which a value is withdrawn."""


@dataclasses.dataclass
class Stuck:
    """A file, or the files of a folder, that do not come back when they are read; none without a name."""

    clock: VirtualClock
    name: str = ""
    hang_seconds: float = HANG_SECONDS

    def opened(self, path: Path) -> None:
        if self.name and self.name in (path.name, path.parent.name):
            raise CallBlocked(self.clock.now().monotonic + self.hang_seconds)


@contextmanager
def stuck_host(scenario: Scenario, root: str) -> Iterator[tuple[Rig, Stuck]]:
    """An exporter on a host on which files below `root`, ``sysfs`` or ``procfs``, may hang."""
    clock = VirtualClock()
    stuck = Stuck(clock)
    with simulated_machine(scenario, clock=clock) as simulated:
        folder = watched(getattr(simulated.machine, root), stuck.opened)
        roots: dict[str, Any] = {root: folder}
        machine = dataclasses.replace(simulated.machine, **roots)
        yield Rig(simulated, clock, HOST_ALONE, machine), stuck


@pytest.fixture
def running() -> Iterator[tuple[Rig, Stuck]]:
    with stuck_host(pair("h100-8"), "sysfs") as host:
        yield host


def names(rig: Rig) -> set[str]:
    """Metrics of the host that are on the page."""
    own = {spec.name for collector in HOST_COLLECTORS for spec in collector.metrics}
    return {line.partition("{")[0].partition(" ")[0] for line in rig.page().splitlines()} & own


def test_an_adapter_that_hangs_costs_its_own_series_alone_and_they_return(running: tuple[Rig, Stuck]) -> None:
    rig, stuck = running
    rig.run(10)
    healthy = names(rig)
    of_adapters = {name for name in healthy if "infiniband" in name}
    assert of_adapters
    stuck.name = "counters"
    rig.run(5 + STALE_SECONDS)
    assert names(rig) == healthy - of_adapters
    now = rig.clock.now().wall
    stamped = rig.series("gpu_exporter_collector_last_success_timestamp_seconds")
    ages = {labels["collector"]: now - at for labels, at in stamped}
    assert ages["host_infiniband"] > STALE_SECONDS
    often = {collector.name for collector in HOST_COLLECTORS if collector.tier is Tier.MEDIUM}
    assert {name for name, age in ages.items() if name in often and age > 5} == {"host_infiniband"}
    stuck.name = ""
    rig.run(HANG_SECONDS)
    assert names(rig) == healthy


def test_a_speed_that_hangs_keeps_its_last_value_and_costs_no_other_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """All interfaces wait for the RTNL lock, as `speed_show` of net/core/net-sysfs.c does."""
    monkeypatch.setattr(network_link, "_KNOWN_FOR_SECONDS", 10.0)
    with stuck_host(load_scenario("idle-downshift"), "sysfs") as (rig, stuck):
        rig.run(10)
        healthy = names(rig)
        of_links = ("speed_bytes_per_second", "speed_expected_ratio", "carrier_downs_total")
        assert healthy >= {f"gpu_host_network_{name}" for name in of_links}
        speeds = rig.series("gpu_host_network_speed_bytes_per_second")
        stuck.name, stuck.hang_seconds = "speed", 3600.0
        rig.run(60 + STALE_SECONDS)
        assert names(rig) == healthy
        assert rig.series("gpu_host_network_speed_bytes_per_second") == speeds
        assert failing(rig) == {"host_network_link"}
        stale = rig.series("gpu_exporter_collector_stale_seconds")
        assert [labels["collector"] for labels, _ in stale] == ["host_network_link"]
        assert any(line.startswith("host_network_link: ") for line in rig.report.not_read)


IN_ONE_LANE = tuple(c for c in HOST_COLLECTORS if not c.own_lane and runs(c, Config()))
"""Collectors of the host that are read one after the other."""


@pytest.fixture
def one_file() -> Iterator[tuple[Rig, Stuck]]:
    with stuck_host(load_scenario("idle-downshift"), "procfs") as host:
        yield host


def failing(rig: Rig) -> set[str]:
    series = rig.series("gpu_exporter_collector_success")
    return {labels["collector"] for labels, success in series if success == 0}


def test_whoever_waits_behind_a_read_that_hangs_has_not_succeeded(one_file: tuple[Rig, Stuck]) -> None:
    rig, stuck = one_file
    rig.run(11)
    assert failing(rig) == set()
    stuck.name = "meminfo"
    deadline = rig.config.sample_medium_seconds + rig.config.sample_deadline_seconds + 1
    rig.run(deadline)
    often = {c.name for c in IN_ONE_LANE if c.tier is Tier.MEDIUM}
    # Those before it in the same round were read in time, and are due again only now.
    behind = {c.name for c in IN_ONE_LANE[IN_ONE_LANE.index(HOST_MEMORY) :] if c.tier is Tier.MEDIUM}
    assert behind <= failing(rig) <= often
    rig.run(rig.config.sample_medium_seconds)
    assert failing(rig) == often
    assert rig.value("gpu_exporter_collector_success", collector="host_infiniband") == 1
    errors = {labels["collector"]: labels["error"] for labels, _ in rig.series("gpu_exporter_errors_total")}
    assert errors == dict.fromkeys(often, "blocked") | {"host_memory": "deadline"}
    calls = [labels["collector"] for labels, _ in rig.series("gpu_exporter_call_inflight_seconds")]
    assert calls == ["host_memory"]
    rig.run(2 * rig.config.sample_medium_seconds)
    lines = rig.report.not_read
    assert any(line.startswith("host_memory: ") and "has not returned for" in line for line in lines)
    assert any("host_cpu" in line and "blocked" in line for line in lines)


def test_a_read_that_hangs_is_counted_with_every_round_that_it_costs_and_told_once(
    one_file: tuple[Rig, Stuck], caplog: pytest.LogCaptureFixture
) -> None:
    rig, stuck = one_file
    rig.run(11)
    stuck.name = "meminfo"
    rig.run(10)
    counted = []
    for seconds in (0, *[rig.config.sample_medium_seconds] * 3):
        rig.run(seconds)
        counted.append(rig.value("gpu_exporter_errors_total", collector="host_disk", error="blocked") or 0)
    assert [after - before for before, after in pairwise(counted)] == [1, 1, 1]
    stuck.name = ""
    rig.run(HANG_SECONDS)
    assert failing(rig) == set()
    told = [(r.getMessage(), r.__dict__["fields"]) for r in caplog.records if r.name == "gpu_triage.sampler.status"]
    (failed,) = (fields for message, fields in told if fields["collector"] == "host_disk" and "failed" in message)
    assert failed["errors"] == "blocked"
    assert failed["cause"].startswith("waits for host_memory, whose read has not returned for ")


@pytest.mark.parametrize(("seconds", "errors"), [(5.0, ()), (5.5, ("deadline",))])
def test_a_reading_that_took_longer_than_the_deadline_is_not_published(seconds: float, errors: tuple[str, ...]) -> None:
    with rig(load_scenario("idle-downshift")) as running:
        host = HostRound(running.simulated.machine, running.clock.now())
        read = HOST_MEMORY.reader(running.config)

        def slow(given: HostRound) -> object:
            running.clock.advance(seconds)
            return read(given)

        outcome, _ = sampled(HOST_MEMORY, slow, host, deadline_seconds=5.0)
    assert outcome.errors == errors
    assert (outcome.success, bool(outcome.samples)) == (not errors, not errors)


def test_what_cannot_block_shares_a_lane_and_nothing_else_is_in_it(running: tuple[Rig, Stuck]) -> None:
    """Plain values of the kernel, read without a lock that drivers, mounts or cgroups hold."""
    plain = ("cpu", "cpu_settings", "pressure", "memory", "disk", "kernel_log", "edac")
    shared = {c.name for c in HOST_COLLECTORS if not c.own_lane and c.foreign is None and c.needs is None}
    assert shared == {"modules", "platform", *(f"host_{name}" for name in plain)}
    rig, _ = running
    alone = [c for c in HOST_COLLECTORS if c.own_lane and runs(c, rig.config)]
    assert len(rig.sampler._host.lanes) == 1 + len(alone)
