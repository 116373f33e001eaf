"""NUMA nodes of the host: CPUs, distances and memory."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import parse_count, parse_cpu_list, parse_file, read_names

_NODES = "devices/system/node"
_NODE = re.compile(r"node([0-9]{1,5})")

CLEARLY_FARTHER: Final = 10
"""Distance difference from which a node is considered to be on another socket.

The kernel uses 10 for the node itself and 20 for other nodes without firmware data (``LOCAL_DISTANCE`` and
``REMOTE_DISTANCE`` of include/linux/topology.h). Firmware reports 11 to 16 for nodes of one socket (NPS2, NPS4, SNC,
dies of an EPYC 7001), and 20 to 40 for another socket.
"""


def read_numa_nodes(sysfs: Path) -> dict[int, frozenset[int]]:
    """Online CPUs by NUMA node; ``{0: {0, 1}, 1: {2, 3}}``.

    Nodes without CPUs (CXL memory, GPU memory of Grace systems) are left out. Empty if the kernel does not report
    nodes. Source: ``/sys/devices/system/node/node*/cpulist``.
    """
    read = {node: parse_file(node_folder(sysfs, node) / "cpulist", parse_cpu_list) for node in node_numbers(sysfs)}
    return {node: cpus for node, cpus in read.items() if cpus}


def node_numbers(sysfs: Path) -> tuple[int, ...]:
    """Numbers of all online nodes in order, including those without CPUs; empty if the kernel has no NUMA support."""
    names = read_names(sysfs / _NODES) or ()
    return tuple(sorted(int(match[1]) for name in names if (match := _NODE.fullmatch(name))))


def read_distances(sysfs: Path, node: int) -> dict[int, int]:
    """Distance from a node to each online node, including itself; empty if the kernel does not report it."""
    nodes = node_numbers(sysfs)

    def by_node(text: str) -> dict[int, int]:
        return dict(zip(nodes, map(parse_count, text.split()), strict=True))

    return parse_file(node_folder(sysfs, node) / "distance", by_node) or {}


def near_nodes(node: int, with_cpus: Collection[int], distances: Mapping[int, int]) -> frozenset[int]:
    """Nodes with CPUs at about the same distance from `node` as the nearest of them; empty if unknown."""
    known = {each: distances[each] for each in with_cpus if each in distances}
    if not known:
        return frozenset({node}.intersection(with_cpus))
    nearest = min(known.values())
    return frozenset(each for each, distance in known.items() if distance - nearest < CLEARLY_FARTHER)


def gpu_memory_nodes(sysfs: Path) -> frozenset[int]:
    """Nodes that are GPU memory, which the driver adds to the kernel as system memory (GH200, GB200).

    The firmware declares them as generic initiators: devices that access memory but are not CPUs. CXL memory nodes have
    no CPUs either, but are not initiators. Source: ``/sys/devices/system/node/has_generic_initiator`` (Linux 5.10).
    """
    initiators = parse_file(sysfs / _NODES / "has_generic_initiator", parse_cpu_list) or frozenset()
    return initiators.difference(read_numa_nodes(sysfs)) if initiators else initiators


def node_folder(sysfs: Path, node: int) -> Path:
    return sysfs / _NODES / f"node{node}"
