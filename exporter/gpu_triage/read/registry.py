"""Registry of all subjects, in playbook order, and so of all metrics. Collectors not listed here don't run."""

from typing import Final

from gpu_triage.options.option_table import CollectorSwitch
from gpu_triage.read.baseline.differences import BASELINE
from gpu_triage.read.exporter.exporter_health import EXPORTER
from gpu_triage.read.exporter.flight_recorder import FLIGHT_RECORDER
from gpu_triage.read.exporter.judgment import JUDGE
from gpu_triage.read.gpu.activity import ACTIVITY, GPM, MEDIA
from gpu_triage.read.gpu.device_memory import MEMORY
from gpu_triage.read.gpu.ecc import ECC, MEMORY_REPAIR
from gpu_triage.read.gpu.fabric import FABRIC
from gpu_triage.read.gpu.identity import IDENTITY
from gpu_triage.read.gpu.mig import MIG
from gpu_triage.read.gpu.modes import MODES, RECOVERY, VGPU_LICENSE
from gpu_triage.read.gpu.nvlink import C2C, NVLINK, NVLINK_QUALITY
from gpu_triage.read.gpu.pcie import PCIE, PCIE_AER, PCIE_ERRORS, PCIE_LIMITS, PCIE_THROUGHPUT
from gpu_triage.read.gpu.power import CLOCK_TARGETS, CLOCKS, LIMITS, POWER, POWER_PERIOD, POWER_PROFILES, THERMAL
from gpu_triage.read.gpu.presence import PRESENCE
from gpu_triage.read.gpu.throttle import THROTTLE
from gpu_triage.read.gpu.topology import NIC_TOPOLOGY, TOPOLOGY
from gpu_triage.read.host.access import ACCESS
from gpu_triage.read.host.cpu import HOST_CPU, HOST_CPU_SETTINGS, HOST_PRESSURE
from gpu_triage.read.host.disk import HOST_DISK, HOST_FILE_SYSTEMS
from gpu_triage.read.host.host_memory import HOST_EDAC, HOST_MEMORY
from gpu_triage.read.host.infiniband import HOST_INFINIBAND
from gpu_triage.read.host.kernel_log import HOST_KERNEL_LOG
from gpu_triage.read.host.maintenance import MAINTENANCE
from gpu_triage.read.host.network_interfaces import HOST_NETWORK, HOST_NETWORK_LINK
from gpu_triage.read.host.nfs import HOST_NFS
from gpu_triage.read.host.pcie_uplinks import PCIE_UPLINKS
from gpu_triage.read.host.platform import MODULES, PLATFORM
from gpu_triage.read.host.services import HOST_SERVICES
from gpu_triage.read.host.textfile import TEXTFILE
from gpu_triage.read.incidents.decisions import DECISIONS
from gpu_triage.read.incidents.incident_metrics import INCIDENTS
from gpu_triage.read.metrics.contract import AnyCollector, AnyGpuCollector, AnyHostCollector, Subject
from gpu_triage.read.processes.allocation import ALLOCATION
from gpu_triage.read.processes.locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.read.processes.nccl_ras import NCCL_RAS
from gpu_triage.read.processes.on_gpu import PROCESSES
from gpu_triage.read.processes.pods import CONTAINER_NAMES, POD_NAMES
from gpu_triage.read.processes.slurm_jobs import SLURM_JOBS
from gpu_triage.read.xid.xid_metrics import XID

GPU_COLLECTORS: Final[tuple[AnyGpuCollector, ...]] = (
    *(ACTIVITY, GPM, CLOCKS, CLOCK_TARGETS, POWER, POWER_PERIOD, THROTTLE, MEMORY, MEDIA, THERMAL),
    *(PCIE, PCIE_THROUGHPUT, PCIE_ERRORS, PCIE_AER, NVLINK, NVLINK_QUALITY, C2C, ECC, RECOVERY),
    *(PROCESSES, ALLOCATION, PROCESS_MEMORY_LOCALITY, MIG, IDENTITY, MODES, POWER_PROFILES, VGPU_LICENSE, LIMITS),
    *(PCIE_LIMITS, TOPOLOGY, NIC_TOPOLOGY, MEMORY_REPAIR, FABRIC),
)

HOST_COLLECTORS: Final[tuple[AnyHostCollector, ...]] = (
    *(MODULES, PLATFORM, HOST_CPU, HOST_CPU_SETTINGS, HOST_PRESSURE, HOST_MEMORY, HOST_DISK, HOST_NFS),
    *(HOST_FILE_SYSTEMS, HOST_NETWORK, HOST_NETWORK_LINK, HOST_INFINIBAND, PCIE_UPLINKS, HOST_SERVICES),
    *(HOST_KERNEL_LOG, HOST_EDAC, TEXTFILE, POD_NAMES, CONTAINER_NAMES, SLURM_JOBS, NCCL_RAS, ACCESS),
    *(DECISIONS, MAINTENANCE),
)

ALL_COLLECTORS: Final[tuple[AnyCollector, ...]] = (*GPU_COLLECTORS, *HOST_COLLECTORS)

COLLECTOR_SWITCHES: Final = (
    *(CollectorSwitch(c.name, c.about, c.default) for c in ALL_COLLECTORS if getattr(c, "needs", None) is None),
    CollectorSwitch(XID.name, XID.about, default=True),
)
"""Collectors with a switch ``--collector.<name>``; one that needs another option is enabled by that option."""


SUBJECTS: Final[tuple[Subject, ...]] = (
    *(PRESENCE, JUDGE, XID, INCIDENTS, BASELINE),
    *(FLIGHT_RECORDER, EXPORTER, *ALL_COLLECTORS),
)

METRICS: Final = tuple(spec for subject in SUBJECTS for spec in subject.metrics)  # all metrics
