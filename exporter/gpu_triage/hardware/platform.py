"""What kind of host the GPUs are in: its NUMA nodes, and whether an IOMMU stands between devices and memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage.hardware.host_inquiry import HostInquiry
from gpu_triage.hardware.kernel_files import read_names
from gpu_triage.hardware.numa import read_numa_nodes
from gpu_triage.hardware.rounds import HostRound


@dataclass(frozen=True, slots=True)
class PlatformReading:
    """Facts of the host; None for what the kernel does not report.

    Attributes:
        numa_nodes: how many NUMA nodes have CPUs.
        iommu_active: whether an IOMMU is in use.
    """

    numa_nodes: int | None
    iommu_active: bool | None


def read_platform(round_: HostRound) -> PlatformReading:
    """NUMA nodes and IOMMU.

    Source: ``/sys/devices/system/node``, ``/sys/class/iommu`` and ``/sys/kernel/iommu_groups``

    Raises:
        HostReadFailed: they are there and none can be read or understood.
    """
    inquiry = HostInquiry(round_.failures)
    sysfs = round_.machine.sysfs
    nodes = inquiry.ask(lambda: read_numa_nodes(sysfs))
    units = inquiry.ask(lambda: read_names(sysfs / "class" / "iommu"))
    groups = inquiry.ask(lambda: read_names(sysfs / "kernel" / "iommu_groups"))
    inquiry.finish()
    # Kernels built without IOMMU support have neither directory: they do not know. Empty ones do.
    known = units is not None or groups is not None
    return PlatformReading(
        numa_nodes=len(nodes) if nodes else None,
        iommu_active=bool(units or groups) if known else None,
    )
