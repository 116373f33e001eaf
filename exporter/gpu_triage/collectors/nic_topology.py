"""How near each network adapter is to a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.hardware.nic_topology import NicTopologyReading, read_nic_topology


def render(reading: NicTopologyReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's adapters."""
    for nic, level in reading.levels:
        yield catalogue.NIC_TOPOLOGY_INFO.sample(1, *gpu, nic, level)


NIC_TOPOLOGY = GpuCollector(
    name="nic_topology",
    about="topology levels of GPUs and network adapters",
    tier=Tier.SLOW,
    metrics=(catalogue.NIC_TOPOLOGY_INFO,),
    reader=lambda _config: read_nic_topology,
    render=render,
)
