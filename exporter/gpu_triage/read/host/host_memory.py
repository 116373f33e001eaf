"""Memory, swap and paging of the host, and its ECC errors by memory controller and DIMM (EDAC)."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import HostInquiry, names_in, parse_count, read_names, text_of
from gpu_triage.driver.kernel.numa import gpu_memory_nodes, node_folder, node_numbers
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters

_BYTES_PER_KIBIBYTE = 1024
_BYTES_PER_PAGE = os.sysconf("SC_PAGE_SIZE")  # 4 KiB on x86, 64 KiB on many ARM servers
_MOST_NODES = 64
"""Maximum NUMA nodes published: a GB200 has one per possible GPU instance."""
_MEMINFO = dict.fromkeys(("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"), _BYTES_PER_KIBIBYTE)
_OF_NODE = dict.fromkeys(("MemTotal", "MemFree"), _BYTES_PER_KIBIBYTE)
_VMSTAT = {"pswpin": _BYTES_PER_PAGE, "pswpout": _BYTES_PER_PAGE, "pgmajfault": 1}
_NUMASTAT = {"numa_miss": _BYTES_PER_PAGE}

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


def read_host_memory(counters: MonotoneCounters, round_: HostRound) -> HostMemoryReading:
    """Read memory; its counters stay monotonic, as they may drop while a CPU goes offline."""
    inquiry, procfs, sysfs = HostInquiry(round_.failures), round_.machine.procfs, round_.machine.sysfs
    vmstat = inquiry.parse(procfs / "vmstat", partial(parse_values, scales=_VMSTAT), required=True) or {}
    host = inquiry.need(procfs / "meminfo", partial(parse_values, scales=_MEMINFO, unit="kB"))
    numbers = inquiry.ask(lambda: node_numbers(sysfs)) or ()
    nodes = {node: _read_node(inquiry, sysfs, node) for node in numbers} if len(numbers) > 1 else {}
    of_gpus: Counter[str] = Counter()
    for node in inquiry.ask(lambda: gpu_memory_nodes(sysfs)) or ():
        of_gpus.update(nodes.get(node, {}))
    inquiry.finish()
    shown = [(str(node), nodes[node]) for node in sorted(nodes)[:_MOST_NODES]]
    reading = HostMemoryReading(
        total_bytes=_difference(host.get("MemTotal"), of_gpus["MemTotal"]),
        available_bytes=_difference(host.get("MemAvailable"), of_gpus["MemFree"]),
        swap_total_bytes=host.get("SwapTotal"),
        swap_used_bytes=_difference(host.get("SwapTotal"), host.get("SwapFree")),
        swap_in_bytes=vmstat.get("pswpin"),
        swap_out_bytes=vmstat.get("pswpout"),
        major_faults=vmstat.get("pgmajfault"),
        node_total_bytes={node: found["MemTotal"] for node, found in shown if "MemTotal" in found},
        node_free_bytes={node: found["MemFree"] for node, found in shown if "MemFree" in found},
        node_miss_bytes={node: found["numa_miss"] for node, found in shown if "numa_miss" in found},
    )
    return counters.continued(reading)


def _read_node(inquiry: HostInquiry, sysfs: Path, node: int) -> dict[str, int]:
    """Bytes of memory of a NUMA node, and of what was intended for another one (``numa_miss``)."""
    folder = node_folder(sysfs, node)
    of_node = partial(parse_values, scales=_OF_NODE, unit="kB", before=f"Node {node} ")
    memory = inquiry.parse(folder / "meminfo", of_node) or {}
    return memory | (inquiry.parse(folder / "numastat", partial(parse_values, scales=_NUMASTAT)) or {})


def parse_values(text: str, scales: Mapping[str, int], unit: str = "", before: str = "") -> dict[str, int]:
    """Parse lines like ``MemTotal:  263842796 kB`` or, without a unit, ``pswpin 3``; all may begin with text `before`.

    `scales` has the names of the values, and by what each is multiplied.
    """
    found: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.removeprefix(before).replace(":", " ", 1).partition(" ")
        if name in scales:
            if not value.endswith(unit):
                raise ValueError(f"{line[:80]!r} is not in {unit}")
            found[name] = parse_count(value.removesuffix(unit).strip()) * scales[name]
    if not found:
        raise ValueError("none of the lines that every kernel has")
    return found


def _difference(whole: int | None, part: int | None) -> int | None:
    # Both are sampled without a lock, so free may exceed total; such a pair is invalid.
    return None if whole is None or part is None or part > whole else whole - part


HOST_MEMORY = HostCollector(
    "memory, swap and paging", Tier.MEDIUM, lambda _config: partial(read_host_memory, MonotoneCounters())
)


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


def read_host_edac(counters: MonotoneCounters, round_: HostRound) -> HostEdacReading:
    """Read error counts; they stay monotonic, as root can reset them (``reset_counters``)."""
    sysfs = round_.machine.sysfs
    inquiry = HostInquiry(round_.failures, sysfs)
    root = sysfs / "devices" / "system" / "edac" / "mc"
    controllers = [name for name in read_names(root) or () if _CONTROLLER.fullmatch(name)]
    reading = HostEdacReading(
        controllers={
            (name, severity): count
            for name in controllers
            for severity, count in _errors(inquiry, root / name, "{}_count")
        },
        dimms={
            (name, dimm, text_of(root / name / dimm / "dimm_label").strip(), severity): count
            for name in controllers
            for dimm in _dimms(root / name)
            for severity, count in _errors(inquiry, root / name / dimm, "dimm_{}_count")
        },
    )
    inquiry.finish()
    return counters.continued(reading)


def _errors(inquiry: HostInquiry, folder: Path, file: str) -> Iterator[tuple[str, int]]:
    """Yield the counts by severity; those that are unreadable are missing."""
    for severity, kind in _SEVERITIES.items():
        count = inquiry.parse(folder / file.format(kind), lambda text: parse_count(text.strip()))
        if count is not None:
            yield severity, count


def _dimms(controller: Path) -> list[str]:
    found = filter(None, map(_DIMM.fullmatch, names_in(controller)))
    return [match[0] for match in sorted(found, key=lambda match: (match[1], int(match[2])))]


HOST_EDAC = HostCollector(
    "errors of the host's memory (EDAC)", Tier.SLOW, lambda _config: partial(read_host_edac, MonotoneCounters())
)
