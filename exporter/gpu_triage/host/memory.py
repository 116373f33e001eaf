"""Memory and swap of the host."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from gpu_triage.kernel.files import parse_count
from gpu_triage.kernel.inquiry import HostInquiry
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Tier, host_counter, host_gauge
from gpu_triage.subjects.monotone import MonotoneCounters
from gpu_triage.subjects.rounds import HostRound

_BYTES_PER_KIBIBYTE = 1024
_MEMINFO = frozenset({"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"})
_VMSTAT = frozenset({"pswpin", "pswpout", "pgmajfault"})

GPU_HOST_MEMORY_TOTAL_BYTES = host_gauge(
    "gpu_host_memory_total_bytes", "Memory the kernel has to give out.", source="/proc/meminfo MemTotal"
)
GPU_HOST_MEMORY_AVAILABLE_BYTES = host_gauge(
    "gpu_host_memory_available_bytes",
    "Memory that new work could have without swapping, as the kernel estimates it.",
    source="/proc/meminfo MemAvailable",
)
GPU_HOST_SWAP_TOTAL_BYTES = host_gauge(
    "gpu_host_swap_total_bytes", "Swap space; 0 on a host without.", source="/proc/meminfo SwapTotal"
)
GPU_HOST_SWAP_USED_BYTES = host_gauge(
    "gpu_host_swap_used_bytes", "Swap space in use.", source="/proc/meminfo SwapTotal - SwapFree"
)
GPU_HOST_SWAP_IN_BYTES_TOTAL = host_counter(
    "gpu_host_swap_in_bytes_total", "Bytes read back from swap since boot.", source="/proc/vmstat pswpin"
)
GPU_HOST_SWAP_OUT_BYTES_TOTAL = host_counter(
    "gpu_host_swap_out_bytes_total", "Bytes written to swap since boot.", source="/proc/vmstat pswpout"
)
GPU_HOST_MAJOR_FAULTS_TOTAL = host_counter(
    "gpu_host_major_faults_total",
    "Page faults since boot that had to wait for storage.",
    source="/proc/vmstat pgmajfault",
)


@dataclass(frozen=True, slots=True)
class HostMemoryReading:
    """Memory of the host; None for what the kernel does not report."""

    total_bytes: Annotated[int | None, GPU_HOST_MEMORY_TOTAL_BYTES]
    available_bytes: Annotated[int | None, GPU_HOST_MEMORY_AVAILABLE_BYTES]
    swap_total_bytes: Annotated[int | None, GPU_HOST_SWAP_TOTAL_BYTES]
    swap_used_bytes: Annotated[int | None, GPU_HOST_SWAP_USED_BYTES]
    swap_in_bytes: Annotated[int | None, GPU_HOST_SWAP_IN_BYTES_TOTAL]
    swap_out_bytes: Annotated[int | None, GPU_HOST_SWAP_OUT_BYTES_TOTAL]
    major_faults: Annotated[int | None, GPU_HOST_MAJOR_FAULTS_TOTAL]


def read_host_memory(round_: HostRound) -> HostMemoryReading:
    """Memory of the host. Source: ``/proc/meminfo`` (KiB) and ``/proc/vmstat`` (pages).

    Raises:
        HostReadFailed: meminfo cannot be read or understood, whether or not vmstat can.
    """
    inquiry = HostInquiry(round_.failures)
    procfs = round_.machine.procfs
    vmstat = inquiry.parse(procfs / "vmstat", parse_vmstat, required=True) or {}
    meminfo = inquiry.need(procfs / "meminfo", parse_meminfo)
    inquiry.finish()
    # Swap is counted in pages of this kernel: 4 KiB on x86, 64 KiB on many ARM servers.
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return HostMemoryReading(
        total_bytes=meminfo.get("MemTotal"),
        available_bytes=meminfo.get("MemAvailable"),
        swap_total_bytes=meminfo.get("SwapTotal"),
        swap_used_bytes=_difference(meminfo.get("SwapTotal"), meminfo.get("SwapFree")),
        swap_in_bytes=_product(vmstat.get("pswpin"), page_bytes),
        swap_out_bytes=_product(vmstat.get("pswpout"), page_bytes),
        major_faults=vmstat.get("pgmajfault"),
    )


class HostMemoryReader:
    """Reads memory; a count that falls, as while a CPU goes offline, is carried on."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[str] = MonotoneCounters()

    def read(self, round_: HostRound) -> HostMemoryReading:
        """As read_host_memory."""
        reading = read_host_memory(round_)
        return replace(
            reading,
            swap_in_bytes=self._counters.known("swap_in", reading.swap_in_bytes),
            swap_out_bytes=self._counters.known("swap_out", reading.swap_out_bytes),
            major_faults=self._counters.known("major_faults", reading.major_faults),
        )


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name, for the names read here, of lines like ``MemTotal:       263842796 kB``.

    Raises:
        ValueError: one of those lines looks different, or there is none.
    """
    facts: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            number, _, unit = value.strip().partition(" ")
            if unit != "kB":
                raise ValueError(f"{line[:80]!r} is not in kB")
            facts[name] = parse_count(number) * _BYTES_PER_KIBIBYTE
    return _not_empty(facts)


def parse_vmstat(text: str) -> Mapping[str, int]:
    """Counts by name, for the names read here, of lines like ``pswpin 1203``.

    Raises:
        ValueError: one of those lines looks different, or there is none.
    """
    facts: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(" ")
        if name in _VMSTAT:
            facts[name] = parse_count(value.strip())
    return _not_empty(facts)


def _not_empty(facts: dict[str, int]) -> dict[str, int]:
    if not facts:
        raise ValueError("none of the lines that every kernel has")
    return facts


def _product(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor


def _difference(whole: int | None, part: int | None) -> int | None:
    # Both are sampled without a lock: a free figure above the total is no reading.
    return None if whole is None or part is None or part > whole else whole - part


HOST_MEMORY = HostCollector(
    name="host_memory",
    about="memory, swap and paging",
    tier=Tier.MEDIUM,
    reader=lambda _config: HostMemoryReader().read,
)
