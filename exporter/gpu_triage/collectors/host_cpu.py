"""CPU time of the host by NUMA node, and how loaded it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_cpu import HostCpuReader, HostCpuReading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostCpuReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for node in reading.nodes:
        numa_node = str(node.numa_node)
        for mode, seconds in node.seconds.items():
            yield catalogue.HOST_CPU_SECONDS.sample(seconds, numa_node, mode)
        if node.busiest_ratio is not None:
            yield catalogue.HOST_CPU_BUSIEST.sample(node.busiest_ratio, numa_node)
        yield catalogue.HOST_CPUS.sample(node.cpus, numa_node)
    for spec, value in (
        (catalogue.HOST_LOAD1, reading.load1),
        (catalogue.HOST_PROCESSES_BLOCKED, reading.processes_blocked),
        (catalogue.HOST_CONTEXT_SWITCHES, reading.context_switches),
    ):
        if value is not None:
            yield spec.sample(value)


HOST_CPU = HostCollector(
    name="host_cpu",
    about="CPU time per NUMA node, load",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_CPU_SECONDS,
        catalogue.HOST_CPU_BUSIEST,
        catalogue.HOST_CPUS,
        catalogue.HOST_LOAD1,
        catalogue.HOST_PROCESSES_BLOCKED,
        catalogue.HOST_CONTEXT_SWITCHES,
    ),
    reader=lambda _config: HostCpuReader().read,
    render=render,
)
