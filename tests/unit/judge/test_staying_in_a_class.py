"""A GPU stays in a class for less than it takes to come into it, whichever class and threshold it is (hysteresis)."""

from types import MappingProxyType
from typing import NamedTuple

import pytest
from tests.evidence import Readings, steady

from gpu_triage.judge.bottleneck.classes import Case, Work, bottleneck_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.gpu.activity import GPU_MEMORY_UTILIZATION_RATIO, GPU_SM_ACTIVE_RATIO, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH, GPU_PCIE_RECEIVE_BYTES_TOTAL
from gpu_triage.read.gpu.power import GPU_POWER_DEFAULT_LIMIT_WATTS, GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host.cpu import GPU_HOST_CPU_BUSIEST_RATIO, GPU_HOST_CPU_SECONDS_TOTAL, GPU_HOST_CPUS
from gpu_triage.read.host.host_memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.network_interfaces import (
    GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL,
    GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND,
    GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL,
    GPU_HOST_TCP_SEGMENTS_SENT_TOTAL,
)
from gpu_triage.read.host.pcie_uplinks import bytes_per_second
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes.cgroup_limits import GPU_CGROUP_PRESSURE_SECONDS_TOTAL
from gpu_triage.read.processes.on_gpu import GPU_PROCESSES

GPU, PEER = ("0", "GPU-0"), ("1", "GPU-1")
WATTS = 400.0
EDGE = 1.001
"""Just beyond a threshold: counters are sums of floats."""


class Row(NamedTuple):
    """A class, and a reading that is in it from a threshold on; beyond is how far, 1 at the threshold."""

    name: str
    reading: tuple[MetricSpec, tuple[str, ...]]
    threshold: float
    falls: bool = False  # whether the class begins below the threshold
    busy: float = 1.0
    more: Readings = MappingProxyType({})

    def readings(self, beyond: float) -> Readings:
        value = self.threshold / beyond if self.falls else self.threshold * beyond
        always = {
            (GPU_UP, GPU): 1.0,
            (GPU_PROCESSES, (*GPU, "compute")): 1.0,
            (GPU_POWER_LIMIT_WATTS, GPU): WATTS,
            (GPU_POWER_WATTS, GPU): WATTS * 0.9,
            (GPU_SM_UTILIZATION_RATIO, GPU): self.busy,
        }
        return {**always, **self.more, self.reading: value}


def limit(code: str, name: str) -> float:
    return LIMITS[code][name].value


POWER, BUSY = (GPU_POWER_WATTS, GPU), (GPU_SM_UTILIZATION_RATIO, GPU)
MEMORY = (GPU_MEMORY_UTILIZATION_RATIO, GPU)
TALKS: Readings = {MEMORY: 0.0, (GPU_UP, PEER): 1.0, (GPU_PROCESSES, (*PEER, "compute")): 1.0}
SPINS: Readings = {**TALKS, POWER: WATTS * 0.3}
X16: Readings = {(GPU_PCIE_LINK_GENERATION, GPU): 4.0, (GPU_PCIE_LINK_WIDTH, GPU): 16.0}
IDLE_CPUS: Readings = {(GPU_HOST_CPUS, ("0",)): 8.0, (GPU_HOST_CPU_SECONDS_TOTAL, ("0", "idle")): 8.0}
FULL_CPU: Readings = {**IDLE_CPUS, (GPU_HOST_CPU_BUSIEST_RATIO, ("0",)): 0.1}
LOWERED: Readings = {(GPU_POWER_DEFAULT_LIMIT_WATTS, GPU): 2 * WATTS, POWER: WATTS}
ROWS = (
    Row("thermal", (GPU_THROTTLE_SECONDS_TOTAL, (*GPU, "hw_thermal")), limit("thermal.hw", "share")),
    Row("power_brake", (GPU_THROTTLE_SECONDS_TOTAL, (*GPU, "hw_power_brake")), limit("power.brake", "share")),
    Row(
        "power_cap",
        (GPU_THROTTLE_SECONDS_TOTAL, (*GPU, "sw_power_cap")),
        thresholds.POWER_CAP_CLASS_SHARE,
        more=LOWERED,
    ),
    Row(
        "pcie_link", (GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU), thresholds.FULL_LINK_SHARE * bytes_per_second(4, 16), more=X16
    ),
    Row("memory", (GPU_HOST_SWAP_IN_BYTES_TOTAL, ()), limit("memory.starved", "rate"), busy=0.3),
    Row("memory", (GPU_HOST_PRESSURE_SECONDS_TOTAL, ("memory", "some")), limit("memory.starved", "pressure"), busy=0.3),
    Row("storage", (GPU_HOST_PRESSURE_SECONDS_TOTAL, ("io", "some")), limit("storage.starved", "pressure"), busy=0.3),
    Row("cpu", (GPU_HOST_CPU_BUSIEST_RATIO, ("0",)), limit("cpu.starved", "busiest"), busy=0.3, more=FULL_CPU),
    Row(
        "network",
        (GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL, ("eno1",)),
        limit("network.starved", "line_rate") * 1e9,
        busy=0.3,
        more={(GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND, ("eno1",)): 1e9},
    ),
    Row(
        "network",
        (GPU_HOST_TCP_SEGMENTS_RETRANSMITTED_TOTAL, ()),
        thresholds.RETRANSMITTED_SHARE * 1000,
        busy=0.3,
        more={(GPU_HOST_TCP_SEGMENTS_SENT_TOTAL, ()): 1000.0},
    ),
    *(
        Row(
            name,
            (GPU_CGROUP_PRESSURE_SECONDS_TOTAL, (*GPU, "/job", resource, "some")),
            limit(f"{name}.starved", "pressure"),
            busy=busy,
        )
        for name, resource in (("memory", "memory"), ("storage", "io"))
        for busy in (0.3, 0.78)
    ),
    Row("communication", BUSY, thresholds.SPINNING_BUSY_SHARE, more=SPINS),
    Row("communication", POWER, thresholds.SPINNING_POWER_SHARE * WATTS, falls=True, more=TALKS),
    Row("communication", MEMORY, thresholds.SPINNING_MEMORY_SHARE, falls=True, more=SPINS),
    Row("communication", (GPU_SM_ACTIVE_RATIO, GPU), thresholds.SPINNING_SM_ACTIVITY, falls=True, more=SPINS),
)


def class_of(row: Row, beyond: float, current: str | None) -> str:
    host, work = steady(row.readings(beyond)), Work()
    work.worked_recently = True
    return bottleneck_of(Case(host.gpus[0], host, work, current)).name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}: {row.reading[0].name}")
def test_a_class_is_left_below_less_than_it_is_entered_at(row: Row) -> None:
    between = (1 + thresholds.EASE) / 2
    seen = {
        (beyond, current): class_of(row, beyond, current) == row.name
        for beyond in (EDGE, between, thresholds.EASE / EDGE)
        for current in (None, "compute", row.name)
    }
    stays = {key for key, is_in in seen.items() if is_in}
    assert stays == {(EDGE, None), (EDGE, "compute"), (EDGE, row.name), (between, row.name)}
