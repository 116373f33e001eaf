"""What simulated NVML says of two GPUs' places agrees with where simulated sysfs has them."""

from __future__ import annotations

import dataclasses
from itertools import permutations

import pynvml
import pytest
from tests.simulated_driver import driver

from gpu_triage.read.gpu.nic_topology import PciPlace, level_between, pci_chain
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario import Slot
from gpu_triage_simulator.scenario_file import SCENARIOS
from gpu_triage_simulator.sysfs import path_of

pytestmark = pytest.mark.slow

LEVELS = {
    "pix": pynvml.NVML_TOPOLOGY_SINGLE,
    "pxb": pynvml.NVML_TOPOLOGY_MULTIPLE,
    "phb": pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
    "node": pynvml.NVML_TOPOLOGY_NODE,
    "sys": pynvml.NVML_TOPOLOGY_SYSTEM,
}
HERE = Slot("0000:18:00.0", 0, ("0000:15:01.0", "0000:16:00.0", "0000:17:00.0"))


def ancestor(here: Slot, there: Slot) -> int:
    """What simulated NVML says of two GPUs in these slots."""
    scenario = load_scenario("h100-8")
    gpus = tuple(dataclasses.replace(scenario.gpus[i], slot=slot) for i, slot in enumerate((here, there)))
    with driver(dataclasses.replace(scenario, gpus=gpus, processes=())) as nvml:
        return int(pynvml.nvmlDeviceGetTopologyCommonAncestor(*nvml.handles))


@pytest.mark.parametrize(
    ("there", "level"),
    [
        (Slot("0000:1a:00.0", 0, ("0000:15:01.0", "0000:16:00.0", "0000:19:00.0")), "pix"),
        (Slot("0000:1c:00.0", 0, ("0000:15:01.0", "0000:1a:00.0", "0000:1b:00.0")), "pxb"),
        (Slot("0000:20:00.0", 0, ("0000:15:02.0", "0000:1e:00.0", "0000:1f:00.0")), "phb"),
        (Slot("0000:15:03.0", 0), "phb"),
        (Slot("0000:28:00.0", 0, ("0000:26:01.0",)), "node"),
        (Slot("0001:18:00.0", 0, ("0001:15:01.0",)), "node"),
        (Slot("0000:99:00.0", 1, ("0000:97:01.0",)), "sys"),
    ],
)
def test_levels_follow_the_ports_above_two_gpus(there: Slot, level: str) -> None:
    assert ancestor(HERE, there) == ancestor(there, HERE) == LEVELS[level]


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.toml")))
def test_shipped_hosts_say_the_same_in_both_places(name: str) -> None:
    scenario = load_scenario(name)
    one_node = len(scenario.machine.node) == 1
    for here, there in permutations([gpu.slot for gpu in scenario.gpus], 2):
        places = [PciPlace(pci_chain(path_of(slot)), slot.node) for slot in (here, there)]
        level = level_between(*places, one_node=one_node)
        if level is not None:
            assert ancestor(here, there) == LEVELS[level], (here.bus_id, there.bus_id)
