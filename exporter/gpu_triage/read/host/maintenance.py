"""Maintenance of the host: until when its findings cause no page and no drain.

`gpu-triage maintenance` writes the files, as root or as the exporter's user, also for Slurm's health check.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import Place, Range, read_value
from gpu_triage.documents.saved_state import MOST_AHEAD_SECONDS, LoadedState, StateKind, read_by_a_collector
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.decisions import Line
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier, host_gauge

LONGEST_DAYS: Final = 30
LONGEST_SECONDS: Final = LONGEST_DAYS * 86_400.0
COMMAND: Final = "command"
SLURM: Final = "slurm"
SOURCES: Final = (COMMAND, SLURM)

GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS = host_gauge(
    "Unix time at which the maintenance of the host ends; absent outside maintenance. Source: the command, or slurm "
    "for a node that an administrator drained or reserved.",
    labels={"source": SOURCES, "reason": ()},
    source="maintenance-*.json in --state.directory",
)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Until when it lasts, in Unix seconds, and why."""

    until: Annotated[float, Range(0, 1e11)]
    reason: Line


def _from_document(document: dict[str, Any], where: Place, latest: float) -> LoadedState[Maintenance | None]:
    found = read_value(Maintenance, document, where)
    if found.until > latest + LONGEST_SECONDS:
        raise where.at("until").error(f"is more than {LONGEST_DAYS} days ahead; run gpu-triage maintenance on again")
    return LoadedState(found)


FILE: Final[StateKind[Maintenance | None]] = StateKind(
    name="maintenance",
    things="maintenance",
    history="the maintenance",
    version=1,
    nothing=None,
    to_document=lambda memory: {} if memory is None else asdict(memory),
    from_document=_from_document,
)
"""The file of each source."""


def path_of(source: str, directory: Path) -> Path:
    return directory / f"{FILE.name}-{source}.json"


def in_force(directory: Path, now: float) -> dict[str, Maintenance]:
    """What is in force at this Unix time, by source, unless written by a clock far ahead. Raises StateError."""
    latest = now + LONGEST_SECONDS + MOST_AHEAD_SECONDS
    loaded = {source: FILE.read(path_of(source, directory), now) for source in SOURCES}
    found = {source: each.memory for source, each in loaded.items() if each is not None}
    return {source: each for source, each in found.items() if each is not None and now < each.until <= latest}


@dataclass(frozen=True, slots=True)
class MaintenanceReading:
    until: Annotated[Mapping[tuple[str, str], float], GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS]


def _reader(config: Config) -> Callable[[HostRound], MaintenanceReading]:
    directory = config.state_directory or Path()

    def read(round_: HostRound) -> MaintenanceReading:
        with read_by_a_collector(directory):
            found = in_force(directory, round_.at.wall)
        return MaintenanceReading({(source, each.reason): each.until for source, each in found.items()})

    return read


MAINTENANCE = HostCollector(
    about="maintenance of the host",
    tier=Tier.MEDIUM,
    reader=_reader,
    needs="state_directory",
    own_lane=True,  # the disk, or its server, may hang
    kept_while_stalled=True,
)
