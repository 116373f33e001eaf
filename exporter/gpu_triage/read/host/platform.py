"""Platform of the host: NUMA nodes, IOMMU use, whether it is a virtual machine, and NVIDIA's loaded kernel modules."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, read_names, read_text
from gpu_triage.driver.kernel.numa import read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import device_directory, read_pci_gpus
from gpu_triage.driver.kernel.procfs import is_virtual_machine
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier, host_gauge

GPU_HOST_NUMA_NODES = host_gauge("NUMA nodes of the host that have CPUs.", source="/sys/devices/system/node")
GPU_HOST_IOMMU_ACTIVE = host_gauge(
    "1 when the kernel has an IOMMU in use, even in pass-through, 0 when not; absent on kernels without IOMMU support.",
    source="/sys/class/iommu, /sys/kernel/iommu_groups",
)

GPU_HOST_VIRTUAL_MACHINE = host_gauge(
    "1 when the host is a virtual machine, 0 when not; absent if neither CPUs nor firmware show it. "
    "gpu_virtualization_mode has what the driver reports.",
    source="the flag hypervisor of /proc/cpuinfo, else /sys/class/dmi/id/{sys_vendor,product_name}",
)

_DOMAINS: Final = ("identity", "dma", "dma_fq", "unmanaged", "blocked")
"""Types of a group's default domain, which vfio does not change; iommu_group_show_type of drivers/iommu/iommu.c writes
``DMA-FQ``."""

GPU_HOST_IOMMU_GPUS = host_gauge(
    "NVIDIA GPUs on the bus by default domain of their IOMMU group ({default_domain}), even while vfio has attached "
    "another one. dma and dma_fq send traffic between GPUs through the CPU. Absent without an IOMMU, and before Linux "
    "4.19.",
    labels={"default_domain": _DOMAINS},
    source="/sys/bus/pci/devices/*/iommu_group/type",
)


@dataclass(frozen=True, slots=True)
class PlatformReading:
    numa_nodes: Annotated[int | None, GPU_HOST_NUMA_NODES]
    iommu_active: Annotated[bool | None, GPU_HOST_IOMMU_ACTIVE]
    iommu_gpus: Annotated[Mapping[str, int], GPU_HOST_IOMMU_GPUS] = field(default_factory=dict)
    virtual_machine: Annotated[bool | None, GPU_HOST_VIRTUAL_MACHINE] = None


class PlatformReader:
    def __init__(self) -> None:
        self._is_virtual: bool | None = None

    def read(self, round_: HostRound) -> PlatformReading:
        sysfs = round_.machine.sysfs
        if self._is_virtual is None:
            self._is_virtual = is_virtual_machine(round_.machine.procfs, sysfs)
        inquiry = HostInquiry(round_.failures, sysfs)
        nodes = inquiry.ask(lambda: read_numa_nodes(sysfs) or None)
        units = inquiry.ask(lambda: read_names(sysfs / "class" / "iommu"))
        groups = inquiry.ask(lambda: read_names(sysfs / "kernel" / "iommu_groups"))
        gpus = (inquiry.ask(lambda: read_pci_gpus(sysfs, round_.failures)) or ()) if groups else ()
        files = (device_directory(sysfs, gpu.bus_id) / "iommu_group/type" for gpu in gpus)
        types = [(inquiry.ask(partial(read_text, file)) or "").strip().lower().replace("-", "_") for file in files]
        inquiry.finish()
        # Kernels without IOMMU support have neither directory: the state is unknown. Empty directories mean inactive.
        known = units is not None or groups is not None
        return PlatformReading(
            numa_nodes=len(nodes) if nodes else None,
            iommu_active=bool(units or groups) if known else None,
            iommu_gpus=Counter(each for each in types if each in _DOMAINS),
            virtual_machine=self._is_virtual,
        )


PLATFORM = HostCollector(
    about="NUMA nodes of the host, its IOMMU, the GPUs' default domains, and whether it is virtual",
    tier=Tier.SLOW,
    reader=lambda _config: PlatformReader().read,
)


MODULE_NAMES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
"""Names of the modules in /proc/modules."""

_STATE_COLUMN = 4

GPU_KERNEL_MODULE_LOADED = host_gauge(
    "1 when the kernel module is loaded, 0 when not; absent if /proc/modules cannot be read.",
    labels={"module": MODULE_NAMES},
    source="/proc/modules",
)


@dataclass(frozen=True, slots=True)
class HostModulesReading:
    """Whether each of MODULE_NAMES is loaded and live; None on a kernel without loadable modules."""

    loaded: Annotated[Mapping[str, bool] | None, GPU_KERNEL_MODULE_LOADED]


def read_host_modules(round_: HostRound) -> HostModulesReading:
    """Read which of NVIDIA's modules are loaded. Source: ``/proc/modules``."""
    procfs = round_.machine.procfs
    inquiry = HostInquiry(round_.failures, procfs)
    live = inquiry.lines(procfs / "modules", parse_module)
    inquiry.finish()
    return HostModulesReading(None if live is None else {module: module in live for module in MODULE_NAMES})


def parse_module(line: str) -> str | None:
    """Parse the module name from a line of /proc/modules; None while it is being loaded or unloaded.

    Format: ``nvidia 56823808 4 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)``.
    """
    columns = line.split()
    if len(columns) <= _STATE_COLUMN:
        raise ValueError(f"{line[:80]!r} is no line of /proc/modules")
    return columns[0] if columns[_STATE_COLUMN] == "Live" else None


MODULES = HostCollector("kernel modules of the driver", Tier.MEDIUM, lambda _config: read_host_modules)
