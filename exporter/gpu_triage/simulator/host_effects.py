"""What can happen to a simulated host around its GPUs; see `effects` for what can happen to those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Matching
from gpu_triage.host.pressure import RESOURCES
from gpu_triage.simulator.schema import Amount, Count, CpuList, Ratio, one_of


@dataclass(frozen=True, slots=True)
class MissingFunction:
    """One NVML function is not in the library (host-wide)."""

    function: str


@dataclass(frozen=True, slots=True)
class Start:
    """Processes of the scenario that run only while this holds."""

    pids: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Processes of the scenario that do not run while this holds."""

    pids: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class DriverNotLoaded:
    """The kernel module is not loaded."""


@dataclass(frozen=True, slots=True)
class LibraryMissing:
    """There is no libnvidia-ml.so.1."""


@dataclass(frozen=True, slots=True)
class DriverVersion:
    """Another version of the driver is installed; whoever uses NVML learns of it once the module is loaded anew."""

    version: Annotated[str, Matching(r"\d+\.\d+(\.\d+)?", 'a version such as "580.82.07"')]


@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """The driver was replaced underneath the loaded library."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """How the CPUs of a node (of all, without `node`) spend their time; the rest is idle."""

    node: Count | None = None
    user: Ratio | None = None
    nice: Ratio | None = None
    system: Ratio | None = None
    iowait: Ratio | None = None
    irq: Ratio | None = None
    softirq: Ratio | None = None
    steal: Ratio | None = None
    saturated_cpus: CpuList | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """Share of time that some, and all, tasks stall for a resource (PSI)."""

    resource: Annotated[str, one_of(RESOURCES)]
    some: Ratio
    full: Ratio = 0.0


@dataclass(frozen=True, slots=True)
class Swap:
    """Pages move between memory and swap."""

    in_bytes_per_second: Amount = 0.0
    out_bytes_per_second: Amount = 0.0
    used_gib: Amount | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """What a disk does: transfers, seconds each one waits, and the share of time it is busy."""

    device: str
    reads_per_second: Amount | None = None
    read_bytes_per_second: Amount | None = None
    read_seconds: Amount | None = None
    writes_per_second: Amount | None = None
    write_bytes_per_second: Amount | None = None
    write_seconds: Amount | None = None
    busy: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Nfs:
    """What an NFS mount asks of its server, and the seconds that each request takes."""

    mount: str
    reads_per_second: Amount | None = None
    read_bytes_per_second: Amount | None = None
    read_seconds: Amount | None = None
    writes_per_second: Amount | None = None
    write_bytes_per_second: Amount | None = None
    write_seconds: Amount | None = None
    getattrs_per_second: Amount | None = None
    getattr_seconds: Amount | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """What a network interface does."""

    device: str
    receive_bytes_per_second: Amount | None = None
    transmit_bytes_per_second: Amount | None = None
    errors_per_second: Amount | None = None
    drops_per_second: Amount | None = None
