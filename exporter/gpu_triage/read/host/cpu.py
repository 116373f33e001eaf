"""CPU time by NUMA node, the busiest CPUs, and load; what slows all CPUs: governor, clock source and heat.

Also pressure stall information: time that tasks of the host spent waiting for CPU, I/O or memory.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import sub
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from gpu_triage.driver.kernel import files
from gpu_triage.driver.kernel.numa import read_numa_nodes
from gpu_triage.driver.kernel.procfs import KINDS, RESOURCES, parse_pressure
from gpu_triage.read.metrics.contract import HostCollector, HostRound, known
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, host_info
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import Each

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Modes of /proc/stat in order. The next two, guest and guest_nice, are already included in user and nice."""

_AT_REST = slice(MODES.index("idle"), MODES.index("iowait") + 1)
_CPU_NAME = re.compile(r"cpu[0-9]{1,5}")
_CPU = re.compile(r"cpu([0-9]{1,5})((?: +[0-9]{1,20}){4,}) *")
"""A CPU line of /proc/stat; the oldest kernels only have four modes."""

_LOAD = re.compile(r"([0-9]{1,9}\.[0-9]{1,9}) ")
_NODE_WITHOUT_NUMA = 0
_ALWAYS_BUSY_RATIO = 0.9
"""Busy share since boot (at least an hour) from which a CPU counts as polling, which is unrelated to jobs."""
_ALWAYS_SECONDS = 3600
_SET_APART = ("isolated", "nohz_full")
_BUSY_RATIO = 0.5
"""Minimum busy share for a CPU's clock to be meaningful: idle CPUs clock down."""

GPU_HOST_CPU_SECONDS_TOTAL = host_counter(
    "CPU time of the NUMA node since boot by mode, summed over its CPUs, including those now offline; guests are part "
    "of user and nice.",
    labels={"numa_node": ANY, "mode": MODES},
    source="/proc/stat, by /sys/devices/system/node",
)
_node_gauge = partial(host_gauge, labels=("numa_node",))

GPU_HOST_CPU_BUSIEST_RATIO = _node_gauge(
    "Share of the last interval for which the busiest CPU of the NUMA node was neither idle nor in iowait, 0-1: at "
    "1, a single thread is the limit. Without CPUs that are set apart (isolated, nohz_full) or always busy (nine "
    "tenths of the time since boot).",
    source="/proc/stat; /sys/devices/system/cpu/{isolated,nohz_full}",
)
GPU_HOST_CPU_SHARED_BUSY_RATIO = _node_gauge(
    "Share of the last interval for which the other CPUs of the NUMA node, which jobs share, were busy, 0-1; absent if "
    "none is set apart or always busy.",
    source="as gpu_host_cpu_busiest_ratio",
)
GPU_HOST_CPU_BUSIEST_FREQUENCY_RATIO = _node_gauge(
    "Current clock of that busiest CPU over its highest, 0-1; absent while it was busy for less than half of the "
    "interval, and without cpufreq, as on most virtual machines.",
    source="/sys/devices/system/cpu/cpu*/cpufreq/{scaling_cur_freq,cpuinfo_max_freq}",
)
GPU_HOST_CPUS = _node_gauge("Online CPUs of the NUMA node.", source="/proc/stat, by /sys/devices/system/node")
GPU_HOST_LOAD1 = host_gauge(
    "Tasks that run, are runnable or wait for I/O, averaged over a minute.", source="/proc/loadavg"
)
GPU_HOST_PROCESSES_BLOCKED = host_gauge("Tasks that currently wait for I/O.", source="/proc/stat procs_blocked")
GPU_HOST_CONTEXT_SWITCHES_TOTAL = host_counter("Context switches of all CPUs since boot.", source="/proc/stat ctxt")


@dataclass(frozen=True, slots=True)
class NodeCpu:
    """CPUs of one NUMA node, with number 0 on a kernel without NUMA."""

    numa_node: int
    seconds: Annotated[Mapping[str, float], GPU_HOST_CPU_SECONDS_TOTAL]
    busiest_ratio: Annotated[float | None, GPU_HOST_CPU_BUSIEST_RATIO]
    cpus: Annotated[int, GPU_HOST_CPUS]
    busiest_frequency_ratio: Annotated[float | None, GPU_HOST_CPU_BUSIEST_FREQUENCY_RATIO] = None
    shared_busy_ratio: Annotated[float | None, GPU_HOST_CPU_SHARED_BUSY_RATIO] = None


@dataclass(frozen=True, slots=True)
class HostCpuReading:
    nodes: Annotated[tuple[NodeCpu, ...], Each("numa_node")]
    load1: Annotated[float | None, GPU_HOST_LOAD1]
    processes_blocked: Annotated[int | None, GPU_HOST_PROCESSES_BLOCKED]
    context_switches: Annotated[int | None, GPU_HOST_CONTEXT_SWITCHES_TOTAL]


class Stat(NamedTuple):
    """The values used from /proc/stat: ticks by CPU in the order of MODES, and two counters."""

    ticks: Mapping[int, tuple[int, ...]]
    context_switches: int | None
    processes_blocked: int | None


class HostCpuReader:
    def __init__(self) -> None:
        self._counters = MonotoneCounters()
        self._node_of: dict[int, int] = {}
        self._counted: dict[int, tuple[int, ...]] = {}
        self._last: dict[int, tuple[int, ...]] = {}

    def read(self, round_: HostRound) -> HostCpuReading:
        """Read CPUs and load. Source: ``/proc/stat``, ``/proc/loadavg`` and ``/sys/devices/system/node``."""
        inquiry = files.HostInquiry(round_.failures)
        procfs, sysfs = round_.machine.procfs, round_.machine.sysfs
        load1 = inquiry.parse(procfs / "loadavg", parse_load1, required=True)
        stat = inquiry.need(procfs / "stat", parse_stat)
        self._place(stat.ticks, inquiry.ask(partial(read_numa_nodes, sysfs)))
        inquiry.finish()
        nodes = self._nodes(stat.ticks, sysfs)
        return self._counters.continued(HostCpuReading(nodes, load1, stat.processes_blocked, stat.context_switches))

    def _nodes(self, ticks: Mapping[int, tuple[int, ...]], sysfs: Path) -> tuple[NodeCpu, ...]:
        # If a CPU comes online later, subtract its initial count, which would look like work of a single interval.
        online = {
            cpu: self._counters.row(cpu, values, starts=values if self._counted else None)
            for cpu, values in ticks.items()
            if cpu in self._node_of
        }
        ratios = known({cpu: busy_ratio(self._last[cpu], now) for cpu, now in online.items() if cpu in self._last})
        self._last = online
        self._counted.update(online)
        members: dict[int, list[int]] = {}
        for cpu in sorted(self._counted):
            members.setdefault(self._node_of[cpu], []).append(cpu)
        apart = _cpus_set_apart(sysfs)
        return tuple(self._node(node, cpus, ratios, apart, sysfs) for node, cpus in sorted(members.items()))

    def _node(
        self, node: int, cpus: Iterable[int], ratios: Mapping[int, float], apart: Collection[int], sysfs: Path
    ) -> NodeCpu:
        """One node from its CPUs, in order, and the busy ratios of those that are online."""
        hertz = os.sysconf("SC_CLK_TCK")
        total = map(sum, zip(*(self._counted[cpu] for cpu in cpus), strict=True))
        measured = {cpu: ratios[cpu] for cpu in cpus if cpu in ratios}
        shared = self._shared({cpu: ratio for cpu, ratio in measured.items() if cpu not in apart})
        busiest = max(shared, key=shared.__getitem__, default=None)
        busy = busiest is not None and shared[busiest] >= _BUSY_RATIO
        return NodeCpu(
            numa_node=node,
            cpus=sum(cpu in self._last for cpu in cpus),
            seconds={mode: ticks / hertz for mode, ticks in zip(MODES, total, strict=False)},
            busiest_ratio=None if busiest is None else shared[busiest],
            busiest_frequency_ratio=clock_ratio(sysfs, busiest) if busiest is not None and busy else None,
            shared_busy_ratio=sum(shared.values()) / len(shared) if 0 < len(shared) < len(measured) else None,
        )

    def _shared(self, ratios: Mapping[int, float]) -> Mapping[int, float]:
        """The CPUs of a node that jobs share. Others poll for packets or storage, whatever the jobs do.

        If most CPUs of a node are always busy, jobs are the reason, so they are kept.
        """
        always = {cpu for cpu, ratio in ratios.items() if ratio >= _ALWAYS_BUSY_RATIO and _always_busy(self._last[cpu])}
        polling = always if 2 * len(always) <= len(ratios) else ()
        return {cpu: ratio for cpu, ratio in ratios.items() if cpu not in polling}

    def _place(self, ticks: Iterable[int], cpus_by_node: Mapping[int, Iterable[int]] | None) -> None:
        # The kernel only lists online CPUs, but a node's sum must not drop when a CPU goes offline, so a CPU stays with
        # the node where it was first seen.
        if cpus_by_node is not None:
            for node, cpus in (cpus_by_node or {_NODE_WITHOUT_NUMA: ticks}).items():
                self._node_of = dict.fromkeys(cpus, node) | self._node_of


def busy_ratio(before: tuple[int, ...], now: tuple[int, ...]) -> float | None:
    """Share of a CPU's ticks between two readings that were neither idle nor iowait; None if there are no ticks."""
    passed = tuple(map(sub, now, before))
    total = sum(passed)
    return (total - sum(passed[_AT_REST])) / total if total > 0 else None


def _always_busy(ticks: tuple[int, ...]) -> bool:
    """Whether a CPU has been busy nearly all the time since boot, as when polling for network packets or storage."""
    share = busy_ratio((0,) * len(ticks), ticks) or 0.0
    return sum(ticks) >= _ALWAYS_SECONDS * os.sysconf("SC_CLK_TCK") and share >= _ALWAYS_BUSY_RATIO


def _cpus_set_apart(sysfs: Path) -> frozenset[int]:
    """CPUs excluded from normal scheduling: ``isolcpus=``, ``nohz_full=`` and isolated cpusets."""
    found: frozenset[int] = frozenset()
    for name in _SET_APART:
        with suppress(ValueError):  # (null), on kernels without nohz_full=
            found |= files.parse_cpu_list(files.text_of(sysfs / "devices" / "system" / "cpu" / name))
    return found


def parse_stat(text: str) -> Stat:
    ticks: dict[int, tuple[int, ...]] = {}
    counts: dict[str, int] = {}
    for line in text.split("\n"):
        if cpu := _CPU.fullmatch(line):
            ticks[int(cpu[1])] = tuple(map(int, cpu[2].split()[: len(MODES)]))
            continue
        # Split only once: the interrupts line has thousands of numbers.
        name, *rest = line.split(maxsplit=1) or [""]
        if name in ("ctxt", "procs_blocked"):
            (counts[name],) = (files.parse_count(value) for value in "".join(rest).split())
        elif _CPU_NAME.fullmatch(name):
            raise ValueError(f"{line[:80]!r} is cut short, or no line of a CPU")
    if not ticks:
        raise ValueError("no CPU listed")
    if len(set(map(len, ticks.values()))) > 1:
        raise ValueError("CPUs have different modes")
    return Stat(ticks, counts.get("ctxt"), counts.get("procs_blocked"))


def parse_load1(text: str) -> float:
    match = _LOAD.match(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no load average")
    return float(match[1])


HOST_CPU = HostCollector("CPU time per NUMA node, load", Tier.MEDIUM, lambda _config: HostCpuReader().read)

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_THROTTLES, _THROTTLED = "package_throttle_count", "package_throttle_total_time_ms"

SLOW_CLOCK_SOURCES: Final = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
"""x86 clock sources the kernel falls back to if it considers the TSC unreliable."""

GPU_HOST_CPU_GOVERNOR_POLICIES = host_gauge(
    "Groups of CPUs that share a clock (usually one per CPU), by governor. Absent without cpufreq, as on most "
    "virtual machines.",
    labels=("governor",),
    source="/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
)
GPU_HOST_CLOCK_SOURCE_INFO = host_info(
    "The kernel's clock source. With hpet, acpi_pm and jiffies, each reading costs a system call and a microsecond "
    "or more.",
    labels=("clock_source",),
    source="/sys/devices/system/clocksource/clocksource0/current_clocksource",
)
_heat_counter = partial(host_counter, labels=("numa_node",), default_samples=lambda sample: sample.value > 0)

GPU_HOST_CPU_THROTTLES_TOTAL = _heat_counter(
    "How often the NUMA node's processor lowered its clock because it or the host was too hot. Intel only. Absent "
    "while 0, except in profile full.",
    source="/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count",
)
GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL = _heat_counter(
    "Time for which the NUMA node's processor had lowered its clock for heat, added when it ends. Intel only, since "
    "Linux 5.6. Absent while 0, except in profile full.",
    source="/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms",
)


@dataclass(frozen=True, slots=True)
class HostCpuSettingsReading:
    governors: Annotated[Mapping[str, int], GPU_HOST_CPU_GOVERNOR_POLICIES]
    clock_source: Annotated[str | None, GPU_HOST_CLOCK_SOURCE_INFO]
    throttles: Annotated[Mapping[str, int], GPU_HOST_CPU_THROTTLES_TOTAL] = field(default_factory=dict)
    throttled_seconds: Annotated[Mapping[str, float], GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL] = field(
        default_factory=dict
    )


_POLICY: Final = re.compile(r"policy[0-9]{1,5}")


def clock_ratio(sysfs: Path, cpu: int) -> float | None:
    """Current clock of a CPU over its highest, 0-1; None without cpufreq."""
    policy = sysfs / f"devices/system/cpu/cpu{cpu}/cpufreq"  # a link to the policy that the CPU is in
    now, most = (files.if_readable(files.read_int, policy / name) for name in ("scaling_cur_freq", "cpuinfo_max_freq"))
    # If the reported maximum excludes boost, a CPU may exceed it.
    return min(1.0, now / most) if now is not None and most is not None and now > 0 and most > 0 else None


def read_host_cpu_settings(counters: MonotoneCounters, round_: HostRound) -> HostCpuSettingsReading:
    sysfs = round_.machine.sysfs
    inquiry = files.HostInquiry(round_.failures, sysfs)
    clock_source = inquiry.parse(sysfs / "devices/system/clocksource/clocksource0/current_clocksource", _word)
    cpufreq = sysfs / "devices/system/cpu/cpufreq"
    policies = [name for name in files.names_in(cpufreq) if _POLICY.fullmatch(name)][: files.MAX_CPUS]
    governors = Counter(filter(None, (inquiry.parse(cpufreq / name / "scaling_governor", _word) for name in policies)))
    nodes = inquiry.ask(lambda: read_numa_nodes(sysfs) or {0: frozenset({0})}, aside=True) or {}
    throttles, milliseconds = (_counts_of_packages(inquiry, sysfs, nodes, name) for name in (_THROTTLES, _THROTTLED))
    inquiry.finish()
    seconds = {node: count / 1000 for node, count in milliseconds.items()}
    return counters.continued(HostCpuSettingsReading(dict(governors.most_common()), clock_source, throttles, seconds))


def _counts_of_packages(
    inquiry: files.HostInquiry, sysfs: Path, nodes: Mapping[int, frozenset[int]], name: str
) -> dict[str, int]:
    """Read a counter of each node's processor package; each CPU of a package shows the same value."""
    cpu_of = {str(node): sysfs / f"devices/system/cpu/cpu{min(cpus)}" for node, cpus in nodes.items()}
    paths = {node: cpu / "thermal_throttle" / name for node, cpu in cpu_of.items()}
    return known({node: inquiry.ask(partial(files.read_int, path), aside=True) for node, path in paths.items()})


def _word(text: str) -> str:
    if not _WORD.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no name")
    return text.strip()


HOST_CPU_SETTINGS = HostCollector(
    about="CPU governor, clock source, and CPU thermal throttling",
    tier=Tier.SLOW,
    reader=lambda _config: partial(read_host_cpu_settings, MonotoneCounters()),
)

GPU_HOST_PRESSURE_SECONDS_TOTAL = host_counter(
    "Time since boot for which at least one (some) or all (full) active tasks waited for the resource; absent on "
    "kernels without PSI. CPU has no full.",
    labels={"resource": RESOURCES, "kind": KINDS},
    source="/proc/pressure/{cpu,io,memory} total",
)


@dataclass(frozen=True, slots=True)
class HostPressureReading:
    seconds: Annotated[Mapping[tuple[str, str], float], GPU_HOST_PRESSURE_SECONDS_TOTAL]


def read_host_pressure(counters: MonotoneCounters, round_: HostRound) -> HostPressureReading:
    procfs = round_.machine.procfs
    inquiry = files.HostInquiry(round_.failures, procfs)
    stalls = {resource: inquiry.parse(procfs / "pressure" / resource, parse_pressure) for resource in RESOURCES}
    inquiry.finish()
    seconds = {(resource, kind): each for resource, of in known(stalls).items() for kind, each in of.items()}
    # Since 5.13 the kernel also prints "full" for the host's CPUs, always 0 and documented as undefined.
    seconds.pop(("cpu", "full"), None)
    return counters.continued(HostPressureReading(seconds))


HOST_PRESSURE = HostCollector(
    "pressure stall information", Tier.MEDIUM, lambda _config: partial(read_host_pressure, MonotoneCounters())
)
