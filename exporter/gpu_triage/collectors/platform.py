"""What kind of host the GPUs are in.

Not named ``host_…``: a host whose CPUs and disks are watched by another exporter switches that group off, and
still wants to know why a GPU is far from its memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.platform import PlatformReading, read_platform


def render(reading: PlatformReading) -> Iterator[Sample]:
    """Samples of one reading."""
    yield from present(catalogue.HOST_NUMA_NODES, reading.numa_nodes)
    yield from present(catalogue.HOST_IOMMU_ACTIVE, reading.iommu_active)


PLATFORM = HostCollector(
    name="platform",
    about="NUMA nodes and IOMMU of the host",
    tier=Tier.SLOW,
    metrics=(catalogue.HOST_NUMA_NODES, catalogue.HOST_IOMMU_ACTIVE),
    reader=lambda _config: read_platform,
    render=render,
)
