"""Registry of all subjects, in playbook order, and thus of all metrics. Collectors not listed here don't run."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpu_triage.gpu import presence
from gpu_triage.gpu.activity import ACTIVITY
from gpu_triage.gpu.c2c import C2C
from gpu_triage.gpu.clock_targets import CLOCK_TARGETS
from gpu_triage.gpu.clocks import CLOCKS
from gpu_triage.gpu.ecc import ECC
from gpu_triage.gpu.fabric import FABRIC
from gpu_triage.gpu.gpm import GPM
from gpu_triage.gpu.identity import IDENTITY
from gpu_triage.gpu.limits import LIMITS
from gpu_triage.gpu.media import MEDIA
from gpu_triage.gpu.memory import MEMORY
from gpu_triage.gpu.memory_repair import MEMORY_REPAIR
from gpu_triage.gpu.mig import MIG
from gpu_triage.gpu.modes import MODES
from gpu_triage.gpu.nic_topology import NIC_TOPOLOGY
from gpu_triage.gpu.nvlink import NVLINK
from gpu_triage.gpu.nvlink_quality import NVLINK_QUALITY
from gpu_triage.gpu.pcie import PCIE
from gpu_triage.gpu.pcie_aer import PCIE_AER
from gpu_triage.gpu.pcie_errors import PCIE_ERRORS
from gpu_triage.gpu.pcie_limits import PCIE_LIMITS
from gpu_triage.gpu.pcie_throughput import PCIE_THROUGHPUT
from gpu_triage.gpu.power import POWER
from gpu_triage.gpu.power_profiles import POWER_PROFILES
from gpu_triage.gpu.recovery import RECOVERY
from gpu_triage.gpu.thermal import THERMAL
from gpu_triage.gpu.throttle import THROTTLE
from gpu_triage.gpu.topology import TOPOLOGY
from gpu_triage.gpu.vgpu_license import VGPU_LICENSE
from gpu_triage.host.access import ACCESS
from gpu_triage.host.cpu import HOST_CPU
from gpu_triage.host.cpu_settings import HOST_CPU_SETTINGS
from gpu_triage.host.disk import HOST_DISK
from gpu_triage.host.edac import HOST_EDAC
from gpu_triage.host.file_systems import HOST_FILE_SYSTEMS
from gpu_triage.host.infiniband import HOST_INFINIBAND
from gpu_triage.host.kernel_log import HOST_KERNEL_LOG
from gpu_triage.host.memory import HOST_MEMORY
from gpu_triage.host.modules import MODULES
from gpu_triage.host.network import HOST_NETWORK
from gpu_triage.host.network_link import HOST_NETWORK_LINK
from gpu_triage.host.nfs import HOST_NFS
from gpu_triage.host.pcie_uplinks import PCIE_UPLINKS
from gpu_triage.host.platform import PLATFORM
from gpu_triage.host.pressure import HOST_PRESSURE
from gpu_triage.host.services import HOST_SERVICES
from gpu_triage.host.textfile import TEXTFILE
from gpu_triage.incidents import metrics as incidents
from gpu_triage.options.table import CollectorSwitch
from gpu_triage.processes.allocation import ALLOCATION
from gpu_triage.processes.container_names import CONTAINER_NAMES
from gpu_triage.processes.locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.processes.on_gpu import PROCESSES
from gpu_triage.processes.pods import POD_NAMES
from gpu_triage.processes.slurm_jobs import SLURM_JOBS
from gpu_triage.subjects import baseline, exporter, flight_recorder, judgement
from gpu_triage.subjects.contract import AnyCollector, AnyGpuCollector, AnyHostCollector, OwnSubject
from gpu_triage.subjects.metric import MetricSpec, Tier, declared_in
from gpu_triage.xid import metrics as xid

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
    NVLINK_QUALITY,
    C2C,
    ECC,
    RECOVERY,
    PROCESSES,
    ALLOCATION,
    PROCESS_MEMORY_LOCALITY,
    MIG,
    IDENTITY,
    MODES,
    POWER_PROFILES,
    VGPU_LICENSE,
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
    HOST_CPU_SETTINGS,
    HOST_PRESSURE,
    HOST_MEMORY,
    HOST_DISK,
    HOST_NFS,
    HOST_FILE_SYSTEMS,
    HOST_NETWORK,
    HOST_NETWORK_LINK,
    HOST_INFINIBAND,
    PCIE_UPLINKS,
    HOST_SERVICES,
    HOST_KERNEL_LOG,
    HOST_EDAC,
    TEXTFILE,
    POD_NAMES,
    CONTAINER_NAMES,
    SLURM_JOBS,
    ACCESS,
)

ALL_COLLECTORS: Final[tuple[AnyCollector, ...]] = (*GPU_COLLECTORS, *HOST_COLLECTORS)

COLLECTOR_SWITCHES: Final = (
    *(CollectorSwitch(c.name, c.about, c.default) for c in ALL_COLLECTORS if getattr(c, "needs", None) is None),
    CollectorSwitch(xid.NAME, xid.ABOUT, default=True),
)
"""Collectors with a switch ``--collector.<name>``; one that needs another option is enabled by that option."""


class Subject(NamedTuple):
    """A group of metrics: those of a collector, or of the sampler itself.

    Attributes:
        name: value of the `collector` label.
        about: what it reads, as a phrase.
        tier: sampling interval of its metrics, unless they have their own.
        metrics: in order of declaration.
    """

    name: str
    about: str
    tier: Tier
    metrics: tuple[MetricSpec, ...]


_OWN_SUBJECTS: Final[tuple[OwnSubject, ...]] = (
    presence,
    judgement,
    xid,
    incidents,
    baseline,
    flight_recorder,
    exporter,
)

SUBJECTS: Final = (
    *(Subject(own.NAME, own.ABOUT, own.TIER, declared_in(own.__name__)) for own in _OWN_SUBJECTS),
    *(Subject(c.name, c.about, c.tier, c.metrics) for c in ALL_COLLECTORS),
)

METRICS: Final = tuple(spec for subject in SUBJECTS for spec in subject.metrics)
"""All metrics."""
