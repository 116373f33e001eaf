"""Saves what the judge remembers to the state directory: findings and links. Only reused within the same boot."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import AtMost, Pattern, Place, Range, read_value
from gpu_triage.documents.saved_state import LoadedState, StateKind, read_entries
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.past import MOST_LINKS, WidestLink, WidestLinks
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import MOST_FINDINGS, EndReason, FindingStates, Life, Part
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.incidents.ledger import Name, Time
from gpu_triage.sampler.state_directory import FINDINGS, StateDirectory

SAVE_SECONDS: Final = 60.0
"""Longest time between saves while there are findings, so that their durations survive a crash."""

_MOST_CHARACTERS: Final = 200
_TOLERANCE_SECONDS: Final = 1.0
"""Allowed rounding error of summed durations."""

_MOST_PARTS: Final = thresholds.WINDOW_PARTS + 2
_PART_DIGITS: Final = 1  # a tenth of a second, so that the file stays small
_Seconds = Annotated[float, Range(0, 1e10)]


@dataclass(frozen=True, slots=True)
class SavedLives:
    boot: str = ""  # ID of the boot in which it is valid; "" if unknown, and then it is not reused
    lives: tuple[Life, ...] = ()  # the findings' histories
    links: tuple[WidestLink, ...] = ()  # the most lanes of each PCIe link


class KeptFindings:
    """The states of findings, and the links, as the sampler saves and restores them. See `PersistentState`."""

    def __init__(self, states: FindingStates, widest: WidestLinks) -> None:
        self.changed = False  # whether there are unsaved changes
        self._states = states
        self._widest = widest
        self._boot = ""
        self._loaded: SavedLives | None = None
        self._known: tuple[dict[tuple[str, str], State], tuple[WidestLink, ...]] = ({}, ())
        self._marked_at = 0.0

    def note(self, now: float) -> None:
        """Record that the states were judged at a monotonic second."""
        states = {life.key: life.state for life in self._states.lives}
        known = states, self._widest.all
        if known != self._known or (states and now - self._marked_at >= SAVE_SECONDS):
            self._known, self._marked_at, self.changed = known, now, True

    @property
    def memory(self) -> SavedLives:
        return SavedLives(self._boot, self._states.lives, self._widest.all)

    def add(self, memory: SavedLives) -> None:
        """Accept a loaded document; it is restored if the boot is the same."""
        self._loaded = memory

    def see_boot(self, boot: str) -> None:
        """Set the ID of the current boot ("" if unknown), and restore what was saved in it."""
        self._boot = boot
        if self._loaded is not None and boot and self._loaded.boot == boot:
            self._states.restore(self._loaded.lives)
            self._widest.see(self._loaded.links)
        self._loaded = None

    def before_last_save(self) -> None:
        """Request one more save: the next start needs to know until when each finding was observed."""
        self.changed = self.changed or bool(self._states.lives)

    def not_in(self, saved: SavedLives) -> list[str]:
        """Return code and subject of each finding with no state in `saved`."""
        known = {(life.key, life.state) for life in saved.lives}
        lost = (life.finding for life in self._states.lives if (life.key, life.state) not in known)
        return [f"{finding.check.code} of {finding.subject}" for finding in lost]


@dataclass(frozen=True, slots=True)
class _Head:
    boot: Name = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A `Life` as plain values."""

    code: Name
    gpu: Annotated[str, Pattern(r"[0-9]{1,5}", "an index")] | None
    uuid: Name
    pci_bus_id: Name
    measured: Annotated[str, AtMost(_MOST_CHARACTERS)]
    value: Annotated[float, Range(-1e300, 1e300)] | None
    state: Annotated[int, Range(min(State), max(State))]
    began_at: _Seconds
    lasted_seconds: _Seconds
    seen_at: _Seconds
    held_at: _Seconds
    holds: bool | None
    quiet_seconds: _Seconds
    unseen_seconds: _Seconds
    gap_seconds: _Seconds
    lost_seconds: _Seconds
    parts: Annotated[tuple[_Seconds, ...], AtMost(len(Part._fields) * _MOST_PARTS)]  # one after another
    end: Annotated[str, Pattern("|".join(end.value for end in EndReason), "why it ended")] | None
    detail: Annotated[str, AtMost(_MOST_CHARACTERS)] = ""
    outgrown_at: Time = 0.0
    outgrown_value: Annotated[float, Range(-1e300, 1e300)] | None = None


_AS_THEY_ARE: Final = tuple(
    name for name in Life.__annotations__ if name in _Entry.__annotations__ and name not in {"state", "parts", "end"}
)
"""Fields of a life that are saved unchanged."""


def _document(memory: SavedLives) -> dict[str, Any]:
    findings, links = [_entry(life) for life in memory.lives], [asdict(link) for link in memory.links]
    return {"boot": memory.boot, "findings": findings, "links": links}


def _found(document: dict[str, Any], where: Place, _latest: float) -> LoadedState[SavedLives]:
    listed, listed_links = document.pop("findings", None), document.pop("links", None)
    head = read_value(_Head, document, where)
    entries, refused = read_entries(_Entry, listed, MOST_FINDINGS, where.at("findings"), _check)
    links, refused_links = read_entries(
        WidestLink, listed_links, MOST_LINKS, where.at("links"), lambda _link, _where: None
    )
    # Unknown codes are left out: another release may have other findings.
    lives = tuple(_life(each) for each in entries if each.code in BY_CODE)
    return LoadedState(SavedLives(head.boot, lives, links), refused + refused_links)


def _check(entry: _Entry, where: Place) -> None:
    if entry.began_at > entry.seen_at:
        raise where.at("seen_at").error("is before began_at")
    if not entry.began_at <= entry.held_at <= entry.seen_at:
        raise where.at("held_at").error("is not from began_at to seen_at")
    longest = entry.seen_at - entry.began_at + _TOLERANCE_SECONDS
    for name in ("lasted_seconds", "quiet_seconds", "unseen_seconds"):
        if getattr(entry, name) > longest:
            raise where.at(name).error("is longer than from began_at to seen_at")
    if (entry.state == State.ENDED) is (entry.end is None):
        raise where.at("state").error("does not agree with end")
    earliest, latest = entry.began_at - _TOLERANCE_SECONDS, entry.seen_at + _TOLERANCE_SECONDS
    parts = (earliest <= began <= latest and held <= observed for began, observed, held in _parts(entry))
    if len(entry.parts) % len(Part._fields) or not all(parts):
        raise where.at("parts").error("are not parts of the time from began_at to seen_at")


def _parts(entry: _Entry) -> tuple[Part, ...]:
    times = iter(entry.parts)
    return tuple(map(Part, times, times, times))


def _entry(life: Life) -> dict[str, Any]:
    finding, value = life.finding, life.finding.value
    printable = "".join(character if character.isprintable() else " " for character in finding.measured)
    return {
        "code": finding.check.code,
        "gpu": finding.gpu,
        "uuid": finding.uuid,
        "pci_bus_id": finding.pci_bus_id,
        "measured": printable[:_MOST_CHARACTERS],
        "detail": finding.detail,
        "value": value if value is not None and math.isfinite(value) else None,
        "state": int(life.state),
        **{name: getattr(life, name) for name in _AS_THEY_ARE},
        "parts": [round(each, _PART_DIGITS) for part in life.parts for each in part],
        "end": None if life.end is None else life.end.value,
    }


def _life(entry: _Entry) -> Life:
    gpu = (entry.gpu, entry.uuid, entry.pci_bus_id)
    finding = Finding(BY_CODE[entry.code], entry.measured, *gpu, value=entry.value, detail=entry.detail)
    unchanged = {name: getattr(entry, name) for name in _AS_THEY_ARE}
    end = None if entry.end is None else EndReason(entry.end)
    return Life(finding, State(entry.state), **unchanged, end=end, parts=_parts(entry))


SAVED_FINDINGS: Final = StateKind(
    name=FINDINGS,
    things="findings",
    history="the history of findings",
    version=1,
    nothing=SavedLives(),
    to_document=_document,
    from_document=_found,
)


def saved_in(state_directory: Path, now: float) -> SavedLives:
    """What an exporter saved last; `now` in Unix seconds. Raises StateError."""
    loaded = SAVED_FINDINGS.read(StateDirectory(state_directory).path(FINDINGS), now)
    return SavedLives() if loaded is None else loaded.memory
