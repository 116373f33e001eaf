"""What went wrong with which board in which slot, remembered for weeks: repeat offenders stand out.

An incident is an Xid that asks for a page or a ticket, a GPU that was lost, a rise of its uncorrected memory errors, or
a reset. Incidents of one kind on one board that are less than an hour apart are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final

from gpu_triage.documents import Between, Matching
from gpu_triage.nvml.session import MAX_GPUS
from gpu_triage.xid.codes import XID_CODES, XidKind

LOST: Final = "lost"
UNCORRECTED: Final = "uncorrected"
RESET: Final = "reset"

MOST_INCIDENTS: Final = 2000
"""Beyond these, the oldest go; resets, which matter least, before others."""

SAME_SECONDS: Final = 3600.0
"""Incidents of one kind on one board that are no further apart are one."""

DAY_SECONDS: Final = 86_400.0
WINDOW_DAYS: Final = (7, 30)
"""Over how many days incidents are counted."""

_LASTING_SECONDS: Final = 600.0
"""An incident that goes on is noted again after so long: the file need not be written for every repetition."""

_MOST_KINDS: Final = 16
"""Kinds published for one GPU."""

_COUNTED_KINDS: Final = frozenset({XidKind.PAGE, XidKind.TICKET})

Name = Annotated[str, Matching(r"[A-Za-z0-9_.:-]{0,80}", "a name of letters, digits and _ . : -, at most 80")]
Time = Annotated[float, Between(0, 1e11)]
Kind = Annotated[
    str, Matching(rf"[0-9]{{1,5}}|{LOST}|{UNCORRECTED}|{RESET}", f"an Xid, {LOST}, {UNCORRECTED} or {RESET}")
]


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident.

    Attributes:
        kind: the Xid as text, or ``lost``, ``uncorrected`` or ``reset``.
        uuid, serial: of the board; "" where unknown.
        slot: PCI bus id as sysfs writes it; "" where unknown.
        first_at, last_at: from when to when it happened, Unix seconds.
        boot: the kernel's id of the boot; "" where unknown.
        uptime_seconds: seconds since that boot at `last_at`, by the monotonic clock, which no change of the time of
            day moves.
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
        """Whether both are of one kind on one board; where a board is not known, its slot decides."""
        if self.kind != other.kind:
            return False
        if self.uuid and other.uuid:
            return self.uuid == other.uuid
        return bool(self.slot) and self.slot == other.slot

    def is_near(self, other: Incident) -> bool:
        """Whether a later report may be of this incident."""
        if self.boot and self.boot == other.boot:
            lasted = self.last_at - self.first_at
            return -lasted - SAME_SECONDS <= other.uptime_seconds - self.uptime_seconds <= SAME_SECONDS
        return self.first_at - SAME_SECONDS <= other.last_at <= self.last_at + SAME_SECONDS


@dataclass(frozen=True, slots=True)
class Board:
    """What is remembered of a board, to tell what changed while nobody looked.

    Attributes:
        uuid, serial, slot: as Incident.
        first_seen_at: Unix seconds.
        boot: in which it was last seen.
        uncorrected: volatile uncorrected memory errors; None where not reported.
        recovery_action: what the driver asked for; None where not reported.
    """

    uuid: Name
    serial: Name = ""
    slot: Name = ""
    first_seen_at: Time = 0.0
    boot: Name = ""
    uncorrected: Annotated[float, Between(0, 1 << 48)] | None = None
    recovery_action: Annotated[int, Between(0, 1 << 16)] | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered; what the file in the state directory holds.

    Attributes:
        boot: id of the last boot seen; "" where unknown.
        most_gpus: most GPUs that the driver has shown in that boot.
        boards: by UUID.
        incidents: oldest first.
    """

    boot: str = ""
    most_gpus: int = 0
    boards: Mapping[str, Board] = field(default_factory=lambda: MappingProxyType({}))
    incidents: tuple[Incident, ...] = ()


@dataclass(frozen=True, slots=True)
class Recent:
    """Incidents of one kind within some days.

    Attributes:
        kind: as Incident.
        by: ``board`` or ``slot``.
        days: 7 or 30.
        count: at least 1.
    """

    kind: str
    by: str
    days: int
    count: int


def kind_of_xid(xid: str, fatal: str) -> str | None:
    """The kind of incident that an Xid is, by its labels; None for one that is a program's doing or harmless.

    A Nonfatal NVLink error is none: links have them by the hundred and go on.
    """
    if not xid.isdecimal() or fatal == "false":
        return None
    known = XID_CODES.get(int(xid))
    return xid if known is None or known.kind in _COUNTED_KINDS else None


class IncidentLedger:
    """Notes incidents and counts them. Only the sampler's thread calls it.

    Attributes:
        changed: whether there is something that is not saved yet.
        edition: another number whenever an incident was added or changed.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        memory = memory or Memory()
        self.changed = False
        self.edition = 0
        self._boot = memory.boot
        self._most_gpus = memory.most_gpus
        self._boards = dict(memory.boards)
        self._incidents = list(memory.incidents)

    @property
    def most_gpus(self) -> int | None:
        """Most GPUs that the driver has shown since the boot; None while it has shown none."""
        return self._most_gpus or None

    @property
    def memory(self) -> Memory:
        """All of it, to be saved."""
        return Memory(self._boot, self._most_gpus, MappingProxyType(dict(self._boards)), tuple(self._incidents))

    def add(self, memory: Memory) -> None:
        """Take in what was remembered before; what is known already stays."""
        newer = self.memory
        self.edition += 1
        self._incidents = list(memory.incidents)
        for incident in newer.incidents:
            self.note(incident)
        self._boards = {**memory.boards, **newer.boards}
        if memory.boot == newer.boot or not newer.boot:
            self._boot, self._most_gpus = memory.boot, max(memory.most_gpus, newer.most_gpus)

    def note(self, incident: Incident) -> bool:
        """Take in an incident; returns whether it is a new one."""
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
        """Nothing: every change is saved as soon as possible."""

    def not_in(self, saved: Memory) -> list[str]:
        """Kind and place of each incident that `saved` does not have, oldest first."""
        known = frozenset(saved.incidents)
        lost = (each for each in self._incidents if each not in known)
        return [f"{each.kind} at {each.slot or each.uuid or 'an unknown slot'}" for each in lost]

    def see_boot(self, boot: str) -> None:
        """Take in which boot this is."""
        if boot and boot != self._boot:
            if self._boot:
                # Without an id, what was counted so far is of this boot already.
                self._most_gpus = 0
            self._boot, self.changed = boot, True

    def see_count(self, gpus: int) -> None:
        """Take in how many GPUs the driver shows."""
        if gpus > self._most_gpus:
            self._most_gpus, self.changed = gpus, True

    def board(self, uuid: str) -> Board | None:
        """What is remembered of a board."""
        return self._boards.get(uuid)

    def board_in(self, slot: str, boot: str) -> Board | None:
        """The board that was in a slot when it was last seen, in this boot; None where that is not known."""
        seen = [board for board in self._boards.values() if slot and board.slot == slot and boot and board.boot == boot]
        return seen[-1] if seen else None

    def see_board(self, board: Board) -> None:
        """Take in how a board is now."""
        if self._boards.get(board.uuid) == board:
            return
        self._boards.pop(board.uuid, None)
        self._boards[board.uuid] = board
        for surplus in tuple(self._boards)[:-MAX_GPUS]:
            del self._boards[surplus]
        self.changed = True

    def recent(self, uuid: str, slot: str, now: float) -> Iterator[Recent]:
        """Incidents of the last days on this board and in this slot; `now` in Unix seconds."""
        counts: Counter[tuple[str, str, int]] = Counter()
        for incident in self._within(WINDOW_DAYS[-1], now):
            places = [("board", bool(uuid) and incident.uuid == uuid), ("slot", bool(slot) and incident.slot == slot)]
            for by, mine in places:
                for days in WINDOW_DAYS:
                    if mine and _within(incident, days, now):
                        counts[incident.kind, by, days] += 1
        kinds = tuple(dict.fromkeys(kind for kind, _, _ in counts))[:_MOST_KINDS]
        return (Recent(*place, count) for place, count in counts.items() if place[0] in kinds)

    def boards_recent(self, slot: str, now: float) -> Mapping[str, int]:
        """How many different boards had incidents of a kind in this slot within 30 days, by kind."""
        boards: dict[str, set[str]] = {}
        for incident in self._within(WINDOW_DAYS[-1], now):
            if slot and incident.slot == slot and incident.uuid:
                boards.setdefault(incident.kind, set()).add(incident.uuid)
        return {kind: len(uuids) for kind, uuids in tuple(boards.items())[:_MOST_KINDS]}

    def _within(self, days: int, now: float) -> Iterable[Incident]:
        """Newest first."""
        return (incident for incident in reversed(self._incidents) if _within(incident, days, now))

    def _lasts(self, place: int, again: Incident) -> None:
        known = self._incidents[place]
        uuid, serial, slot = known.uuid or again.uuid, known.serial or again.serial, known.slot or again.slot
        merged = replace(known, uuid=uuid, serial=serial, slot=slot)
        if not (known.first_at - SAME_SECONDS <= again.last_at <= known.last_at + SAME_SECONDS):
            # The time of day was set since: the later report knows it better.
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
    """Whether it is of the last days; one that is of the future happened while the clock was wrong, and is not."""
    return now - days * DAY_SECONDS < incident.last_at <= now + SAME_SECONDS
