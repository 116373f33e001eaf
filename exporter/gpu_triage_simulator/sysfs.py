"""Contents of the simulated sysfs: PCI devices and their bridges, NUMA nodes, networks, disks, and cgroups."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from gpu_triage.documents.pcie_values import TRANSFER_RATES
from gpu_triage.driver.kernel.procfs import RESOURCES
from gpu_triage.read.host.services import FABRIC_MANAGER
from gpu_triage.read.processes.facts import job_level
from gpu_triage_simulator import host_effects
from gpu_triage_simulator.gpu_state import GpuState
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.pcie_faults import pcie_errors, uplinks
from gpu_triage_simulator.procfs import FABRIC_MANAGER_PID
from gpu_triage_simulator.scenario import Event, Gpu, Node, Scenario, ScenarioHost, Slot, cpu_count, cpu_numbers

_BRIDGE_CLASS, _NETWORK_CLASS, _NVME_CLASS, _SWITCH_CLASS = "0x060400", "0x020000", "0x010802", "0x068000"
_NVIDIA, _MELLANOX, _SAMSUNG, _INTEL = "0x10de", "0x15b3", "0x144d", "0x8086"
_IOMMU_GROUP: Final = "kernel/iommu_groups/0"
_LINKS: Final = {200_000: "HDR", 400_000: "NDR"}
_BOARDS: Final = {200_000: "MT_0000000223", 400_000: "MT_0000000838"}
_QUIET_COUNTERS: Final = (
    "counters/link_error_recovery",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "counters/port_xmit_discards",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/out_of_buffer",
)
"""Error counters that stay 0 on a healthy InfiniBand port."""
_DEAD_WIDTH: Final = 63
"""Width field of a register that reads all ones because the device no longer responds."""
_AER_CORRECTABLE: Final = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
_AER_OTHER: Final = (
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
)


class _AerCounts(NamedTuple):
    correctable: int
    nonfatal: int
    fatal: int


_NO_ERRORS: Final = _AerCounts(0, 0, 0)


class _Endpoint(NamedTuple):
    slot: Slot
    vendor: str
    device: str
    pci_class: str
    driver: str
    max_generation: int
    max_width: int


def path_of(slot: Slot) -> str:
    """Directory of a device below sysfs: its root, its bridges, itself."""
    return "/".join([f"devices/{host_bridge(slot)}", *slot.ports, slot.bus_id])


def host_bridge(slot: Slot) -> str:
    """The host bridge above a device, by its sysfs name: ``pci0000:15`` for root port 0000:15:01.0."""
    first = slot.ports[0] if slot.ports else slot.bus_id
    return f"pci{first[:7]}"


def links(scenario: Scenario) -> dict[str, str]:
    found: dict[str, str] = {}
    for endpoint in _endpoints(scenario, scenario.gpus):
        path = path_of(endpoint.slot)
        found[f"bus/pci/devices/{endpoint.slot.bus_id}"] = path
        found[f"{path}/driver"] = f"bus/pci/drivers/{endpoint.driver}"
        found[f"{path}/subsystem"] = "bus/pci"
        if scenario.machine.iommu:
            found[f"{path}/iommu_group"] = _IOMMU_GROUP
        for port, port_path in _ports(endpoint.slot):
            found[f"bus/pci/devices/{port}"] = port_path
            found[f"{port_path}/subsystem"] = "bus/pci"
    for node in scenario.machine.node:
        cpus = cpu_numbers(node.cpus)
        policy = f"devices/system/cpu/cpufreq/policy{cpus[0]}"
        found |= {f"devices/system/cpu/cpu{cpu}/cpufreq": policy for cpu in cpus}
    for nic in scenario.machine.nic:
        path = path_of(nic.slot)
        found[f"class/net/{nic.name}"] = f"{path}/net/{nic.name}"
        found[f"{path}/net/{nic.name}/device"] = path
        if nic.infiniband:
            found[f"class/infiniband/{nic.infiniband}"] = f"{path}/infiniband/{nic.infiniband}"
            found[f"{path}/infiniband/{nic.infiniband}/device"] = path
    for i, disk in enumerate(scenario.machine.disk):
        controller = f"{path_of(disk.slot)}/nvme/nvme{i}"
        block = f"{controller}/{disk.name}"
        found[f"block/{disk.name}"] = found[f"class/block/{disk.name}"] = block
        found[f"{block}/device"] = controller
        found[f"{controller}/device"] = path_of(disk.slot)
        for part in range(1, disk.partitions + 1):
            found[f"class/block/{disk.name}p{part}"] = f"{block}/{disk.name}p{part}"
    return found


def directories(scenario: Scenario) -> list[str]:
    """Directories that exist even if empty."""
    iommu = ("class/iommu/dmar0", _IOMMU_GROUP) if scenario.machine.iommu else ("class/iommu",)
    return [*iommu, "kernel/iommu_groups", "class/infiniband", "class/net"]


def files(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of every file, by its path below sysfs; the host must be at `seconds` and its lock held."""
    scenario = host.scenario
    found = {"devices/system/cpu/online": f"0-{cpu_count(scenario) - 1}\n"}
    found |= node_files(scenario.machine)
    if scenario.machine.iommu:
        found[f"{_IOMMU_GROUP}/type"] = "DMA-FQ\n"
    states = {gpu.gpu.slot.bus_id: gpu for gpu in host.gpus}
    for raw in _endpoints(scenario, [gpu.gpu for gpu in host.gpus]):
        endpoint, state = raw, states.get(raw.slot.bus_id)
        generation = min(endpoint.slot.generation, endpoint.max_generation)
        width = min(endpoint.slot.width, endpoint.max_width)
        errors, port_errors = _NO_ERRORS, _NO_ERRORS
        alive = True
        if state is not None:
            endpoint = raw._replace(slot=state.conditions.slot)
            alive = not host.timeline.off_the_bus(state.index, seconds)
            generation, width = state.link_generation, state.link_width
            errors, port_errors = _aer(host, state, "gpu"), _aer(host, state, "port")
        path = path_of(endpoint.slot)
        if state is None or not state.conditions.removed:
            found |= _device(endpoint, scenario, path, (generation, width) if alive else None)
            found |= _aer_files(path, errors)
        for depth, (_, port_path) in enumerate(_ports(endpoint.slot), start=1):
            last = depth == len(endpoint.slot.ports)
            found |= _bridge(endpoint, scenario, port_path, (generation, width) if last else None)
            if last:
                found |= _aer_files(port_path, port_errors)
    found |= _uplinks(host, seconds)
    found |= _networks(host, seconds) | memory_controllers(host, seconds) | cpu_settings(host, seconds)
    found |= _cgroups(host, seconds)
    if scenario.machine.nvswitch:
        stopped = host.timeline.host_active(host_effects.ServiceStopped, seconds)
        processes = "" if stopped else f"{FABRIC_MANAGER_PID}\n"
        found[f"fs/cgroup/system.slice/{FABRIC_MANAGER}.service/cgroup.procs"] = processes
    for i, disk in enumerate(scenario.machine.disk):
        block = f"{path_of(disk.slot)}/nvme/nvme{i}/{disk.name}"
        found[f"{block}/size"] = f"{disk.size_gib * 2**21}\n"
        found[f"{block}/queue/rotational"] = "0\n"
        for part in range(1, disk.partitions + 1):
            found[f"{block}/{disk.name}p{part}/partition"] = f"{part}\n"
    return found


def _uplinks(host: SimulatedHost, seconds: float) -> dict[str, str]:
    chains = [dict(_ports(gpu.slot)) for gpu in host.scenario.gpus]
    return {
        f"{path}/current_link_{name}": f"{value}\n"
        for path, uplink in uplinks(host.timeline, seconds, chains)
        for name, value in (("width", uplink.width), ("speed", _speed(uplink.generation)))
    }


def removed(host: SimulatedHost, seconds: float) -> frozenset[str]:
    """Links that are missing now: of GPUs removed from the bus, and to a driver that is not loaded."""
    gone = {f"bus/pci/devices/{gpu.gpu.slot.bus_id}" for gpu in host.gpus if gpu.conditions.removed}
    if host.timeline.host_active(host_effects.DriverNotLoaded, seconds):
        gone |= {f"{path_of(gpu.gpu.slot)}/driver" for gpu in host.gpus}
    return frozenset(gone)


def _endpoints(scenario: Scenario, gpus: Iterable[Gpu]) -> Iterator[_Endpoint]:
    for gpu in gpus:
        model = gpu.model
        device, pci_class = f"0x{model.pci_device_id >> 16:04x}", f"0x{model.pci_class:06x}"
        yield _Endpoint(gpu.slot, _NVIDIA, device, pci_class, "nvidia", model.pcie.generation, model.pcie.width)
    for nic in scenario.machine.nic:
        yield _Endpoint(nic.slot, _MELLANOX, "0x1021", _NETWORK_CLASS, "mlx5_core", 5, 16)
    for slot in scenario.machine.nvswitch:
        yield _Endpoint(slot, _NVIDIA, "0x22a3", _SWITCH_CLASS, "nvidia-nvswitch", 4, 2)
    for disk in scenario.machine.disk:
        yield _Endpoint(disk.slot, _SAMSUNG, "0xa80a", _NVME_CLASS, "nvme", 4, 4)


def _ports(slot: Slot) -> Iterator[tuple[str, str]]:
    """Every bridge above a device with its directory, root port first."""
    path = f"devices/{host_bridge(slot)}"
    for port in slot.ports:
        path = f"{path}/{port}"
        yield port, path


def _device(endpoint: _Endpoint, scenario: Scenario, path: str, link: tuple[int, int] | None) -> dict[str, str]:
    values = {
        "vendor": endpoint.vendor,
        "device": endpoint.device,
        "class": endpoint.pci_class,
        "max_link_speed": _speed(endpoint.max_generation),
        "max_link_width": str(endpoint.max_width),
        "current_link_speed": _speed(link[0]) if link else "Unknown",
        "current_link_width": str(link[1] if link else _DEAD_WIDTH),
    }
    return {f"{path}/{name}": f"{value}\n" for name, value in (values | _place(endpoint.slot, scenario)).items()}


def _bridge(endpoint: _Endpoint, scenario: Scenario, path: str, link: tuple[int, int] | None) -> dict[str, str]:
    """A bridge; `link` is its downstream link if it is the slot's own port."""
    slot = endpoint.slot
    generation, width = link or (slot.generation, slot.width)
    values = {
        "vendor": _INTEL,
        "device": "0x352a",
        "class": _BRIDGE_CLASS,
        "max_link_speed": _speed(slot.generation),
        "max_link_width": str(slot.width),
        "current_link_speed": _speed(generation),
        "current_link_width": str(width),
    }
    return {f"{path}/{name}": f"{value}\n" for name, value in (values | _place(slot, scenario)).items()}


def _place(slot: Slot, scenario: Scenario) -> dict[str, str]:
    nodes = scenario.machine.node
    cpus = nodes[slot.node].cpus if slot.node >= 0 else f"0-{cpu_count(scenario) - 1}"
    return {"numa_node": str(slot.node), "local_cpulist": cpus}


def _speed(generation: int) -> str:
    return f"{TRANSFER_RATES[generation]:.1f} GT/s PCIe"


def _aer(host: SimulatedHost, state: GpuState, end: Literal["gpu", "port"]) -> _AerCounts:
    rates = ("correctable_per_hour", "nonfatal_per_hour", "fatal_per_hour")
    return _AerCounts(*(pcie_errors(host.timeline, state, rate, end) for rate in rates))


def _aer_files(path: str, errors: _AerCounts) -> dict[str, str]:
    def counts(names: tuple[str, ...], hit: str, count: int, total: str) -> str:
        lines = [f"{name} {count if name == hit else 0}" for name in names]
        return "\n".join([*lines, f"TOTAL_ERR_{total} {count}", ""])

    return {
        f"{path}/aer_dev_correctable": counts(_AER_CORRECTABLE, "BadTLP", errors.correctable, "COR"),
        f"{path}/aer_dev_nonfatal": counts(_AER_OTHER, "CmpltTO", errors.nonfatal, "NONFATAL"),
        f"{path}/aer_dev_fatal": counts(_AER_OTHER, "SDES", errors.fatal, "FATAL"),
    }


def _networks(host: SimulatedHost, seconds: float) -> dict[str, str]:
    found: dict[str, str] = {}
    counters = host.host.counters(seconds)
    for nic in host.scenario.machine.nic:
        network = host.host.network(nic, seconds)
        speed = 0 if network.down else network.speed_mbps or nic.speed_mbps
        downs = int(counters[f"net.{nic.name}.link_downs"]) + host.host.times_down(nic, seconds)
        values = {
            "speed": speed or -1,
            "operstate": "up" if speed else "down",
            "carrier": 1 if speed else 0,
            # A link that changes its speed goes down and up, too briefly to be seen as down.
            "carrier_changes": 2 * (downs + host.host.speed_changes(nic, seconds)) + bool(speed),
            "carrier_down_count": downs,
            "dev_port": 0,
            "type": 1,
        }
        path = f"{path_of(nic.slot)}/net/{nic.name}"
        found |= {f"{path}/{name}": f"{value}\n" for name, value in values.items()}
        if nic.infiniband:
            adapter = f"{path_of(nic.slot)}/infiniband/{nic.infiniband}"
            found[f"{adapter}/board_id"] = f"{_BOARDS.get(nic.speed_mbps, 'MT_0000000008')}\n"
            port = {
                # A port that is down reports its minimum rate.
                "rate": f"{speed // 1000} Gb/sec (4X {_LINKS.get(speed, 'EDR')})" if speed else "10 Gb/sec (4X SDR)",
                "state": "4: ACTIVE" if speed else "1: DOWN",
                "phys_state": "5: LinkUp" if speed else "2: Polling",
                "link_layer": "Ethernet" if nic.roce else "InfiniBand",
                # The ports count in four-byte words.
                "counters/port_rcv_data": int(counters[f"net.{nic.name}.receive_bytes"]) // 4,
                "counters/port_xmit_data": int(counters[f"net.{nic.name}.transmit_bytes"]) // 4,
                "counters/symbol_error": int(counters[f"net.{nic.name}.link_errors"]),
                "counters/link_downed": min(downs, 255),
                **dict.fromkeys(_QUIET_COUNTERS, 0),
                "hw_counters/local_ack_timeout_err": int(counters[f"net.{nic.name}.timeouts"]),
            }
            if nic.roce:
                # Each address has an entry of either version, the link-local one before that of the network. A kernel
                # rejects reads of empty ones.
                both = ("IB/RoCE v1", "RoCE v2")
                entries = enumerate((*both, *(("", "") if network.unaddressed else both)))
                port |= {f"gid_attrs/types/{number}": version for number, version in entries}
            found |= {f"{adapter}/ports/1/{name}": f"{value}\n" for name, value in port.items()}
    return found


_NODES = "devices/system/node"
_HIGHEST_KILOHERTZ: Final = 3_800_000


def node_files(machine: ScenarioHost) -> dict[str, str]:
    """Text of every node's files, by path below sysfs."""
    nodes = machine.node
    found = {f"{_NODES}/online": f"0-{len(nodes) - 1}\n" if nodes[1:] else "0\n"}
    for number, node in enumerate(nodes):
        path = f"{_NODES}/node{number}"
        distances = (_distance(node, other) for other in nodes)
        found |= {
            f"{path}/cpulist": f"{node.cpus}\n",
            f"{path}/distance": f"{' '.join(map(str, distances))}\n",
            f"{path}/meminfo": _meminfo(machine, number),
            # All allocations are local.
            f"{path}/numastat": "numa_hit 70000000\nnuma_miss 0\nnuma_foreign 0\n",
        }
    return found


def _distance(node: Node, other: Node) -> int:
    """Distance as reported by the firmware of an EPYC host."""
    if node is other:
        return 10
    return 12 if node.socket is not None and node.socket == other.socket else 32


def _meminfo(machine: ScenarioHost, number: int) -> str:
    """Memory is split evenly between the nodes."""
    gibibytes = {"MemTotal": machine.memory_gib, "MemFree": machine.memory_available_gib * 0.3}
    shares = {f"{name}:": int(total * 2**20 / len(machine.node)) for name, total in gibibytes.items()}
    return "".join(f"Node {number} {name:<16}{share:>12} kB\n" for name, share in shares.items())


def cpu_settings(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """CPU frequency settings, one policy per node, and the clock source."""
    events = host.timeline.host(host_effects.CpuSettings)
    settings = next((each for event, each in events if event.active(seconds)), host_effects.CpuSettings())
    found = {
        "devices/system/clocksource/clocksource0/current_clocksource": f"{settings.clock_source}\n",
        "devices/system/cpu/isolated": f"{settings.isolated or ''}\n",
    }
    for node in host.scenario.machine.node:
        cpus = cpu_numbers(node.cpus)
        policy = f"devices/system/cpu/cpufreq/policy{cpus[0]}"
        found |= {
            f"{policy}/scaling_governor": f"{settings.governor}\n",
            f"{policy}/scaling_cur_freq": f"{round(_HIGHEST_KILOHERTZ * settings.frequency_ratio)}\n",
            f"{policy}/cpuinfo_max_freq": f"{_HIGHEST_KILOHERTZ}\n",
        }
        throttles = f"devices/system/cpu/cpu{cpus[0]}/thermal_throttle"
        found |= {f"{throttles}/{name}": "0\n" for name in ("package_throttle_count", "package_throttle_total_time_ms")}
    return found


def memory_controllers(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Memory controllers, one per node with one DIMM each, and their EDAC error counts."""
    found: dict[str, str] = {}
    for node in range(len(host.scenario.machine.node)):
        corrected = uncorrected = 0
        for event, errors in host.timeline.host(host_effects.MemoryErrors):
            if errors.node == node and seconds >= event.at:
                until = seconds if event.until is None else min(seconds, event.until)
                corrected += int(errors.corrected_per_hour * (until - event.at) / 3600)
                uncorrected += errors.uncorrected
        path = f"devices/system/edac/mc/mc{node}"
        found |= {
            f"{path}/mc_name": f"Skylake Socket#{node} IMC#0\n",
            f"{path}/ce_count": f"{corrected}\n",
            f"{path}/ue_count": f"{uncorrected}\n",
            f"{path}/dimm0/dimm_label": f"CPU_SrcID#{node}_MC#0_Chan#0_DIMM#0\n",
            f"{path}/dimm0/dimm_ce_count": f"{corrected}\n",
            f"{path}/dimm0/dimm_ue_count": f"{uncorrected}\n",
        }
    return found


_PERIODS_PER_SECOND: Final = 10
_THREADS: Final = 4
"""CPUs that are throttled in a cgroup at the same time."""


def _cgroups(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of every cgroup file, by its path below sysfs."""
    found: dict[str, str] = {}
    cgroups = {process.pid: process.cgroup for process in host.scenario.processes}
    by_path: dict[str, list[tuple[Event, host_effects.Cgroup]]] = {}
    for event, effect in host.timeline.host(host_effects.Cgroup):
        for path in dict.fromkeys(job_level(cgroups[pid]) for pid in effect.pids):
            by_path.setdefault(path, []).append((event, effect))
    if by_path:
        found["fs/cgroup/cgroup.controllers"] = "cpuset cpu io memory pids\n"
    for path, effects in by_path.items():
        texts = {**_limits(effects, seconds), **_counts(effects, seconds)}
        found |= {f"fs/cgroup{path}/{name}": text for name, text in texts.items()}
        for pid, of in cgroups.items():
            if job_level(of) == path:
                found[f"fs/cgroup{of}/cgroup.procs"] = f"{pid}\n"
    return found


def _limits(effects: list[tuple[Event, host_effects.Cgroup]], seconds: float) -> dict[str, str]:
    cpus = max((effect.cpus for event, effect in effects if event.active(seconds)), default=0.0)
    memory_gib = max((effect.memory_gib for event, effect in effects if event.active(seconds)), default=0.0)
    return {
        "cpu.max": f"{int(cpus * 100_000) if cpus else 'max'} 100000\n",
        "memory.max": f"{int(memory_gib * 2**30) if memory_gib else 'max'}\n",
        "memory.high": "max\n",
    }


def _counts(effects: list[tuple[Event, host_effects.Cgroup]], seconds: float) -> dict[str, str]:
    lasted = [(_lasted(event, seconds), effect) for event, effect in effects]
    periods = sum(int(length * _PERIODS_PER_SECOND) for length, effect in lasted if effect.cpus)
    throttled = sum(int(length * _PERIODS_PER_SECOND * effect.throttled) for length, effect in lasted)
    reached = sum(int(length * effect.memory_events_per_second) for length, effect in lasted)
    killed = sum(effect.oom_kills for event, effect in effects if event.at <= seconds)
    texts = {
        "cpu.stat": (
            f"usage_usec {int(seconds * 1e6)}\nuser_usec {int(seconds * 1e6)}\nsystem_usec 0\n"
            f"nr_periods {periods}\nnr_throttled {throttled}\n"
            f"throttled_usec {throttled * _THREADS * 1_000_000 // _PERIODS_PER_SECOND // 2}\n"
        ),
        "memory.events": f"low 0\nhigh 0\nmax {reached}\noom {killed}\noom_kill {killed}\n",
    }
    written = [length * each for length, effect in lasted if (each := effect.written_bytes_per_second) is not None]
    if written:
        texts["io.stat"] = f"259:0 rbytes=0 wbytes={int(sum(written))} rios=0 wios=0 dbytes=0 dios=0\n"
    for resource in RESOURCES:
        total = sum(length * getattr(effect, f"{resource}_pressure") for length, effect in lasted)
        texts[f"{resource}.pressure"] = "".join(
            f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={int(share * total * 1e6)}\n"
            for kind, share in (("some", 1.0), ("full", 0.5))
        )
    return texts


def _lasted(event: Event, seconds: float) -> float:
    return max(0.0, (seconds if event.until is None else min(seconds, event.until)) - event.at)
