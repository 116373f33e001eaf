"""Who reaches whom, over what."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.topology import TopologyReading, read_topology


def render(reading: TopologyReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's place on the host."""
    yield from present(catalogue.NUMA_NODE, reading.numa_node, *gpu)
    for peer in reading.peers:
        for capability, status in peer.p2p:
            yield catalogue.P2P_STATUS.sample(1, *gpu, peer.gpu, peer.uuid, capability, status)
        if peer.level is not None:
            yield catalogue.TOPOLOGY_INFO.sample(1, *gpu, peer.gpu, peer.uuid, peer.level)


TOPOLOGY = GpuCollector(
    name="topology",
    about="P2P, topology levels and NUMA nodes",
    tier=Tier.SLOW,
    metrics=(
        catalogue.NUMA_NODE,
        catalogue.P2P_STATUS,
        catalogue.TOPOLOGY_INFO,
    ),
    reader=lambda _config: read_topology,
    render=render,
)
