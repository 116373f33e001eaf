"""Memory, swap and paging of the host."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from gpu_triage.driver.kernel.files import parse_count
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.driver.kernel.numa import gpu_memory_nodes, node_numbers, read_node_memory, read_node_misses
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_counter, host_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rounds import HostRound

_BYTES_PER_KIBIBYTE = 1024
_MOST_NODES = 64
"""Maximum NUMA nodes published: a GB200 has one per possible GPU instance."""
_MEMINFO = frozenset({"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"})
_VMSTAT = frozenset({"pswpin", "pswpout", "pgmajfault"})

GPU_HOST_MEMORY_TOTAL_BYTES = host_gauge(
    "gpu_host_memory_total_bytes",
    "Memory available to the kernel. Memory of GPUs that the kernel has as NUMA nodes (GH200, GB200) is left out.",
    source="/proc/meminfo MemTotal",
)
GPU_HOST_MEMORY_AVAILABLE_BYTES = host_gauge(
    "gpu_host_memory_available_bytes",
    "Memory that new work could have without swapping, as the kernel estimates it; free memory of GPUs is left out.",
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
GPU_HOST_NUMA_MEMORY_TOTAL_BYTES = host_gauge(
    "gpu_host_numa_memory_total_bytes",
    "Memory of the NUMA node; of a node without CPUs (GPUs, CXL) too. Absent on hosts with one node. Only in profile "
    "full.",
    labels=("numa_node",),
    source="/sys/devices/system/node/node*/meminfo MemTotal",
    default_samples=no_sample,
)
GPU_HOST_NUMA_MEMORY_FREE_BYTES = host_gauge(
    "gpu_host_numa_memory_free_bytes",
    "Memory of the NUMA node that nothing uses, not even the page cache. Absent on hosts with one node. Only in "
    "profile full.",
    labels=("numa_node",),
    source="/sys/devices/system/node/node*/meminfo MemFree",
    default_samples=no_sample,
)
GPU_HOST_NUMA_MISS_BYTES_TOTAL = host_counter(
    "gpu_host_numa_miss_bytes_total",
    "Memory that processes wanted from another NUMA node, and got from this one because the other had none left. "
    "Absent on hosts with one node. Only in profile full.",
    labels=("numa_node",),
    source="/sys/devices/system/node/node*/numastat numa_miss",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class HostMemoryReading:
    """Memory of the host, and of its NUMA nodes if it has several; None for what the kernel does not report."""

    total_bytes: Annotated[int | None, GPU_HOST_MEMORY_TOTAL_BYTES]
    available_bytes: Annotated[int | None, GPU_HOST_MEMORY_AVAILABLE_BYTES]
    swap_total_bytes: Annotated[int | None, GPU_HOST_SWAP_TOTAL_BYTES]
    swap_used_bytes: Annotated[int | None, GPU_HOST_SWAP_USED_BYTES]
    swap_in_bytes: Annotated[int | None, GPU_HOST_SWAP_IN_BYTES_TOTAL]
    swap_out_bytes: Annotated[int | None, GPU_HOST_SWAP_OUT_BYTES_TOTAL]
    major_faults: Annotated[int | None, GPU_HOST_MAJOR_FAULTS_TOTAL]
    node_total_bytes: Annotated[Mapping[str, int], GPU_HOST_NUMA_MEMORY_TOTAL_BYTES] = field(default_factory=dict)
    node_free_bytes: Annotated[Mapping[str, int], GPU_HOST_NUMA_MEMORY_FREE_BYTES] = field(default_factory=dict)
    node_miss_bytes: Annotated[Mapping[str, int], GPU_HOST_NUMA_MISS_BYTES_TOTAL] = field(default_factory=dict)


class HostMemoryReader:
    """Reads memory; keeps counters monotonic, as they may drop while a CPU goes offline."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[str] = MonotoneCounters()

    def read(self, round_: HostRound) -> HostMemoryReading:
        """Read memory of the host and its NUMA nodes.

        Source: ``/proc/meminfo`` (KiB), ``/proc/vmstat`` (pages), ``/sys/devices/system/node/node*/{meminfo,numastat}``

        Raises:
            HostReadFailed: meminfo cannot be read or parsed, even if vmstat can.
        """
        inquiry, counters = HostInquiry(round_.failures), self._counters
        procfs, sysfs = round_.machine.procfs, round_.machine.sysfs
        vmstat = inquiry.parse(procfs / "vmstat", parse_vmstat, required=True) or {}
        meminfo = inquiry.need(procfs / "meminfo", parse_meminfo)
        of_gpus = inquiry.ask(lambda: _memory_of_gpus(sysfs)) or {}
        nodes = inquiry.ask(lambda: node_numbers(sysfs)) or ()
        shown = nodes[:_MOST_NODES] if len(nodes) > 1 else ()
        memory = {str(node): inquiry.ask(partial(read_node_memory, sysfs, node)) or {} for node in shown}
        missed = {str(node): inquiry.ask(partial(read_node_misses, sysfs, node)) for node in shown}
        inquiry.finish()
        # vmstat counts in pages of this kernel: 4 KiB on x86, 64 KiB on many ARM servers.
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return HostMemoryReading(
            total_bytes=_difference(meminfo.get("MemTotal"), of_gpus.get("MemTotal", 0)),
            available_bytes=_difference(meminfo.get("MemAvailable"), of_gpus.get("MemFree", 0)),
            swap_total_bytes=meminfo.get("SwapTotal"),
            swap_used_bytes=_difference(meminfo.get("SwapTotal"), meminfo.get("SwapFree")),
            swap_in_bytes=_product(counters.known("swap_in", vmstat.get("pswpin")), page_bytes),
            swap_out_bytes=_product(counters.known("swap_out", vmstat.get("pswpout")), page_bytes),
            major_faults=counters.known("major_faults", vmstat.get("pgmajfault")),
            node_total_bytes={node: found["MemTotal"] for node, found in memory.items() if "MemTotal" in found},
            node_free_bytes={node: found["MemFree"] for node, found in memory.items() if "MemFree" in found},
            node_miss_bytes={
                node: counters.published(f"misses of node {node}", pages) * page_bytes
                for node, pages in missed.items()
                if pages is not None
            },
        )


def _memory_of_gpus(sysfs: Path) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for node in gpu_memory_nodes(sysfs):
        found.update(read_node_memory(sysfs, node))
    return found


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Parse the values used here, in bytes by name, from lines like ``MemTotal:       263842796 kB``.

    Raises:
        ValueError: one of those lines has another format, or none exists.
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
    """Parse the counts used here, by name, from lines like ``pswpin 1203``.

    Raises:
        ValueError: one of those lines has another format, or none exists.
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
    # Both are sampled without a lock, so free may exceed total; such a pair is invalid.
    return None if whole is None or part is None or part > whole else whole - part


HOST_MEMORY = HostCollector(
    "host_memory", "memory, swap and paging", Tier.MEDIUM, lambda _config: HostMemoryReader().read
)
