"""NUMA nodes of the host, how far they are from each other, and their memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import parse_count, parse_cpu_list, read_names, read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_NODE = re.compile(r"node([0-9]{1,5})")
_MEMORY = re.compile(r"Node [0-9]{1,5} (MemTotal|MemFree): +([0-9]{1,20}) kB")

CLEARLY_FARTHER: Final = 10
"""Difference of distances from which a node is on another socket.

The kernel has 10 for a node itself and 20 for another one of which the firmware says nothing (``LOCAL_DISTANCE`` and
``REMOTE_DISTANCE`` of include/linux/topology.h). Firmware has 11 to 16 for nodes of one socket (NPS2, NPS4, SNC, the
dies of an EPYC 7001), and 20 to 40 for another one.
"""


def read_numa_nodes(sysfs: Path) -> dict[int, frozenset[int]]:
    """CPUs that are online, by NUMA node; ``{0: {0, 1}, 1: {2, 3}}``.

    Nodes without CPUs (CXL memory, the memory of a Grace system's GPUs) are left out. Empty when the kernel
    does not say. Source: ``/sys/devices/system/node/node*/cpulist``.

    Raises:
        HostReadFailed: a node cannot be read or understood. The others are not returned: with a node missing,
            local would look remote.
    """
    directory = sysfs / "devices" / "system" / "node"
    nodes: dict[int, frozenset[int]] = {}
    for name in read_names(directory) or ():
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        path = f"{directory}/{name}/cpulist"
        try:
            cpus = parse_cpu_list(read_text(path) or "")
        except ValueError as error:
            raise HostReadFailed("malformed", path, str(error)) from error
        if cpus:
            nodes[int(match[1])] = cpus
    return dict(sorted(nodes.items()))


def node_numbers(sysfs: Path) -> tuple[int, ...]:
    """Numbers of all nodes that are online, in order, those without CPUs among them; none where the kernel has no NUMA.

    Raises:
        HostReadFailed: they cannot be listed.
    """
    names = read_names(sysfs / "devices" / "system" / "node") or ()
    return tuple(sorted(int(match[1]) for name in names if (match := _NODE.fullmatch(name))))


def read_distances(sysfs: Path, node: int) -> dict[int, int]:
    """Distance from a node to each node that is online, itself among them; empty where the kernel does not say.

    Source: ``/sys/devices/system/node/node*/distance``: a number for each online node, in their order.

    Raises:
        HostReadFailed: it cannot be read or understood.
    """
    directory = sysfs / "devices" / "system" / "node"
    text = read_text(directory / f"node{node}" / "distance")
    if text is None:
        return {}
    try:
        return dict(zip(node_numbers(sysfs), map(parse_count, text.split()), strict=True))
    except ValueError as error:
        raise HostReadFailed("malformed", directory / f"node{node}" / "distance", str(error)) from error


def near_nodes(node: int, with_cpus: Collection[int], distances: Mapping[int, int]) -> frozenset[int]:
    """The nodes with CPUs that are about as near to a node as the nearest of them; none where that is not known.

    Args:
        node: whose side of the host it is; it need not have CPUs itself.
        with_cpus: nodes that have CPUs.
        distances: from the node, as `read_distances` gives them.
    """
    known = {each: distances[each] for each in with_cpus if each in distances}
    if not known:
        return frozenset({node}.intersection(with_cpus))
    nearest = min(known.values())
    return frozenset(each for each, distance in known.items() if distance - nearest < CLEARLY_FARTHER)


def gpu_memory_nodes(sysfs: Path) -> frozenset[int]:
    """Nodes whose memory is that of GPUs, which the driver gives to the kernel as system memory (GH200, GB200).

    The firmware declares them as generic initiators: devices that access memory without being CPUs. Memory behind CXL
    has no CPUs either, and is none. Source: ``/sys/devices/system/node/has_generic_initiator`` (Linux 5.10).

    Raises:
        HostReadFailed: the nodes cannot be read or understood.
    """
    path = sysfs / "devices" / "system" / "node" / "has_generic_initiator"
    try:
        initiators = parse_cpu_list(read_text(path) or "")
    except ValueError as error:
        raise HostReadFailed("malformed", path, str(error)) from error
    return initiators.difference(read_numa_nodes(sysfs)) if initiators else initiators


def read_node_memory(sysfs: Path, node: int) -> dict[str, int]:
    """Bytes by name (``MemTotal``, ``MemFree``) of a node; empty where the kernel does not say.

    Source: ``/sys/devices/system/node/node*/meminfo``: lines like ``Node 1 MemTotal:       98304 kB``

    Raises:
        HostReadFailed: it cannot be read or understood.
    """
    path = sysfs / "devices" / "system" / "node" / f"node{node}" / "meminfo"
    found: dict[str, int] = {}
    for line in (read_text(path) or "").split("\n"):
        match = _MEMORY.match(line)
        if match is not None:
            found[match[1]] = int(match[2]) * 1024
    return found


def read_node_misses(sysfs: Path, node: int) -> int | None:
    """Pages that were wanted from another node and taken from this one since boot; None where it is not counted.

    Source: ``/sys/devices/system/node/node*/numastat``, ``numa_miss``, https://docs.kernel.org/admin-guide/numastat.html

    Raises:
        HostReadFailed: it cannot be read or understood.
    """
    path = sysfs / "devices" / "system" / "node" / f"node{node}" / "numastat"
    for line in (read_text(path) or "").split("\n"):
        name, _, count = line.partition(" ")
        if name == "numa_miss":
            try:
                return parse_count(count.strip())
            except ValueError as error:
                raise HostReadFailed("malformed", path, str(error)) from error
    return None
