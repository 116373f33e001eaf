"""Every collector, in the order of the playbook. A subject that is not listed here does not run."""

from __future__ import annotations

from typing import Final

from gpu_triage.collectors import xid
from gpu_triage.collectors.access import ACCESS
from gpu_triage.collectors.activity import ACTIVITY
from gpu_triage.collectors.clock_targets import CLOCK_TARGETS
from gpu_triage.collectors.clocks import CLOCKS
from gpu_triage.collectors.contract import AnyCollector, AnyGpuCollector, AnyHostCollector
from gpu_triage.collectors.ecc import ECC
from gpu_triage.collectors.fabric import FABRIC
from gpu_triage.collectors.gpm import GPM
from gpu_triage.collectors.host_cpu import HOST_CPU
from gpu_triage.collectors.host_disk import HOST_DISK
from gpu_triage.collectors.host_infiniband import HOST_INFINIBAND
from gpu_triage.collectors.host_memory import HOST_MEMORY
from gpu_triage.collectors.host_network import HOST_NETWORK
from gpu_triage.collectors.host_nfs import HOST_NFS
from gpu_triage.collectors.host_pressure import HOST_PRESSURE
from gpu_triage.collectors.identity import IDENTITY
from gpu_triage.collectors.limits import LIMITS
from gpu_triage.collectors.media import MEDIA
from gpu_triage.collectors.memory import MEMORY
from gpu_triage.collectors.memory_repair import MEMORY_REPAIR
from gpu_triage.collectors.mig import MIG
from gpu_triage.collectors.modes import MODES
from gpu_triage.collectors.modules import MODULES
from gpu_triage.collectors.nic_topology import NIC_TOPOLOGY
from gpu_triage.collectors.nvlink import NVLINK
from gpu_triage.collectors.pcie import PCIE
from gpu_triage.collectors.pcie_aer import PCIE_AER
from gpu_triage.collectors.pcie_errors import PCIE_ERRORS
from gpu_triage.collectors.pcie_limits import PCIE_LIMITS
from gpu_triage.collectors.pcie_throughput import PCIE_THROUGHPUT
from gpu_triage.collectors.platform import PLATFORM
from gpu_triage.collectors.pod_names import POD_NAMES
from gpu_triage.collectors.power import POWER
from gpu_triage.collectors.process_memory_locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.collectors.processes import PROCESSES
from gpu_triage.collectors.recovery import RECOVERY
from gpu_triage.collectors.textfile import TEXTFILE
from gpu_triage.collectors.thermal import THERMAL
from gpu_triage.collectors.throttle import THROTTLE
from gpu_triage.collectors.topology import TOPOLOGY
from gpu_triage.options.table import CollectorSwitch

GPU_COLLECTORS: Final[tuple[AnyGpuCollector, ...]] = (
    ACTIVITY,
    GPM,
    CLOCKS,
    CLOCK_TARGETS,
    POWER,
    THROTTLE,
    MEMORY,
    MEDIA,
    THERMAL,
    PCIE,
    PCIE_THROUGHPUT,
    PCIE_ERRORS,
    PCIE_AER,
    NVLINK,
    ECC,
    RECOVERY,
    PROCESSES,
    PROCESS_MEMORY_LOCALITY,
    MIG,
    IDENTITY,
    MODES,
    LIMITS,
    PCIE_LIMITS,
    TOPOLOGY,
    NIC_TOPOLOGY,
    MEMORY_REPAIR,
    FABRIC,
)

HOST_COLLECTORS: Final[tuple[AnyHostCollector, ...]] = (
    MODULES,
    PLATFORM,
    HOST_CPU,
    HOST_PRESSURE,
    HOST_MEMORY,
    HOST_DISK,
    HOST_NFS,
    HOST_NETWORK,
    HOST_INFINIBAND,
    TEXTFILE,
    POD_NAMES,
    ACCESS,
)

ALL_COLLECTORS: Final[tuple[AnyCollector, ...]] = (*GPU_COLLECTORS, *HOST_COLLECTORS)

COLLECTOR_SWITCHES: Final = (
    *(CollectorSwitch(c.name, c.about, c.default) for c in ALL_COLLECTORS if getattr(c, "needs", None) is None),
    CollectorSwitch(xid.NAME, xid.ABOUT, default=True),
)
"""What ``--collector.<name>`` can name; a collector that needs an option of its own is switched by that."""
