"""The hosts on which faults are staged."""

import dataclasses
from collections.abc import Callable, Mapping

from gpu_triage.options.config import Config
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.effects import Mig, MigInstance
from gpu_triage_simulator.scenario import Event, Process

USUAL = Config(collectors={"pcie_throughput": True})
"""As shipped, with every collector that reads GPUs."""

SLOW_TIER_EVERY_TEN_SECONDS = dataclasses.replace(USUAL, sample_slow_seconds=10.0)
"""As shipped, with a slow tier that a test can wait for."""

EVERY_SECOND = dataclasses.replace(USUAL, sample_medium_seconds=1.0, sample_slow_seconds=1.0)
"""Every collector runs every second."""

GPUS_EVERY_SECOND = dataclasses.replace(EVERY_SECOND, collectors={**USUAL.collectors, "host": False})
"""As above, but for the host's, which do not run."""

SEVEN = Mig(tuple(MigInstance("1g.10gb", gi=7 + slot, slot=slot, activity=0.5) for slot in range(7)))
"""MIG mode, with as many instances as there can be."""


def steady(base: str, gpus: int) -> Scenario:
    """A shipped scenario without its events, cut down to its first GPUs, whose load does not waver."""
    scenario = load_scenario(base)
    chosen = tuple(
        dataclasses.replace(gpu, load=dataclasses.replace(gpu.load, jitter=0.0)) for gpu in scenario.gpus[:gpus]
    )
    # Without pods: who holds a GPU is asked by UUID, and one row takes the UUIDs away.
    processes = tuple(dataclasses.replace(process, pod=None) for process in scenario.processes if process.gpu < gpus)
    return dataclasses.replace(scenario, gpus=chosen, processes=processes, events=(), expectations=())


def one_uuid() -> Scenario:
    scenario = steady("h100-8", 2)
    first, second = scenario.gpus
    return dataclasses.replace(scenario, gpus=(first, dataclasses.replace(second, uuid=first.uuid)))


def sixteen() -> Scenario:
    """As many GPUs again, twice over, beside the first two: the others sit on buses of their own."""
    scenario = steady("h100-8", 2)
    copies = [
        dataclasses.replace(
            scenario.gpus[1],
            uuid=f"GPU-00000000-0000-0000-0000-{number:012x}",
            slot=dataclasses.replace(scenario.gpus[1].slot, bus_id=f"0000:e{number:x}:00.0", ports=()),
        )
        for number in range(14)
    ]
    return dataclasses.replace(scenario, gpus=(*scenario.gpus, *copies))


def cut() -> Scenario:
    """Two H100: the first cut into seven instances, the other whole."""
    return dataclasses.replace(steady("h100-8", 2), processes=(), events=(Event(0, None, (0,), SEVEN),))


def sixteen_cut() -> Scenario:
    """Sixteen H100, each cut into seven instances."""
    every = tuple(range(16))
    return dataclasses.replace(sixteen(), processes=(), events=(Event(0, None, every, SEVEN),))


CROWD = tuple(range(50_000, 55_000))
"""PIDs of very many processes."""


def crowded() -> Scenario:
    """Very many processes that may start on GPU 0."""
    scenario = steady("h100-8", 2)
    processes = tuple(Process(0, pid, "worker", memory_mib=1) for pid in CROWD)
    # They must be told to start: at the beginning they are not there.
    return dataclasses.replace(scenario, processes=(*scenario.processes, *processes))


HOSTS: Mapping[str, Callable[[], Scenario]] = {
    "two": lambda: steady("h100-8", 2),
    "one UUID": one_uuid,
    "sixteen": sixteen,
    "crowded": crowded,
    "cut": cut,
    "sixteen cut": sixteen_cut,
}
"""Makers of scenarios by key: two H100, unless a fault needs another host."""
