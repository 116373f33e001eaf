"""Remembers for weeks which incidents hit which board and slot, so that repeat offenders show.

An incident is an Xid that warrants a page or a ticket, a lost GPU, an increase of its uncorrected memory errors, or a
reset. Incidents of the same kind on the same board less than an hour apart count as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Annotated, Any, Final

from gpu_triage.documents import AtMost, Pattern, Place, Range, read_value
from gpu_triage.documents.saved_state import MOST_AHEAD_SECONDS, LoadedState, StateKind, read_entries
from gpu_triage.driver.nvml.session import MAX_GPUS
from gpu_triage.errors import DocumentError
from gpu_triage.read.incidents.incident_metrics import INCIDENTS, WINDOW_DAYS
from gpu_triage.read.xid.codes import XID_CODES, XidKind

LOST: Final = "lost"
UNCORRECTED: Final = "uncorrected"
RESET: Final = "reset"

MOST_INCIDENTS: Final = 2000  # above this, the oldest incidents are dropped; resets, which matter least, go first
SAME_SECONDS: Final = 3600.0  # incidents of the same kind on the same board within this time count as one
DAY_SECONDS: Final = 86_400.0
_LASTING_SECONDS: Final = 600.0
"""A continuing incident is updated only this often, so that the file isn't rewritten for every repetition."""

_MOST_FACTS: Final = 16
_MOST_CHARACTERS: Final = 200
_MOST_KINDS: Final = 16
"""The most kinds published per GPU."""

_COUNTED_KINDS: Final = frozenset({XidKind.PAGE, XidKind.TICKET})

Name = Annotated[str, Pattern(r"[A-Za-z0-9_.:-]{0,80}", "a name of letters, digits and _ . : -, at most 80")]
Time = Annotated[float, Range(0, 1e11)]
Kind = Annotated[
    str, Pattern(rf"[0-9]{{1,5}}|{LOST}|{UNCORRECTED}|{RESET}", f"an Xid, {LOST}, {UNCORRECTED} or {RESET}")
]


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident on a board or in a slot (a bus ID), in Unix seconds; "" for what is unknown.

    The kind is the Xid as text, or ``lost``, ``uncorrected`` or ``reset``. `uptime_seconds` is the time since boot at
    `last_at`, from the monotonic clock, which is immune to changes of the wall clock.
    """

    kind: Kind
    uuid: Name
    serial: Name
    slot: Name
    first_at: Time
    last_at: Time
    boot: Name
    uptime_seconds: Time

    def is_of(self, other: Incident) -> bool:
        """Whether both are of the same kind and board; if a board is unknown, the slot is compared."""
        if self.kind != other.kind:
            return False
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return bool(self.slot) and self.slot == other.slot

    def is_near(self, other: Incident) -> bool:
        """Whether a later report may belong to this incident."""
        if self.boot and self.boot == other.boot:
            lasted = self.last_at - self.first_at
            return -lasted - SAME_SECONDS <= other.uptime_seconds - self.uptime_seconds <= SAME_SECONDS
        return self.first_at - SAME_SECONDS <= other.last_at <= self.last_at + SAME_SECONDS


@dataclass(frozen=True, slots=True)
class Board:
    """Last known state of a board, to detect changes while the exporter wasn't running; None for what isn't reported.

    `uncorrected` are volatile memory errors; `boot` is that in which it was last seen, `gpu` its NVML index then, and
    `facts` are what gpu_info has of it.
    """

    uuid: Name
    serial: Name = ""
    slot: Name = ""
    first_seen_at: Time = 0.0
    boot: Name = ""
    uncorrected: Annotated[float, Range(0, 1 << 48)] | None = None
    recovery_action: Annotated[int, Range(0, 1 << 16)] | None = None
    gpu: Annotated[str, Pattern("[0-9]{0,5}", "an index")] = ""
    facts: Annotated[tuple[Annotated[str, AtMost(_MOST_CHARACTERS)], ...], AtMost(_MOST_FACTS)] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """The ledger's complete content, as saved: last boot and its most GPUs, boards and incidents, oldest first."""

    boot: Name = ""
    most_gpus: Annotated[int, Range(0, MAX_GPUS)] = 0
    boards: tuple[Board, ...] = ()
    incidents: tuple[Incident, ...] = ()


def kind_of_xid(xid: str, fatal: str) -> str | None:
    """The incident kind of an Xid, from its labels; None if an application caused it or it is harmless.

    Nonfatal NVLink errors don't count: links log hundreds of them and keep working.
    """
    if not xid.isdecimal() or fatal == "false":
        return None
    known = XID_CODES.get(int(xid))
    return xid if known is None or known.kind in _COUNTED_KINDS else None


class IncidentLedger:
    """Records and counts incidents, only from the sampler's thread; `edition` rises when one is added or changed."""

    def __init__(self, memory: Memory | None = None) -> None:
        memory = memory or Memory()
        self.changed = False
        self.edition = 0
        # When a board (by UUID) or a slot was last repaired, in Unix seconds: what it had before no longer counts.
        self._repaired: Mapping[str, float] = {}
        self._boot = memory.boot
        self._most_gpus = memory.most_gpus
        self._boards = {board.uuid: board for board in memory.boards}
        self._incidents = list(memory.incidents)

    @property
    def most_gpus(self) -> int | None:
        return self._most_gpus or None

    @property
    def memory(self) -> Memory:
        return Memory(self._boot, self._most_gpus, tuple(self._boards.values()), tuple(self._incidents))

    def add(self, memory: Memory) -> None:
        """Merge previously saved content; newer data wins."""
        newer = self.memory
        self.edition += 1
        self._incidents = list(memory.incidents)
        for incident in newer.incidents:
            self.note(incident)
        self._boards = {board.uuid: board for board in (*memory.boards, *newer.boards)}
        if memory.boot == newer.boot or not newer.boot:
            self._boot, self._most_gpus = memory.boot, max(memory.most_gpus, newer.most_gpus)

    def note(self, incident: Incident) -> bool:
        """Record an incident; return whether it is a new one."""
        for place in range(len(self._incidents) - 1, -1, -1):
            known = self._incidents[place]
            if known.is_of(incident) and known.is_near(incident):
                self._lasts(place, incident)
                return False
        self._incidents.append(incident)
        self._edited()
        if len(self._incidents) > MOST_INCIDENTS:
            surplus = min(self._incidents, key=lambda each: (each.kind != RESET, each.last_at))
            self._incidents.remove(surplus)
        return True

    def before_last_save(self) -> None:
        """Do nothing: every change is saved as soon as possible anyway."""

    def not_in(self, saved: Memory) -> list[str]:
        """Kind and location of each incident missing from `saved`, oldest first."""
        known = frozenset(saved.incidents)
        lost = (each for each in self._incidents if each not in known)
        return [f"{each.kind} at {each.slot or each.uuid or 'an unknown slot'}" for each in lost]

    def see_boot(self, boot: str) -> None:
        if boot and boot != self._boot:
            if self._boot:
                # If the boot id was unknown so far, the count already belongs to this boot.
                self._most_gpus = 0
            self._boot, self.changed = boot, True

    def see_count(self, gpus: int) -> None:
        if gpus > self._most_gpus:
            self._most_gpus, self.changed = gpus, True

    def board(self, uuid: str) -> Board | None:
        return self._boards.get(uuid)

    def boards_in(self, boot: str) -> Mapping[str, Board]:
        """The board last seen in each slot in this boot; empty if the boot is unknown."""
        return {board.slot: board for board in self._boards.values() if board.slot and boot and board.boot == boot}

    def see_board(self, board: Board) -> None:
        if self._boards.get(board.uuid) == board:
            return
        self._boards.pop(board.uuid, None)
        self._boards[board.uuid] = board
        for surplus in tuple(self._boards)[:-MAX_GPUS]:
            del self._boards[surplus]
        self.changed = True

    def see_repairs(self, repaired: Mapping[str, float]) -> None:
        """Set when boards (by UUID) and slots were last repaired."""
        if repaired != self._repaired:
            self._repaired = repaired
            self.edition += 1

    def recent(self, uuid: str, slot: str, now: float) -> Mapping[tuple[str, str, str], int]:
        """Incidents of the last days on this board and in this slot, by the labels by, kind and days."""
        counts = Counter(
            (by, incident.kind, str(days))
            for incident in reversed(self._incidents)
            for by, own, its in (("board", uuid, incident.uuid), ("slot", slot, incident.slot))
            for days in WINDOW_DAYS
            if own and own == its and _within(incident, days, now) and not self._is_closed(own, incident)
        )
        kinds = tuple(dict.fromkeys(kind for _, kind, _ in counts))[:_MOST_KINDS]
        return {labels: count for labels, count in counts.items() if labels[1] in kinds}

    def boards_recent(self, slot: str, now: float) -> Mapping[tuple[str, str], int]:
        """Number of different boards with incidents in this slot within 30 days, by the labels kind and days."""
        boards: dict[str, set[str]] = {}
        for incident in reversed(self._incidents):
            is_here = slot and incident.slot == slot and incident.uuid
            if is_here and _within(incident, WINDOW_DAYS[-1], now) and not self._is_closed(slot, incident):
                boards.setdefault(incident.kind, set()).add(incident.uuid)
        kept = tuple(boards.items())[:_MOST_KINDS]
        return {(kind, str(WINDOW_DAYS[-1])): len(uuids) for kind, uuids in kept}

    def _is_closed(self, subject: str, incident: Incident) -> bool:
        return incident.last_at <= self._repaired.get(subject, 0.0)

    def _lasts(self, place: int, again: Incident) -> None:
        known = self._incidents[place]
        uuid, serial, slot = known.uuid or again.uuid, known.serial or again.serial, known.slot or again.slot
        merged = replace(known, uuid=uuid, serial=serial, slot=slot)
        if not (known.first_at - SAME_SECONDS <= again.last_at <= known.last_at + SAME_SECONDS):
            # The wall clock was adjusted in between: trust the later report and shift the earlier times.
            by = again.last_at - known.last_at
            merged = replace(merged, first_at=known.first_at + by, last_at=again.last_at)
        elif again.last_at - known.last_at >= (0 if known.kind == RESET else _LASTING_SECONDS):
            merged = replace(
                merged, last_at=again.last_at, boot=again.boot or known.boot, uptime_seconds=again.uptime_seconds
            )
        if merged != known:
            self._incidents[place] = merged
            self._edited()

    def _edited(self) -> None:
        self.changed = True
        self.edition += 1


def _within(incident: Incident, days: int, now: float) -> bool:
    """Whether an incident is in the window; one from the future was recorded with a wrong clock and is excluded."""
    return now - days * DAY_SECONDS < incident.last_at <= now + SAME_SECONDS


def _found(document: dict[str, Any], where: Place, latest: float) -> LoadedState[Memory]:
    all_boards, all_incidents = (document.pop(key, None) for key in ("boards", "incidents"))
    found, refused = Memory(), tuple[str, ...]()
    try:
        found = read_value(Memory, document, where)
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
    return LoadedState(replace(found, boards=boards, incidents=incidents), (*refused, *wrong_boards, *wrong))


def _check_time(at: float, latest: float, where: Place) -> None:
    if at > latest:
        written = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise where.error(f"is {written}, more than {MOST_AHEAD_SECONDS / 3600:.0f} hours in the future")


INCIDENT_HISTORY: Final = StateKind(
    name=INCIDENTS.name,
    things="incidents",
    history="the incident history",
    version=1,
    nothing=Memory(),
    to_document=asdict,
    from_document=_found,
)
