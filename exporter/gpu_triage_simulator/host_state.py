"""The state of the host outside its GPUs: CPUs, memory, disks and networks.

Between two events all rates are constant, so counters are exact sums of rate times time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.driver.kernel.procfs import KINDS, RESOURCES
from gpu_triage.read.host.cpu import MODES
from gpu_triage_simulator import host_effects
from gpu_triage_simulator.conditions import Timeline, overlay
from gpu_triage_simulator.scenario import Nic, Scenario, cpu_numbers

_CALM_CPU: Final = host_effects.Cpu(user=0.0, nice=0.0, system=0.0, iowait=0.0, irq=0.0, softirq=0.0, steal=0.0)
_FULL_CPU: Final = host_effects.Cpu(user=0.98, nice=0.0, system=0.02, iowait=0.0, irq=0.0, softirq=0.0, steal=0.0)
_PAGE_BYTES: Final = 4096
_HOUR_SECONDS: Final = 3600
_FULL_DISK: Final = 0.9
_FULL_DISK_QUEUE: Final = 8
_FULL_DISK_SECONDS: Final = 0.02
"""Busy share from which a disk is saturated, its queue depth then, and seconds per request."""


@dataclass(frozen=True, slots=True)
class CpuGroup:
    """CPUs of one node with the same load throughout the scenario."""

    node: int
    saturated: tuple[bool, ...]  # for each segment of the timeline, whether they are fully busy
    cpus: tuple[int, ...]


class HostState:
    """Rates and counters of the host by name, such as ``disk.nvme0n1.reads``; see `rates` for the list.

    Attributes:
        cpu_groups: every CPU of the host, in groups with counters ``cpu.<group>.<mode>``.
    """

    def __init__(self, scenario: Scenario, timeline: Timeline, uptime_seconds: float) -> None:
        self._scenario = scenario
        self._timeline = timeline
        self.cpu_groups = self._group_cpus()
        self._rates = [self._resolve(edge) for edge in timeline.edges]
        names = self._rates[0]
        total = {name: rate * uptime_seconds for name, rate in (names | self._cpus_before()).items()}
        self._totals = [total]
        for i in range(1, len(self._rates)):
            length = timeline.edges[i] - timeline.edges[i - 1]
            total = {name: total[name] + self._rates[i - 1][name] * length for name in names}
            self._totals.append(total)

    def _cpus_before(self) -> dict[str, float]:
        """CPU rates from boot until the scenario starts: no CPU counts as saturated in that time."""
        plain = {node: self._plain(node, self._timeline.edges[0]) for node in {group.node for group in self.cpu_groups}}
        return {
            f"cpu.{number}.{mode}": plain[group.node][mode]
            for number, group in enumerate(self.cpu_groups)
            for mode in MODES
        }

    def rates(self, seconds: float) -> Mapping[str, float]:
        """Growth of every counter per second at this scenario time.

        Shape: ``cpu.<group>.<mode>`` in CPU seconds of one CPU, ``psi.<resource>.<some|full>`` in
        seconds, ``disk.<name>.<reads|read_bytes|read_seconds|writes|write_bytes|write_seconds|busy>``,
        ``net.<name>.<receive_bytes|transmit_bytes|errors|drops|resent|link_errors|link_downs|timeouts>``,
        ``nfs.<mount>.<reads|read_bytes|read_seconds|writes|write_bytes|write_seconds|getattrs|getattr_seconds>``,
        ``swap.<in|out>`` in pages, and
        ``context_switches``.
        """
        return self._rates[self._timeline.segment(seconds)]

    def counters(self, seconds: float) -> Mapping[str, float]:
        """Every counter at this scenario time, since boot; names as in `rates`."""
        segment = self._timeline.segment(seconds)
        since = seconds - self._timeline.edges[segment]
        rates = self._rates[segment]
        return {name: total + rates[name] * since for name, total in self._totals[segment].items()}

    def swap_used_bytes(self, seconds: float) -> float:
        used = self._scenario.machine.swap_used_gib
        for event, swap in self._timeline.host(host_effects.Swap):
            if event.active(seconds) and swap.used_gib is not None:
                used = swap.used_gib
        return used * 2**30

    def _resolve(self, seconds: float) -> dict[str, float]:
        rates: dict[str, float] = {"context_switches": self._scenario.machine.context_switches_per_second}
        segment = self._timeline.segment(seconds)
        for number, group in enumerate(self.cpu_groups):
            modes = _modes(_FULL_CPU) if group.saturated[segment] else self._plain(group.node, seconds)
            rates |= {f"cpu.{number}.{mode}": modes[mode] for mode in MODES}
        rates |= self._pressure_rates(seconds)
        rates |= self._disk_rates(seconds)
        rates |= self._network_rates(seconds)
        rates |= self._nfs_rates(seconds)
        swaps = [swap for event, swap in self._timeline.host(host_effects.Swap) if event.active(seconds)]
        rates["swap.in"] = sum(swap.in_bytes_per_second for swap in swaps) / _PAGE_BYTES
        rates["swap.out"] = sum(swap.out_bytes_per_second for swap in swaps) / _PAGE_BYTES
        return rates

    def _cpu(self, node: int, seconds: float) -> host_effects.Cpu:
        cpu = overlay(_CALM_CPU, self._scenario.machine.cpu)
        for event, effect in self._timeline.host(host_effects.Cpu):
            if event.active(seconds) and effect.node in (None, node):
                cpu = overlay(cpu, effect)
        return cpu

    def _saturated(self, node: int, seconds: float) -> frozenset[int]:
        listed = self._cpu(node, seconds).saturated_cpus
        mine = cpu_numbers(self._scenario.machine.node[node].cpus)
        return frozenset(mine).intersection(cpu_numbers(listed)) if listed else frozenset()

    def _group_cpus(self) -> tuple[CpuGroup, ...]:
        groups: list[CpuGroup] = []
        for number, node in enumerate(self._scenario.machine.node):
            busy = [self._saturated(number, edge) for edge in self._timeline.edges]
            alike: dict[tuple[bool, ...], list[int]] = {}
            for cpu in cpu_numbers(node.cpus):
                alike.setdefault(tuple(cpu in saturated for saturated in busy), []).append(cpu)
            groups += [CpuGroup(number, saturated, tuple(cpus)) for saturated, cpus in alike.items()]
        return tuple(groups)

    def _plain(self, node: int, seconds: float) -> dict[str, float]:
        """Time shares of an unsaturated CPU, adjusted so that the mean over the node is as configured."""
        mean, full = _modes(self._cpu(node, seconds)), _modes(_FULL_CPU)
        share = len(self._saturated(node, seconds)) / len(cpu_numbers(self._scenario.machine.node[node].cpus))
        if share >= 1.0:
            return full
        plain = {mode: max(0.0, (mean[mode] - share * full[mode]) / (1.0 - share)) for mode in MODES}
        excess = max(1.0, sum(plain.values()))
        return {mode: value / excess for mode, value in plain.items()}

    def _pressure_rates(self, seconds: float) -> dict[str, float]:
        rates = {f"psi.{resource}.{kind}": 0.0 for resource in RESOURCES for kind in KINDS}
        active = [effect for event, effect in self._timeline.host(host_effects.Pressure) if event.active(seconds)]
        for pressure in (*self._scenario.machine.pressure, *active):
            rates[f"psi.{pressure.resource}.some"] = pressure.some
            rates[f"psi.{pressure.resource}.full"] = pressure.full
        return rates

    def _disk_rates(self, seconds: float) -> dict[str, float]:
        rates: dict[str, float] = {}
        for device in self._scenario.machine.disk:
            disk = device.load or host_effects.Disk(device.name)
            full = False
            for event, effect in self._timeline.host(host_effects.Disk):
                if event.active(seconds) and effect.device == device.name:
                    disk = overlay(disk, effect)
                    full = (effect.busy or 0.0) >= _FULL_DISK and effect.read_seconds is effect.write_seconds is None
            reads, writes = disk.reads_per_second or 0.0, disk.writes_per_second or 0.0
            prefix = f"disk.{device.name}"
            rates[f"{prefix}.reads"] = reads
            rates[f"{prefix}.read_bytes"] = disk.read_bytes_per_second or 0.0
            rates[f"{prefix}.read_seconds"] = reads * (disk.read_seconds or 0.0)
            rates[f"{prefix}.writes"] = writes
            rates[f"{prefix}.write_bytes"] = disk.write_bytes_per_second or 0.0
            rates[f"{prefix}.write_seconds"] = writes * (disk.write_seconds or 0.0)
            rates[f"{prefix}.busy"] = disk.busy or 0.0
            if full:
                rates |= _queue_of_full_disk(prefix, rates)
        return rates

    def _network_rates(self, seconds: float) -> dict[str, float]:
        rates: dict[str, float] = {}
        for nic in self._scenario.machine.nic:
            network = self.network(nic, seconds)
            # The load of an RDMA device is what the jobs exchange, a constant number of bytes a step.
            carried = 0.0 if network.down else self._timeline.pace(seconds) if nic.infiniband else 1.0
            rates[f"net.{nic.name}.receive_bytes"] = carried * (network.receive_bytes_per_second or 0.0)
            rates[f"net.{nic.name}.transmit_bytes"] = carried * (network.transmit_bytes_per_second or 0.0)
            rates[f"net.{nic.name}.errors"] = network.errors_per_second or 0.0
            rates[f"net.{nic.name}.drops"] = network.drops_per_second or 0.0
            rates[f"net.{nic.name}.resent"] = network.segments_resent_per_second or 0.0
            rates[f"net.{nic.name}.link_errors"] = (network.link_errors_per_hour or 0.0) / _HOUR_SECONDS
            rates[f"net.{nic.name}.link_downs"] = (network.link_downs_per_hour or 0.0) / _HOUR_SECONDS
            rates[f"net.{nic.name}.timeouts"] = (network.timeouts_per_hour or 0.0) / _HOUR_SECONDS
        return rates

    def network(self, nic: Nic, seconds: float) -> host_effects.Network:
        network = nic.load or host_effects.Network(nic.name)
        for event, effect in self._timeline.host(host_effects.Network):
            if event.active(seconds) and effect.device == nic.name:
                network = overlay(network, effect)
        return network

    def times_down(self, nic: Nic, seconds: float) -> int:
        """How often a link has gone down for longer than a flap by this scenario time."""
        effects = self._timeline.host(host_effects.Network)
        return sum(1 for event, effect in effects if effect.device == nic.name and effect.down and event.at <= seconds)

    def speed_changes(self, nic: Nic, seconds: float) -> int:
        """How often a link has changed its speed by this scenario time."""
        slower = [
            event
            for event, effect in self._timeline.host(host_effects.Network)
            if effect.device == nic.name and effect.speed_mbps is not None
        ]
        return sum((event.at <= seconds) + (event.until is not None and event.until <= seconds) for event in slower)

    def _nfs_rates(self, seconds: float) -> dict[str, float]:
        rates: dict[str, float] = {}
        for mounted in self._scenario.machine.nfs:
            nfs = mounted.load or host_effects.Nfs(mounted.mount)
            for event, effect in self._timeline.host(host_effects.Nfs):
                if event.active(seconds) and effect.mount == mounted.mount:
                    nfs = overlay(nfs, effect)
            prefix = f"nfs.{mounted.mount}"
            for kind in ("read", "write", "getattr"):
                requests = getattr(nfs, f"{kind}s_per_second") or 0.0
                rates[f"{prefix}.{kind}s"] = requests
                rates[f"{prefix}.{kind}_seconds"] = requests * (getattr(nfs, f"{kind}_seconds") or 0.0)
            rates[f"{prefix}.retransmissions"] = nfs.retransmissions_per_second or 0.0
            rates[f"{prefix}.major_timeouts"] = nfs.major_timeouts_per_second or 0.0
            rates[f"{prefix}.read_bytes"] = nfs.read_bytes_per_second or 0.0
            rates[f"{prefix}.write_bytes"] = nfs.write_bytes_per_second or 0.0
        return rates


def _queue_of_full_disk(prefix: str, rates: Mapping[str, float]) -> dict[str, float]:
    """Request times of a disk that is only specified as busy: requests queue behind each other."""
    reads, writes = rates[f"{prefix}.reads"], rates[f"{prefix}.writes"]
    served = rates[f"{prefix}.read_seconds"] + rates[f"{prefix}.write_seconds"]
    queue = rates[f"{prefix}.busy"] * _FULL_DISK_QUEUE
    if served >= queue:
        return {}
    if not reads + writes:
        return {f"{prefix}.reads": queue / _FULL_DISK_SECONDS, f"{prefix}.read_seconds": queue}
    share = reads / (reads + writes)
    return {f"{prefix}.read_seconds": queue * share, f"{prefix}.write_seconds": queue * (1 - share)}


def _modes(cpu: host_effects.Cpu) -> dict[str, float]:
    busy = {mode: float(getattr(cpu, mode) or 0.0) for mode in MODES if mode != "idle"}
    return {mode: busy.get(mode, max(0.0, 1.0 - sum(busy.values()))) for mode in MODES}
