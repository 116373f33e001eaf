"""A simulated host as described by a scenario: GPU models, the machine around them, and a timeline of events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from gpu_triage.documents import Pattern, Range
from gpu_triage.documents.pcie_values import Generation, Width
from gpu_triage.options.config import Setting
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.processes.listing import BOTH, KINDS
from gpu_triage_simulator.allocation import Allocation, Pod
from gpu_triage_simulator.host_effects import Cpu, Disk, Network, Nfs, Pressure
from gpu_triage_simulator.job import Job
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.model import Model
from gpu_triage_simulator.schema import Amount, BusId, Count, CpuList, Seconds, one_of

Version = Annotated[str, Pattern(r"\d+\.\d+(\.\d+)?", 'a version such as "580.82.07"')]
Uuid = Annotated[
    str, Pattern(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", 'a GPU UUID, "GPU-" and 32 hexadecimal digits')
]
Utilization = Annotated[float, Range(0.0, 1.0)]
# Both are parts of paths below the simulated file systems.
DeviceName = Annotated[str, Pattern(r"[A-Za-z][A-Za-z0-9._-]{0,30}", 'the name of a device, such as "eth0"')]
CgroupPath = Annotated[str, Pattern(r"/|(/(?!\.\.?(/|$))[^/\n]+)+", 'the path of a cgroup, such as "/system.slice"')]
AlertSelector = Annotated[
    str,
    Pattern(
        r'[A-Z][A-Za-z0-9]*(\{[a-z_]+="[^"]*"(, ?[a-z_]+="[^"]*")*\})?',
        """an alert and any of its labels, such as 'GpuLost' or 'GpuLost{gpu="6"}'""",
    ),
]
AlertName = Annotated[str, Pattern(r"[A-Z][A-Za-z0-9]*", 'the name of an alert, such as "GpuLost"')]
Bottleneck = Annotated[str, one_of(BOTTLENECK_CLASSES)]


@dataclass(frozen=True, slots=True)
class Driver:
    version: Version
    cuda: Annotated[str, Pattern(r"\d+\.\d+", 'a CUDA version such as "12.4"')]
    modules: tuple[str, ...] = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")

    @property
    def branch(self) -> int:
        """The driver's branch: 550 of 550.54.14."""
        return int(self.version.split(".")[0])

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))


@dataclass(frozen=True, slots=True)
class Node:
    cpus: CpuList
    socket: Count | None = None  # of its processor; by default each node is a processor of its own


@dataclass(frozen=True, slots=True)
class Slot:
    """Location of a PCIe device."""

    bus_id: BusId  # the device's address
    node: Annotated[int, Range(-1, 63)]  # its NUMA node, -1 if the firmware does not report it
    ports: tuple[BusId, ...] = ()  # addresses of the bridges above it, root port first; none in a virtual machine
    # generation, width: the maximum of the slot
    generation: Generation = 5
    width: Width = 16


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface; `infiniband` is the name of its RDMA device, if it has one, which may be of RoCE."""

    name: DeviceName
    slot: Slot
    speed_mbps: Count
    load: Network | None = None
    infiniband: DeviceName | None = None
    roce: bool = False


@dataclass(frozen=True, slots=True)
class DiskDevice:
    name: DeviceName
    slot: Slot
    load: Disk | None = None
    partitions: Annotated[int, Range(0, 16)] = 1
    size_gib: Count = 3576


@dataclass(frozen=True, slots=True)
class NfsMount:
    """A file system mounted from an NFS server: `export` is ``server:/path``, `mount` the mount point."""

    mount: Annotated[str, Pattern(r"/[^\n]*", "an absolute path")]
    export: str
    load: Nfs | None = None


@dataclass(frozen=True, slots=True)
class ScenarioHost:
    node: tuple[Node, ...]
    # memory_gib, memory_available_gib, swap_gib, swap_used_gib: as in free(1)
    memory_gib: Amount
    memory_available_gib: Amount
    swap_gib: Amount = 0.0
    swap_used_gib: Amount = 0.0
    iommu: bool = False  # whether the kernel has an IOMMU active
    context_switches_per_second: Amount = 40_000.0  # of the whole host
    cpu: Cpu = Cpu(user=0.05, system=0.02)  # noqa: RUF009 - frozen
    pressure: tuple[Pressure, ...] = ()
    nic: tuple[Nic, ...] = ()
    disk: tuple[DiskDevice, ...] = ()
    nfs: tuple[NfsMount, ...] = ()
    virtual: bool = False  # whether it is a virtual machine, which its GPUs are passed through to
    nvswitch: tuple[Slot, ...] = ()  # NVSwitches on the PCI bus. If there are any, systemd runs a fabric manager.


@dataclass(frozen=True, slots=True)
class Gpu:
    model: Model
    slot: Slot
    load: Load
    # uuid, serial: generated if not given
    uuid: Uuid = ""
    serial: str = ""
    ambient_celsius: float = 28.0  # temperature at its air inlet
    power_limit_watts: Amount | None = None  # enforced limit; by default the model's
    sm_target_mhz: Count | None = None  # application clock; by default the model's
    boost_mhz: Count | None = None  # the maximum clock of this particular chip; by default the model's
    persistence_mode: bool = True
    # corrected_errors, uncorrected_errors: aggregate ECC errors before the scenario
    corrected_errors: Count = 0
    uncorrected_errors: Count = 0
    powered_seconds: Seconds = 86_400  # how long the driver has been loaded, so that counters do not start at zero
    other_memory_mib: Count = 0  # device memory in use by no process of the scenario
    # how many of the model's NVLink links are connected; by default, all that need no bridge
    nvlinks_connected: Count | None = None
    minor_number: Count | None = None  # N of its device file /dev/nvidiaN; by default its index


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU that is inserted into the slot of GPU `index`, or reset in it, at the scenario time `since`."""

    index: int
    since: int
    gpu: Gpu
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    gpu: Count
    pid: Annotated[int, Range(1, 4_194_304)]
    name: Annotated[str, Pattern(r"[^\n/]{1,15}", "a command name of at most 15 characters")]
    memory_mib: Count
    # gi, ci: its MIG device; the process is only on the GPU while that exists, or without one, while MIG is off
    gi: Annotated[int, Range(0, 14)] | None = None
    ci: Annotated[int, Range(0, 6)] = 0
    sm: Utilization = 0.0  # its share of the GPU's utilization
    memory: Utilization = 0.0
    uid: Count = 1000
    # as in nvidia-smi: C, G, or C+G, which is in both of the driver's lists; or an MPS client
    type: Annotated[str, one_of((*KINDS, BOTH))] = "compute"
    cpus: CpuList | None = None  # CPUs it may run on; by default all
    cgroup: CgroupPath = "/user.slice/user-1000.slice/session-1.scope"  # in ``/proc/<pid>/cgroup``, after ``0::``
    memory_node: Count | None = None  # NUMA node of its memory; by default spread evenly over the nodes of its CPUs
    pod: Pod | None = None  # the container that the kubelet assigned the GPU to
    thread: str = ""  # name of its second thread; without it, its threads are not seen


@dataclass(frozen=True, slots=True)
class Event:
    """An effect from `at` until `until` (seconds of scenario time; None: indefinitely), on GPUs by index.

    `number` is the index of the event in the file, shared by all occurrences of a repeated one.
    """

    at: int
    until: int | None
    gpus: tuple[int, ...]
    effect: Any
    number: int = 0

    def active(self, seconds: float) -> bool:
        return self.at <= seconds and (self.until is None or seconds < self.until)


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident from before the scenario, which is in the ledger of this host's exporter."""

    # an Xid, or "lost", "uncorrected" or "reset"
    kind: Annotated[str, Pattern(r"[0-9]{1,3}|lost|uncorrected|reset", 'an Xid such as "79", "lost", "uncorrected"')]
    gpu: Count  # index of the slot
    days_ago: Annotated[float, Range(0.1, 365)]  # days before the scenario starts
    card: Uuid | None = None  # UUID of the card that was there then; by default the current one


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected results `at` a scenario time."""

    at: Seconds
    # all firing alerts, except the watchdog alert that always fires; one without labels matches any number of alerts of
    # that name
    alerts: tuple[AlertSelector, ...] = ()
    quiet: bool = False  # confirms that `alerts` is empty on purpose
    # names of alerts that this scenario comes close to, but that must never fire in it
    near_misses: tuple[AlertName, ...] = ()
    bottleneck: dict[str, Bottleneck] = field(default_factory=dict)  # class of each GPU, by index
    # what ``gpu-triage check`` reports, by GPU index or ``host``
    findings: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExporterView:
    """What the exporter can see from inside its container."""

    host_pids: bool = True  # whether it shares the host's PID namespace; otherwise the driver lists no processes
    host_procfs: bool = True  # whether it has the host's ``/proc``, as mounted by the chart, or the container's own


@dataclass(frozen=True, slots=True)
class Target:
    """Labels that a scrape attaches to every series of this host."""

    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    description: str
    driver: Driver
    machine: ScenarioHost
    gpus: tuple[Gpu, ...]  # at its start
    processes: tuple[Process, ...]
    events: tuple[Event, ...]
    expectations: tuple[Expectation, ...]
    seed: int  # of all noise
    replacements: tuple[Card, ...] = ()  # cards that are inserted or reset later, in time order
    target: Target = field(default_factory=Target)  # labels added by a scrape
    # configuration of this host's exporter, overridden by flags, variables and file
    exporter_options: Mapping[str, Setting] = field(default_factory=dict)
    exporter_view: ExporterView = field(default_factory=ExporterView)  # what that exporter can see
    incidents: tuple[Incident, ...] = ()  # from the weeks before
    allocations: tuple[Allocation, ...] = ()  # allocated GPUs, besides those of the processes' pods
    jobs: tuple[Job, ...] = ()  # with the ranks that are on other hosts
    peers: Mapping[str, Scenario] = field(default_factory=dict)  # the other hosts of these jobs, if they are simulated

    @property
    def last_seconds(self) -> float:
        """Scenario time after which nothing changes, and nothing is expected."""
        changes: list[float] = [moment for event in self.events for moment in (event.at, event.until or 0)]
        changes += [at for job in self.jobs for each in job.episodes for at in (each.at, each.until) if at < math.inf]
        return max((*changes, *(expectation.at for expectation in self.expectations)), default=0)

    def card(self, index: int, seconds: float) -> Gpu:
        cards = [card.gpu for card in self.replacements if card.index == index and card.since <= seconds]
        return cards[-1] if cards else self.gpus[index]

    def card_since(self, index: int, seconds: float, *, reset: bool = False) -> int:
        """Scenario time at which the GPU in this slot was inserted, or last reset; 0 for the initial one."""
        cards = (each for each in self.replacements if each.index == index and each.since <= seconds)
        return max((each.since for each in cards if reset or not each.reset), default=0)


def cpu_numbers(cpus: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


def cpu_count(scenario: Scenario) -> int:
    return sum(len(cpu_numbers(node.cpus)) for node in scenario.machine.node)
