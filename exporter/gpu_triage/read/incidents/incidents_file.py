"""The file that the incident ledger is stored in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Annotated, Any, Final

from gpu_triage.documents import Place, Range, read_value
from gpu_triage.documents.saved_state import MOST_AHEAD_SECONDS, LoadedState, StateKind, read_entries
from gpu_triage.driver.nvml.session import MAX_GPUS
from gpu_triage.errors import DocumentError
from gpu_triage.read.incidents import incident_metrics as metrics
from gpu_triage.read.incidents.ledger import MOST_INCIDENTS, Board, Incident, Memory, Name


@dataclass(frozen=True, slots=True)
class _Head:
    boot: Name = ""
    most_gpus: Annotated[int, Range(0, MAX_GPUS)] = 0


def _document(memory: Memory) -> dict[str, Any]:
    return {
        "boot": memory.boot,
        "most_gpus": memory.most_gpus,
        "boards": [asdict(board) for board in memory.boards.values()],
        "incidents": [asdict(incident) for incident in memory.incidents],
    }


def _found(document: dict[str, Any], where: Place, latest: float) -> LoadedState[Memory]:
    all_boards, all_incidents = (document.pop(key, None) for key in ("boards", "incidents"))
    head, refused = _Head(), tuple[str, ...]()
    try:
        head = read_value(_Head, document, where)
    except DocumentError as error:
        refused = error.problems

    def check_board(board: Board, place: Place) -> None:
        _check_time(board.first_seen_at, latest, place.at("first_seen_at"))

    def check_incident(incident: Incident, place: Place) -> None:
        _check_time(incident.last_at, latest, place.at("last_at"))
        if incident.first_at > incident.last_at:
            raise place.at("last_at").error("is before first_at")

    boards, wrong_boards = read_entries(Board, all_boards, MAX_GPUS, where.at("boards"), check_board)
    incidents, wrong = read_entries(Incident, all_incidents, MOST_INCIDENTS, where.at("incidents"), check_incident)
    known = MappingProxyType({board.uuid: board for board in boards})
    return LoadedState(Memory(head.boot, head.most_gpus, known, incidents), (*refused, *wrong_boards, *wrong))


def _check_time(at: float, latest: float, where: Place) -> None:
    if at > latest:
        written = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise where.error(f"is {written}, more than {MOST_AHEAD_SECONDS / 3600:.0f} hours in the future")


INCIDENT_HISTORY: Final = StateKind(
    name=metrics.NAME,
    things="incidents",
    history="the incident history",
    version=1,
    nothing=Memory(),
    to_document=_document,
    from_document=_found,
)
