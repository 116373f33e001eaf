"""What simulated NVML says of two GPUs' places agrees with where simulated sysfs has them."""

import dataclasses
from itertools import permutations

import pynvml
import pytest
from tests.gathered import every
from tests.simulated_driver import driver

from gpu_triage.read.gpu.topology import PciPlace, level_between, pci_chain
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


def ancestor(here: Slot, there: Slot) -> int:
    """What simulated NVML says of two GPUs in these slots."""
    scenario = load_scenario("h100-8")
    gpus = tuple(dataclasses.replace(scenario.gpus[i], slot=slot) for i, slot in enumerate((here, there)))
    with driver(dataclasses.replace(scenario, gpus=gpus, processes=())) as nvml:
        return int(pynvml.nvmlDeviceGetTopologyCommonAncestor(*nvml.handles))


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.toml")))
def test_shipped_hosts_say_the_same_in_both_places(name: str) -> None:
    scenario = load_scenario(name)
    if len(scenario.gpus) == 1:
        return
    one_node = len(scenario.machine.node) == 1
    for here, there in every(permutations([gpu.slot for gpu in scenario.gpus], 2)):
        places = [PciPlace(pci_chain(path_of(slot)), slot.node) for slot in (here, there)]
        level = level_between(*places, one_node=one_node)
        if level is not None:
            assert ancestor(here, there) == LEVELS[level], (here.bus_id, there.bus_id)
