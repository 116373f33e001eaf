"""Map container IDs to Kubernetes names, using the names of the log symlinks in /var/log/containers.

The kubelet keeps a symlink ``POD_NAMESPACE_CONTAINER-ID.log`` for each container in /var/log/containers, and any user
may list that folder. Link targets and log contents are not read. Combined with the container ID in a process's cgroup,
this identifies the pod even if several pods share the GPU, and without the kubelet's socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import read_names
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Workload
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.metrics.rounds import HostRound

MAX_CONTAINERS: Final = 8192
"""A node runs a few hundred pods at most, and keeps a few dead containers of each."""

# Pod, namespace and container names contain no underscores. A name too long for the file system is truncated at the
# end, so it lacks a complete ID and does not match.
_LINK: Final = re.compile(
    r"(?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9-]{1,63})-(?P<id>[0-9a-f]{64})\.log"
)


class ContainerLinks:
    """Containers by ID, cached between refreshes; thread-safe.

    Container IDs are never reused, so a stale entry is never wrong.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: tuple[str, ...] = ()
        self._containers: Mapping[str, Workload] = {}

    def refresh(self) -> tuple[str, ...]:
        """See `ContainerNames`."""
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such folder; is this a node of a cluster?")
        kept = tuple(names[:MAX_CONTAINERS])
        if kept != self._names:
            # Replaced atomically: other threads read it.
            self._names, self._containers = kept, parse_links(kept)
        return ("too_many_containers",) if len(names) > MAX_CONTAINERS else ()

    def workload(self, container_id: str) -> Workload | None:
        """See `ContainerNames`."""
        return self._containers.get(container_id)


def parse_links(names: tuple[str, ...]) -> Mapping[str, Workload]:
    """Parse names in /var/log/containers into containers by ID; other names are ignored."""
    matches = (_LINK.fullmatch(name) for name in names)
    return {m["id"]: Workload(m["pod"], m["namespace"], m["container"]) for m in matches if m is not None}


def read_container_names(round_: HostRound) -> None:
    """Refresh the machine's ContainerNames; produces no samples.

    Raises:
        HostReadFailed: the folder is missing or cannot be listed.
    """
    if round_.machine.containers is not None:
        round_.failures.extend(round_.machine.containers.refresh())


CONTAINER_NAMES = HostCollector(
    name="container_names",
    about="names of the pods and containers of processes",
    tier=Tier.MEDIUM,
    reader=lambda _config: read_container_names,
    needs="kubernetes_container_logs",
    own_lane=True,
)
