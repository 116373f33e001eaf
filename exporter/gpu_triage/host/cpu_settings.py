"""Settings of the kernel that make every CPU slow: the governor of the clock, and the source of the time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.host.cpu_frequency import policies
from gpu_triage.kernel.files import read_text
from gpu_triage.kernel.inquiry import HostInquiry
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Tier, host_gauge, host_info
from gpu_triage.subjects.rounds import HostRound

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MOST_GOVERNORS: Final = 8

SLOW_CLOCK_SOURCES: Final = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
"""Of x86: what the kernel falls back to when it finds that the TSC is not to be trusted."""

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


@dataclass(frozen=True, slots=True)
class HostCpuSettingsReading:
    """Settings of all CPUs; empty or None for what the kernel does not report."""

    governors: Annotated[Mapping[str, int], GPU_HOST_CPU_GOVERNOR_POLICIES]
    clock_source: Annotated[str | None, GPU_HOST_CLOCK_SOURCE_INFO]


def read_host_cpu_settings(round_: HostRound) -> HostCpuSettingsReading:
    """Governors and clock source.

    Source: ``/sys/devices/system/cpu/cpufreq``, ``/sys/devices/system/clocksource``

    Raises:
        HostReadFailed: they are there and none can be read or understood, or no sysfs is mounted.
    """
    sysfs = round_.machine.sysfs
    inquiry = HostInquiry(round_.failures, sysfs)
    source = sysfs / "devices" / "system" / "clocksource" / "clocksource0" / "current_clocksource"
    clock_source = inquiry.parse(source, _word)
    governors: Counter[str] = Counter()
    for policy in policies(sysfs):
        try:
            governor = (read_text(policy / "scaling_governor") or "").strip()
        except HostReadFailed as failed:
            if failed.reason not in round_.failures:
                round_.failures.append(failed.reason)
            continue
        if _WORD.fullmatch(governor):
            governors[governor] += 1
    inquiry.finish()
    return HostCpuSettingsReading(dict(governors.most_common(_MOST_GOVERNORS)), clock_source)


def _word(text: str) -> str:
    if not _WORD.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no name")
    return text.strip()


HOST_CPU_SETTINGS = HostCollector(
    name="host_cpu_settings",
    about="governor of the CPUs' clock, source of the time",
    tier=Tier.SLOW,
    reader=lambda _config: read_host_cpu_settings,
)
