"""What can happen to a simulated host outside its GPUs; see `effects` for the GPUs."""

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Pattern, Range
from gpu_triage.documents.pcie_values import Generation, Width
from gpu_triage.driver.kernel.procfs import RESOURCES
from gpu_triage.read.host.services import FABRIC_MANAGER
from gpu_triage_simulator.schema import Amount, BusId, Count, CpuList, Ratio, one_of


@dataclass(frozen=True, slots=True)
class MissingFunction:
    """One NVML function is missing from the library, host-wide."""

    function: str


@dataclass(frozen=True, slots=True)
class Start:
    """Processes of the scenario that run only while this is active."""

    pids: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Processes of the scenario that do not run while this is active."""

    pids: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class BlockedThreads:
    """A thread of each of these processes is blocked in the kernel: its first thread, or another one."""

    pids: tuple[Count, ...]
    wait_channel: str = "0"
    first_thread: bool = True


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Limits of the cgroup (v2) of these processes, and how often they are hit."""

    pids: tuple[Count, ...]
    cpus: Amount = 0.0  # its CPU limit; 0 for none
    throttled: Ratio = 0.0  # share of the periods in which the CPU limit throttles it
    memory_gib: Amount = 0.0  # its memory limit; 0 for none
    memory_events_per_second: Amount = 0.0  # how often its tasks must reclaim memory at that limit
    oom_kills: Count = 0  # processes that the kernel OOM-kills at that limit when the event starts
    # cpu_pressure, io_pressure, memory_pressure: share of time that some of its tasks stall
    cpu_pressure: Ratio = 0.0
    io_pressure: Ratio = 0.0
    memory_pressure: Ratio = 0.0
    written_bytes_per_second: Amount | None = None  # to disks; without it, the io controller is not enabled


@dataclass(frozen=True, slots=True)
class Writes:
    """How much each of these processes writes; without it, the exporter may not read that."""

    pids: tuple[Count, ...]
    bytes_per_second: Amount = 0.0


@dataclass(frozen=True, slots=True)
class WrongClock:
    """The host's wall clock is off by this much, negative if it is slow; it is stepped at the event's start and end."""

    offset_seconds: Annotated[float, Range(-1e9, 1e9)]


@dataclass(frozen=True, slots=True)
class DriverNotLoaded:
    """The kernel module is not loaded."""


@dataclass(frozen=True, slots=True)
class LibraryMissing:
    """There is no libnvidia-ml.so.1."""


@dataclass(frozen=True, slots=True)
class DriverVersion:
    """A different driver version is installed; NVML users see it once the kernel module is reloaded."""

    version: Annotated[str, Pattern(r"\d+\.\d+(\.\d+)?", 'a version such as "580.82.07"')]


@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """The driver was replaced while the old library is still loaded."""


@dataclass(frozen=True, slots=True)
class KernelMessages:
    """The kernel logs these messages, the whole list `times` times."""

    texts: tuple[str, ...]
    times: Count = 1


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """ECC errors in the host's memory: in a node, on the first DIMM of its memory controller."""

    node: Count = 0
    corrected_per_hour: Amount = 0.0
    uncorrected: Count = 0


@dataclass(frozen=True, slots=True)
class CpuSettings:
    """CPU governor and frequency, clock source, and isolated CPUs."""

    governor: str = "performance"
    frequency_ratio: Ratio = 0.9
    clock_source: str = "tsc"
    isolated: CpuList | None = None


@dataclass(frozen=True, slots=True)
class Cpu:
    """How the CPUs of a node (of all nodes, without `node`) spend their time; the rest is idle."""

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
    """Share of time that some tasks, or all, stall for a resource (PSI)."""

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
    """Activity of a disk: transfers, seconds each one takes, and the share of time the disk is busy."""

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
    """Requests of an NFS mount to its server, and the seconds that each request takes."""

    mount: str
    reads_per_second: Amount | None = None
    read_bytes_per_second: Amount | None = None
    read_seconds: Amount | None = None
    writes_per_second: Amount | None = None
    write_bytes_per_second: Amount | None = None
    write_seconds: Amount | None = None
    getattrs_per_second: Amount | None = None
    getattr_seconds: Amount | None = None
    retransmissions_per_second: Amount | None = None  # reads that are sent again
    major_timeouts_per_second: Amount | None = None  # reads that get no reply within all retries


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Reads from a Lustre file system, or through GPUDirect Storage if it has no name."""

    lustre: Annotated[str, Pattern(r"[a-z0-9]{0,8}", "the name of a Lustre file system")] = ""  # the file system's name
    reads_per_second: Amount = 0.0
    read_bytes_per_second: Amount = 0.0
    read_seconds: Amount = 0.0
    in_flight: Count = 0  # GPUDirect Storage reads in progress


@dataclass(frozen=True, slots=True)
class Uplink:
    """The link between a bridge (a switch's upstream port) and the port above it runs at this width and generation."""

    bridge: BusId
    width: Width
    generation: Generation


@dataclass(frozen=True, slots=True)
class Network:
    """Activity of a network interface, and of its InfiniBand port if it has one."""

    device: str
    receive_bytes_per_second: Amount | None = None
    transmit_bytes_per_second: Amount | None = None
    errors_per_second: Amount | None = None
    drops_per_second: Amount | None = None
    segments_resent_per_second: Amount | None = None  # TCP segments that the host sends again
    down: bool | None = None  # whether its link is down
    speed_mbps: Count | None = None  # current speed of its link, if below the interface's maximum
    link_errors_per_hour: Amount | None = None  # symbol errors of the port
    link_downs_per_hour: Amount | None = None  # link flaps too short to be seen as down
    timeouts_per_hour: Amount | None = None  # RDMA requests that are not acknowledged
    unaddressed: bool | None = None  # whether it has no IP address


@dataclass(frozen=True, slots=True)
class ServiceStopped:
    """A systemd service that this host needs is not running."""

    service: Annotated[str, one_of((FABRIC_MANAGER,))] = FABRIC_MANAGER


@dataclass(frozen=True, slots=True)
class Sxid:
    """An NVSwitch reports an error when the event starts."""

    code: Annotated[int, Range(1, 99_999)]  # the SXid
    switch: Count = 0  # index of the switch in the machine's list
    fatal: bool = True  # whether the switch has to be reset
    link: Count = 30  # number of the affected link
