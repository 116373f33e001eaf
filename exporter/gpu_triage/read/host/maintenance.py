"""Maintenance of the host: until when its findings cause no page and no drain.

`gpu-triage maintenance` writes the file, as root or as the exporter's user, also for Slurm's health check.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from gpu_triage.documents import AtMost, Pattern, Place, Range, read_value
from gpu_triage.documents.saved_state import LoadedState, StateKind
from gpu_triage.errors import HostReadFailed, StateError
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import Tier, host_gauge

LONGEST_SECONDS: Final = 30 * 86_400.0
LONGEST_REASON: Final = 100
FILE_NAME: Final = "maintenance.json"
COMMAND: Final = "command"
SLURM: Final = "slurm"
SOURCES: Final = (COMMAND, SLURM)

GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS = host_gauge(
    "gpu_host_maintenance_until_timestamp_seconds",
    "Unix time at which the maintenance of the host ends; absent outside maintenance. Source: the command, or slurm "
    "for a node that an administrator drained or reserved.",
    labels={"source": SOURCES, "reason": ()},
    source="maintenance.json in --state.directory",
)

_Time = Annotated[float, Range(0, 1e11)]
_Reason = Annotated[str, AtMost(LONGEST_REASON), Pattern(r"[^\x00-\x1f\x7f-\x9f]+", "a line of text")]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Until when it lasts, in Unix seconds; each source has at most one."""

    source: Literal["command", "slurm"]
    until: _Time
    reason: _Reason


def _from_document(document: dict[str, Any], where: Place, latest: float) -> LoadedState[tuple[Maintenance, ...]]:
    listed, where = document.get("maintenance"), where.at("maintenance")
    if not isinstance(listed, list):
        raise where.error("is not a list")
    found = read_value(tuple[Maintenance, ...], listed, where)
    if any(each.until > latest + LONGEST_SECONDS for each in found):
        raise where.error("ends more than 30 days ahead; run gpu-triage maintenance on again")
    return LoadedState(found)


FILE: Final[StateKind[tuple[Maintenance, ...]]] = StateKind(
    name="maintenance",
    things="maintenance",
    history="the maintenance",
    version=1,
    nothing=(),
    to_document=lambda memory: {"maintenance": [asdict(each) for each in memory]},
    from_document=_from_document,
)


def in_force(path: Path, now: float) -> tuple[Maintenance, ...]:
    """What is in force at this Unix time. Raises StateError if the file cannot be read."""
    loaded = FILE.read(path, now)
    return () if loaded is None else tuple(each for each in loaded.memory if each.until > now)


@dataclass(frozen=True, slots=True)
class MaintenanceReading:
    until: Annotated[Mapping[tuple[str, str], float], GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS]


def _reader(config: Config) -> Callable[[HostRound], MaintenanceReading]:
    path = (config.state_directory or Path()) / FILE_NAME

    def read(round_: HostRound) -> MaintenanceReading:
        try:
            found = in_force(path, round_.at.wall)
        except StateError as error:
            raise HostReadFailed(error.reason, path, error.detail.removeprefix(f"{path}: ")) from error
        return MaintenanceReading({(each.source, each.reason): each.until for each in found})

    return read


HOST_MAINTENANCE = HostCollector(
    name="maintenance",
    about="maintenance of the host",
    tier=Tier.MEDIUM,
    reader=_reader,
    needs="state_directory",
    own_lane=True,  # the disk, or its server, may hang
)
