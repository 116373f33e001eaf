"""Which Kubernetes container has which id, from the names of the links to containers' logs.

The kubelet keeps a link ``POD_NAMESPACE_CONTAINER-ID.log`` for each container in /var/log/containers. Everybody may
list that folder; where the links lead, and what the logs say, is not looked at. With the container's id from a
process's cgroup it tells whose a process is even where several pods share its GPU, and without the kubelet's socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import read_names
from gpu_triage.machine import Workload
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Tier
from gpu_triage.subjects.rounds import HostRound

MAX_CONTAINERS: Final = 8192
"""A node runs some hundred pods, and keeps a few dead containers of each."""

# Names of pods and namespaces have no underscores, those of containers neither; a name that was too long for the file
# system is cut at its end and has no whole id.
_LINK: Final = re.compile(
    r"(?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9-]{1,63})-(?P<id>[0-9a-f]{64})\.log"
)


class ContainerLinks:
    """Containers by id, kept from one reading to the next; may be asked from any thread.

    An id is never given to another container, so what was once read stays true.
    """

    def __init__(self, directory: Path) -> None:
        """Nothing is known until refreshed."""
        self._directory = directory
        self._names: tuple[str, ...] = ()
        self._containers: Mapping[str, Workload] = {}

    def refresh(self) -> tuple[str, ...]:
        """As ContainerNames."""
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such folder; is this a node of a cluster?")
        kept = tuple(names[:MAX_CONTAINERS])
        if kept != self._names:
            # Swapped in whole: readers are on other threads.
            self._names, self._containers = kept, parse_links(kept)
        return ("too_many_containers",) if len(names) > MAX_CONTAINERS else ()

    def workload(self, container_id: str) -> Workload | None:
        """As ContainerNames."""
        return self._containers.get(container_id)


def parse_links(names: tuple[str, ...]) -> Mapping[str, Workload]:
    """Containers by id, of names in /var/log/containers; other names are ignored."""
    matches = (_LINK.fullmatch(name) for name in names)
    return {m["id"]: Workload(m["pod"], m["namespace"], m["container"]) for m in matches if m is not None}


def read_container_names(round_: HostRound) -> None:
    """Nothing; the machine's ContainerNames are refreshed.

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
