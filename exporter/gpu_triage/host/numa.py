"""NUMA nodes of the host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import parse_cpu_list, read_names, read_text

if TYPE_CHECKING:
    from pathlib import Path

_NODE = re.compile(r"node([0-9]{1,5})")


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
