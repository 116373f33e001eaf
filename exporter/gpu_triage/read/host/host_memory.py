"""Memory, swap and paging of the host, and its ECC errors by memory controller and DIMM (EDAC)."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, names_in, parse_count, read_names, text_of
from gpu_triage.driver.kernel.numa import gpu_memory_nodes, node_numbers, read_node_memory, read_node_misses
from gpu_triage.read.metrics.contract import HostCollector, HostRound, known
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters

_BYTES_PER_KIBIBYTE = 1024
_MOST_NODES = 64
"""Maximum NUMA nodes published: a GB200 has one per possible GPU instance."""
_MEMINFO = frozenset({"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"})
_VMSTAT = frozenset({"pswpin", "pswpout", "pgmajfault"})

GPU_HOST_MEMORY_TOTAL_BYTES = host_gauge(
    "Memory available to the kernel, without that of GPUs (gpu_memory_os_managed).", source="/proc/meminfo MemTotal"
)
GPU_HOST_MEMORY_AVAILABLE_BYTES = host_gauge(
    "Memory available to new work without swapping, by the kernel's estimate, without free memory of GPUs.",
    source="/proc/meminfo MemAvailable",
)
GPU_HOST_SWAP_TOTAL_BYTES = host_gauge("Swap space; 0 without swap.", source="/proc/meminfo SwapTotal")
GPU_HOST_SWAP_USED_BYTES = host_gauge("Swap space in use.", source="/proc/meminfo SwapTotal - SwapFree")
GPU_HOST_SWAP_IN_BYTES_TOTAL = host_counter("Bytes read back from swap since boot.", source="/proc/vmstat pswpin")
GPU_HOST_SWAP_OUT_BYTES_TOTAL = host_counter("Bytes written to swap since boot.", source="/proc/vmstat pswpout")
GPU_HOST_MAJOR_FAULTS_TOTAL = host_counter(
    "Page faults since boot that had to wait for storage.", source="/proc/vmstat pgmajfault"
)
_node_gauge = partial(host_gauge, labels=("numa_node",), default_samples=no_sample)

GPU_HOST_NUMA_MEMORY_TOTAL_BYTES = _node_gauge(
    "Memory of the NUMA node, including nodes without CPUs (GPUs, CXL). Only in profile full; absent on hosts with one "
    "node.",
    source="/sys/devices/system/node/node*/meminfo MemTotal",
)
GPU_HOST_NUMA_MEMORY_FREE_BYTES = _node_gauge(
    "Memory of the NUMA node unused even by the page cache. Only in profile full; absent on hosts with one node.",
    source="/sys/devices/system/node/node*/meminfo MemFree",
)
GPU_HOST_NUMA_MISS_BYTES_TOTAL = host_counter(
    "Memory that processes got from this NUMA node because the requested one had none left. Only in profile full; "
    "absent on hosts with one node.",
    labels=("numa_node",),
    source="/sys/devices/system/node/node*/numastat numa_miss",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class HostMemoryReading:
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
        inquiry, published = HostInquiry(round_.failures), self._counters.published
        procfs, sysfs = round_.machine.procfs, round_.machine.sysfs
        vmstat = inquiry.parse(procfs / "vmstat", partial(parse_values, names=_VMSTAT), required=True) or {}
        meminfo = inquiry.need(procfs / "meminfo", partial(parse_values, names=_MEMINFO, unit="kB"))
        of_gpus = inquiry.ask(lambda: _memory_of_gpus(sysfs)) or {}
        nodes = inquiry.ask(lambda: node_numbers(sysfs)) or ()
        shown = nodes[:_MOST_NODES] if len(nodes) > 1 else ()
        memory = {str(node): inquiry.ask(partial(read_node_memory, sysfs, node)) or {} for node in shown}
        missed = {str(node): inquiry.ask(partial(read_node_misses, sysfs, node)) for node in shown}
        inquiry.finish()
        memory_bytes = {name: kibibytes * _BYTES_PER_KIBIBYTE for name, kibibytes in meminfo.items()}
        # vmstat counts in pages of this kernel: 4 KiB on x86, 64 KiB on many ARM servers.
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        counts = {name: published(name, count) for name, count in vmstat.items()}
        return HostMemoryReading(
            total_bytes=_difference(memory_bytes.get("MemTotal"), of_gpus.get("MemTotal", 0)),
            available_bytes=_difference(memory_bytes.get("MemAvailable"), of_gpus.get("MemFree", 0)),
            swap_total_bytes=memory_bytes.get("SwapTotal"),
            swap_used_bytes=_difference(memory_bytes.get("SwapTotal"), memory_bytes.get("SwapFree")),
            swap_in_bytes=counts["pswpin"] * page_bytes if "pswpin" in counts else None,
            swap_out_bytes=counts["pswpout"] * page_bytes if "pswpout" in counts else None,
            major_faults=counts.get("pgmajfault"),
            node_total_bytes={node: found["MemTotal"] for node, found in memory.items() if "MemTotal" in found},
            node_free_bytes={node: found["MemFree"] for node, found in memory.items() if "MemFree" in found},
            node_miss_bytes={
                node: published(f"misses of node {node}", pages) * page_bytes for node, pages in known(missed).items()
            },
        )


def _memory_of_gpus(sysfs: Path) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for node in gpu_memory_nodes(sysfs):
        found.update(read_node_memory(sysfs, node))
    return found


def parse_values(text: str, names: Collection[str], unit: str = "") -> dict[str, int]:
    """Parse the values with these names, of lines like ``MemTotal:  263842796 kB`` or, without a unit, ``pswpin 3``."""
    found: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.replace(":", " ", 1).partition(" ")
        if name in names:
            if not value.endswith(unit):
                raise ValueError(f"{line[:80]!r} is not in {unit}")
            found[name] = parse_count(value.removesuffix(unit).strip())
    if not found:
        raise ValueError("none of the lines that every kernel has")
    return found


def _difference(whole: int | None, part: int | None) -> int | None:
    # Both are sampled without a lock, so free may exceed total; such a pair is invalid.
    return None if whole is None or part is None or part > whole else whole - part


HOST_MEMORY = HostCollector("memory, swap and paging", Tier.MEDIUM, lambda _config: HostMemoryReader().read)


_CONTROLLER: Final = re.compile(r"mc[0-9]{1,3}")
_DIMM: Final = re.compile(r"(dimm|rank)([0-9]{1,3})")
"""Kernel names of a controller's DIMMs, or ranks if the driver does not list DIMMs; numbers may have gaps."""
_SEVERITIES: Final = {"corrected": "ce", "uncorrected": "ue"}

GPU_HOST_EDAC_ERRORS_TOTAL = host_counter(
    "Errors of the host's memory since the driver of its memory controller was loaded, by severity ({severity}). "
    "Absent without ECC memory or EDAC driver.",
    labels={"controller": ANY, "severity": _SEVERITIES},
    source="/sys/devices/system/edac/mc/mc*/{ce,ue}_count",
)
GPU_HOST_EDAC_DIMM_ERRORS_TOTAL = host_counter(
    "The same by DIMM, or by rank if the driver does not know DIMMs. `dimm_label` may match the print next to the "
    "slot. DIMMs without errors are only in profile full.",
    labels={"controller": ANY, "dimm": ANY, "dimm_label": ANY, "severity": _SEVERITIES},
    source="/sys/devices/system/edac/mc/mc*/{dimm,rank}*/dimm_{ce,ue}_count",
    default_samples=lambda sample: bool(sample.value),
)


@dataclass(frozen=True, slots=True)
class HostEdacReading:
    """Monotonic error counts of the host's memory by the metrics' labels; empty if no EDAC driver is loaded.

    A DIMM has its kernel name (``dimm3``, ``rank1``) and its label (``CPU_SrcID#0_MC#0_Chan#1_DIMM#0``, or "").
    """

    controllers: Annotated[Mapping[tuple[str, str], int], GPU_HOST_EDAC_ERRORS_TOTAL]
    dimms: Annotated[Mapping[tuple[str, str, str, str], int], GPU_HOST_EDAC_DIMM_ERRORS_TOTAL]


class HostEdacReader:
    """Reads error counts; keeps them monotonic, as root can reset them (``reset_counters``)."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()

    def read(self, round_: HostRound) -> HostEdacReading:
        sysfs = round_.machine.sysfs
        inquiry = HostInquiry(round_.failures, sysfs)
        root = sysfs / "devices" / "system" / "edac" / "mc"
        controllers = [name for name in read_names(root) or () if _CONTROLLER.fullmatch(name)]
        reading = HostEdacReading(
            controllers={
                (name, severity): count
                for name in controllers
                for severity, count in self._errors(inquiry, root / name, (name, ""), "{}_count")
            },
            dimms={
                (name, dimm, text_of(root / name / dimm / "dimm_label").strip(), severity): count
                for name in controllers
                for dimm in _dimms(root / name)
                for severity, count in self._errors(inquiry, root / name / dimm, (name, dimm), "dimm_{}_count")
            },
        )
        inquiry.finish()
        return reading

    def _errors(
        self, inquiry: HostInquiry, folder: Path, controller: tuple[str, str], file: str
    ) -> Iterator[tuple[str, int]]:
        """Yield the counts by severity; those that are unreadable are missing."""
        for severity, kind in _SEVERITIES.items():
            count = inquiry.parse(folder / file.format(kind), _count)
            if count is not None:
                yield severity, self._counters.published((*controller, severity), count)


def _count(text: str) -> int:
    return parse_count(text.strip())


def _dimms(controller: Path) -> list[str]:
    found = filter(None, map(_DIMM.fullmatch, names_in(controller)))
    return [match[0] for match in sorted(found, key=lambda match: (match[1], int(match[2])))]


HOST_EDAC = HostCollector("errors of the host's memory (EDAC)", Tier.SLOW, lambda _config: HostEdacReader().read)
