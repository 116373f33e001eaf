"""What kind of host the GPUs are in: its NUMA nodes, and whether an IOMMU stands between devices and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.host.numa import read_numa_nodes
from gpu_triage.kernel.files import read_names
from gpu_triage.kernel.inquiry import HostInquiry
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Tier, host_gauge
from gpu_triage.subjects.rounds import HostRound

GPU_HOST_NUMA_NODES = host_gauge(
    "gpu_host_numa_nodes", "NUMA nodes of the host that have CPUs.", source="/sys/devices/system/node"
)
GPU_HOST_IOMMU_ACTIVE = host_gauge(
    "gpu_host_iommu_active",
    "1 when the kernel has an IOMMU in use, if only to pass accesses through, 0 when not; absent on kernels without "
    "IOMMU support.",
    source="/sys/class/iommu, /sys/kernel/iommu_groups",
)


@dataclass(frozen=True, slots=True)
class PlatformReading:
    """Facts of the host; None for what the kernel does not report."""

    numa_nodes: Annotated[int | None, GPU_HOST_NUMA_NODES]
    iommu_active: Annotated[bool | None, GPU_HOST_IOMMU_ACTIVE]


def read_platform(round_: HostRound) -> PlatformReading:
    """NUMA nodes and IOMMU.

    Source: ``/sys/devices/system/node``, ``/sys/class/iommu`` and ``/sys/kernel/iommu_groups``

    Raises:
        HostReadFailed: they are there and none can be read or understood, or no sysfs is mounted.
    """
    sysfs = round_.machine.sysfs
    inquiry = HostInquiry(round_.failures, sysfs)
    nodes = inquiry.ask(lambda: read_numa_nodes(sysfs) or None)
    units = inquiry.ask(lambda: read_names(sysfs / "class" / "iommu"))
    groups = inquiry.ask(lambda: read_names(sysfs / "kernel" / "iommu_groups"))
    inquiry.finish()
    # Kernels built without IOMMU support have neither directory: they do not know. Empty ones do.
    known = units is not None or groups is not None
    return PlatformReading(
        numa_nodes=len(nodes) if nodes else None,
        iommu_active=bool(units or groups) if known else None,
    )


PLATFORM = HostCollector(
    name="platform",
    about="NUMA nodes and IOMMU of the host",
    tier=Tier.SLOW,
    reader=lambda _config: read_platform,
)
