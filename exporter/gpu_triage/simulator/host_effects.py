"""What can happen to a simulated host around its GPUs; see `effects` for what can happen to those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Between, Matching
from gpu_triage.host.services import FABRIC_MANAGER
from gpu_triage.kernel.pressure import RESOURCES
from gpu_triage.pcie import Generation, Width
from gpu_triage.simulator.schema import Amount, BusId, Count, CpuList, Ratio, one_of


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
class Blocked:
    """A thread of each of these processes waits in the kernel and does not run: the first, or another one of it."""

    pids: tuple[Count, ...]
    wait_channel: str = "0"
    first_thread: bool = True


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The cgroup of these processes, of version 2: its limits, and how often it comes to them.

    Attributes:
        cpus: its CPU limit; 0 for none.
        throttled: share of the periods in which the CPU limit stops it.
        memory_gib: its memory limit; 0 for none.
        memory_events_per_second: how often its tasks have to free memory at that limit.
        oom_kills: processes that the kernel kills at that limit when the event begins.
        cpu_pressure, io_pressure, memory_pressure: share of time that some of its tasks stall.
    """

    pids: tuple[Count, ...]
    cpus: Amount = 0.0
    throttled: Ratio = 0.0
    memory_gib: Amount = 0.0
    memory_events_per_second: Amount = 0.0
    oom_kills: Count = 0
    cpu_pressure: Ratio = 0.0
    io_pressure: Ratio = 0.0
    memory_pressure: Ratio = 0.0


@dataclass(frozen=True, slots=True)
class WrongClock:
    """The host's wall clock is wrong by so many seconds: less than 0 where it is behind. It is set at begin and end."""

    offset_seconds: Annotated[float, Between(-1e9, 1e9)]


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
class KernelMessages:
    """The kernel logs these messages, all of them so many times."""

    texts: tuple[str, ...]
    times: Count = 1


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """The ECC of the host's memory finds errors in a DIMM of a node, the first of its memory controller."""

    node: Count = 0
    corrected_per_hour: Amount = 0.0
    uncorrected: Count = 0


@dataclass(frozen=True, slots=True)
class CpuSettings:
    """How the kernel clocks the CPUs and takes the time, and which of them it gives no work by itself."""

    governor: str = "performance"
    frequency_ratio: Ratio = 0.9
    clock_source: str = "tsc"
    isolated: CpuList | None = None


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
    """What an NFS mount asks of its server, and the seconds that each request takes.

    Attributes:
        retransmissions_per_second: reads that are sent again.
        major_timeouts_per_second: reads that are not answered within all retries.
    """

    mount: str
    reads_per_second: Amount | None = None
    read_bytes_per_second: Amount | None = None
    read_seconds: Amount | None = None
    writes_per_second: Amount | None = None
    write_bytes_per_second: Amount | None = None
    write_seconds: Amount | None = None
    getattrs_per_second: Amount | None = None
    getattr_seconds: Amount | None = None
    retransmissions_per_second: Amount | None = None
    major_timeouts_per_second: Amount | None = None


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What is read from a Lustre file system, or without a name through GPUDirect Storage.

    Attributes:
        lustre: the file system's name.
        in_flight: reads of GPUDirect Storage that have begun and not ended.
    """

    lustre: Annotated[str, Matching(r"[a-z0-9]{0,8}", "the name of a Lustre file system")] = ""
    reads_per_second: Amount = 0.0
    read_bytes_per_second: Amount = 0.0
    read_seconds: Amount = 0.0
    in_flight: Count = 0


@dataclass(frozen=True, slots=True)
class Uplink:
    """The link between a bridge, a switch's own port, and the port above it runs at this width and generation."""

    bridge: BusId
    width: Width
    generation: Generation


@dataclass(frozen=True, slots=True)
class Network:
    """What a network interface does, and the InfiniBand port that it is, if it is one.

    Attributes:
        down: whether its link is down.
        speed_mbps: of its link, where that is less than the interface can do.
        link_errors_per_hour: symbol errors of the port.
        link_downs_per_hour: how often the link goes down, each time for less than anybody notices.
        timeouts_per_hour: requests of RDMA that nobody acknowledges.
    """

    device: str
    receive_bytes_per_second: Amount | None = None
    transmit_bytes_per_second: Amount | None = None
    errors_per_second: Amount | None = None
    drops_per_second: Amount | None = None
    down: bool | None = None
    speed_mbps: Count | None = None
    link_errors_per_hour: Amount | None = None
    link_downs_per_hour: Amount | None = None
    timeouts_per_hour: Amount | None = None


@dataclass(frozen=True, slots=True)
class ServiceStopped:
    """A service of systemd that this host needs does not run."""

    service: Annotated[str, one_of((FABRIC_MANAGER,))] = FABRIC_MANAGER


@dataclass(frozen=True, slots=True)
class Sxid:
    """An NVSwitch reports an error when the event begins.

    Attributes:
        code: the SXid.
        switch: which switch, by its place among those of the machine.
        fatal: whether the switch has to be reset.
        link: the link that it names.
    """

    code: Annotated[int, Between(1, 99_999)]
    switch: Count = 0
    fatal: bool = True
    link: Count = 30
