"""The topologies of deploy/fleet: their servers, and the configuration of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Program(Enum):
    """A server, with the ports in the configurations, that of its web interface first."""

    PROMETHEUS = (9090,)
    AGENT = (9091,)
    ALERTMANAGER = (9093, 9094)
    VICTORIA_METRICS = (8428,)


@dataclass(frozen=True, slots=True)
class Part:
    """One server."""

    name: str  # host name in the configurations
    program: Program  # what runs there
    config: str = ""  # its configuration below ``prometheus/``; "" if it has none there
    values: Mapping[str, str] = field(default_factory=dict)  # values for the ``${…}`` in it
    flags: tuple[str, ...] = ()  # additional flags; a ``NAME:PORT`` of a part is replaced by its address


@dataclass(frozen=True, slots=True)
class Topology:
    """A set of servers that monitor GPU hosts together."""

    parts: tuple[Part, ...]  # its servers, in start order
    asked: str  # the part with data for the whole fleet


_ALERTMANAGER = Part("alertmanager", Program.ALERTMANAGER)

SHARDS: Final = Topology(
    (
        _ALERTMANAGER,
        *(Part(f"shard-{n}", Program.PROMETHEUS, "shard.yml", {"SHARD": str(n)}) for n in range(2)),
        Part("above", Program.PROMETHEUS, "above.yml"),
    ),
    "above",
)
PAIR: Final = Topology(
    (
        *(
            Part(
                f"alertmanager-{n}",
                Program.ALERTMANAGER,
                flags=(
                    f"--cluster.listen-address=alertmanager-{n}:9094",
                    f"--cluster.peer=alertmanager-{1 - n}:9094",
                    f"--cluster.advertise-address=alertmanager-{n}:9094",
                ),
            )
            for n in range(2)
        ),
        *(Part(f"replica-{each}", Program.PROMETHEUS, "replica.yml", {"REPLICA": each}) for each in "ab"),
    ),
    "replica-a",
)
VICTORIA: Final = Topology(
    (
        _ALERTMANAGER,
        Part("victoria", Program.VICTORIA_METRICS),
        *(Part(f"shard-{n}", Program.PROMETHEUS, "shard-remote-write.yml", {"SHARD": str(n)}) for n in range(2)),
    ),
    "victoria",
)
AGENTS: Final = Topology(
    (
        _ALERTMANAGER,
        Part("central", Program.PROMETHEUS, "central.yml", flags=("--web.enable-remote-write-receiver",)),
        *(Part(f"agent-{site}", Program.AGENT, "agent.yml", {"SITE": site}) for site in ("east", "west")),
    ),
    "central",
)
TOPOLOGIES: Final = (SHARDS, PAIR, VICTORIA, AGENTS)
