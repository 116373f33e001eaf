"""Settings and conditions that slow all CPUs: cpufreq governor, clock source and thermal throttling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import MAX_CPUS, names_in, parse_count, read_int, read_text
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.driver.kernel.numa import read_numa_nodes
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_counter, host_gauge, host_info
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rounds import HostRound

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MOST_GOVERNORS: Final = 8
_THROTTLES, _THROTTLED = "package_throttle_count", "package_throttle_total_time_ms"

SLOW_CLOCK_SOURCES: Final = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
"""x86 clock sources the kernel falls back to if it considers the TSC unreliable."""

GPU_HOST_CPU_GOVERNOR_POLICIES = host_gauge(
    "gpu_host_cpu_governor_policies",
    "Groups of CPUs that share a clock, by the governor that sets it; most often there is one for each CPU. Under the "
    "drivers intel_pstate and amd-pstate powersave raises the clock under load as others do; elsewhere it keeps the "
    "lowest. Absent without cpufreq, as on most virtual machines.",
    labels=("governor",),
    source="/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
)
GPU_HOST_CLOCK_SOURCE_INFO = host_info(
    "gpu_host_clock_source_info",
    "The kernel's clock source. Programs can read tsc, arch_sys_counter and those of virtual machines (kvm-clock, "
    "hyperv_clocksource_tsc_page) directly; with hpet, acpi_pm and jiffies, each reading of the clock costs a "
    "system call and a microsecond or more.",
    labels=("clock_source",),
    source="/sys/devices/system/clocksource/clocksource0/current_clocksource",
)
GPU_HOST_CPU_THROTTLES_TOTAL = host_counter(
    "gpu_host_cpu_throttles_total",
    "How often the processor of the NUMA node lowered its clock because it, or the host around it, was too hot. Only "
    "Intel processors count this. Shown once there are any; profile full always shows it.",
    labels=("numa_node",),
    source="/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count",
    default_samples=lambda sample: sample.value > 0,
)
GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL = host_counter(
    "gpu_host_cpu_throttled_seconds_total",
    "Time for which the processor of the NUMA node had lowered its clock for heat, since Linux 5.6; a spell is added "
    "when it ends. Only Intel processors count this. Shown once there is any; profile full always shows it.",
    labels=("numa_node",),
    source="/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms",
    default_samples=lambda sample: sample.value > 0,
)


@dataclass(frozen=True, slots=True)
class HostCpuSettingsReading:
    """CPU settings, and throttle counters by NUMA node; empty or None for what the kernel does not report."""

    governors: Annotated[Mapping[str, int], GPU_HOST_CPU_GOVERNOR_POLICIES]
    clock_source: Annotated[str | None, GPU_HOST_CLOCK_SOURCE_INFO]
    throttles: Annotated[Mapping[str, int], GPU_HOST_CPU_THROTTLES_TOTAL] = field(default_factory=dict)
    throttled_seconds: Annotated[Mapping[str, float], GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL] = field(
        default_factory=dict
    )


_POLICY: Final = re.compile(r"policy[0-9]{1,5}")


def policies(sysfs: Path) -> list[Path]:
    """Folders of the cpufreq policies (groups of CPUs that share a clock, usually one per CPU); empty without cpufreq.

    Source: ``/sys/devices/system/cpu/cpufreq``, https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    root = sysfs / "devices" / "system" / "cpu" / "cpufreq"
    return [root / name for name in names_in(root) if _POLICY.fullmatch(name)][:MAX_CPUS]


class CpuFrequencies:
    """Reads CPU clocks; caches the policy of each CPU, which does not change while the host runs."""

    def __init__(self) -> None:
        self._policy_of: Mapping[int, Path] | None = None

    def ratio(self, sysfs: Path, cpu: int) -> float | None:
        """Current clock of a CPU over its maximum, 0-1; None if not reported, as on most virtual machines."""
        if self._policy_of is None:
            self._policy_of = {each: policy for policy in policies(sysfs) for each in _related_cpus(policy)}
        policy = self._policy_of.get(cpu)
        if policy is None:
            return None
        try:
            now, most = read_int(policy / "scaling_cur_freq"), read_int(policy / "cpuinfo_max_freq")
        except HostReadFailed:
            return None
        # If the reported maximum excludes boost, a CPU may exceed it.
        return min(1.0, now / most) if now is not None and most is not None and now > 0 and most > 0 else None


def _related_cpus(policy: Path) -> list[int]:
    try:
        return [parse_count(each) for each in (read_text(policy / "related_cpus") or "").split()]
    except (HostReadFailed, ValueError):
        return []


class HostCpuSettingsReader:
    """Reads settings and throttle counters; keeps the counters monotonic."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str]] = MonotoneCounters()

    def read(self, round_: HostRound) -> HostCpuSettingsReading:
        """Read governors, clock source and throttle counters.

        Source: ``/sys/devices/system/cpu``, ``/sys/devices/system/clocksource``

        Raises:
            HostReadFailed: governors and clock source exist but none can be read or parsed, or no sysfs is mounted.
        """
        sysfs = round_.machine.sysfs
        inquiry = HostInquiry(round_.failures, sysfs)
        clock_source = inquiry.parse(sysfs / "devices/system/clocksource/clocksource0/current_clocksource", _word)
        governors: Counter[str] = Counter()
        for policy in policies(sysfs):
            try:
                governor = (read_text(policy / "scaling_governor") or "").strip()
            except HostReadFailed as failed:
                _note_once(round_, failed)
                continue
            if _WORD.fullmatch(governor):
                governors[governor] += 1
        inquiry.finish()
        try:
            nodes = read_numa_nodes(sysfs) or {0: frozenset({0})}
        except HostReadFailed as failed:
            round_.failures.append(failed.reason)
            nodes = {}
        throttles = {str(node): self._count(round_, node, min(cpus), _THROTTLES) for node, cpus in nodes.items()}
        milliseconds = {str(node): self._count(round_, node, min(cpus), _THROTTLED) for node, cpus in nodes.items()}
        return HostCpuSettingsReading(
            governors=dict(governors.most_common(_MOST_GOVERNORS)),
            clock_source=clock_source,
            throttles={node: count for node, count in throttles.items() if count is not None},
            throttled_seconds={node: count / 1000 for node, count in milliseconds.items() if count is not None},
        )

    def _count(self, round_: HostRound, node: int, cpu: int, name: str) -> int | None:
        """Read a counter of a processor package; each of its CPUs shows the same value."""
        path = round_.machine.sysfs / f"devices/system/cpu/cpu{cpu}/thermal_throttle" / name
        try:
            return self._counters.known((str(node), name), read_int(path))
        except HostReadFailed as failed:
            _note_once(round_, failed)
            return None


def _note_once(round_: HostRound, failed: HostReadFailed) -> None:
    if failed.reason not in round_.failures:
        round_.failures.append(failed.reason)


def _word(text: str) -> str:
    if not _WORD.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no name")
    return text.strip()


HOST_CPU_SETTINGS = HostCollector(
    name="host_cpu_settings",
    about="governor of the CPUs' clock, source of the time, and CPUs that are too hot",
    tier=Tier.SLOW,
    reader=lambda _config: HostCpuSettingsReader().read,
)
