"""Life cycle of a finding, from pending to confirmed to ended, based on how long its condition was observed to hold.

A fault that comes and goes is confirmed once it has lasted its wait within its window of observed time, and lasts
through gaps like those that it had. In the gaps of a pending one, nothing is published: that is about now.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.finding import Finding, KnownGpus, State
from gpu_triage.judge.findings.table import Check

ENDED_SECONDS: Final = 1200.0
"""How long an ended finding is still published as ended."""
UNSEEN_SECONDS: Final = 86_400.0
"""How long the condition may be unobservable before the finding ends."""
MOST_FINDINGS: Final = 500
"""Maximum number of findings kept; ended ones are dropped first."""
NO_GPUS: Final = KnownGpus[Any]()


class EndReason(Enum):
    GONE = "gone"  # its condition did not hold for the hold time
    UNSEEN = "unseen"  # its condition could not be observed for a day
    RESET = "reset"  # its GPU was reset, and its condition no longer holds
    REPLACED = "replaced"  # another board is in the slot of its GPU
    MOVED = "moved"  # it goes on under the UUID of its GPU, which was known by its address alone


class Part(NamedTuple):
    """A part of the window in which the condition of a pending finding has to last its wait."""

    began_at: float  # monotonic seconds
    observed_seconds: float
    held_seconds: float  # of these, those in which its condition held


@dataclass(frozen=True, slots=True)
class Life:
    """History of one finding. Times are monotonic seconds, which also pass while the exporter is down."""

    finding: Finding  # the finding as last observed
    state: State  # its current state
    began_at: float  # when its condition was first observed to hold
    lasted_seconds: float  # how long it was observed to hold: while pending, within its window
    seen_at: float  # when it was last judged
    held_at: float  # when its condition was last observed to hold
    holds: bool | None = True  # whether its condition held at `seen_at`; None if it could not be observed
    quiet_seconds: float = 0.0  # how long it has been observed not to hold since `held_at`
    unseen_seconds: float = 0.0  # how long it has been unobservable
    end: EndReason | None = None  # why it ended, at `seen_at`; None before
    gap_seconds: float = 0.0  # the longest time after which its condition held again
    lost_seconds: float = 0.0  # how much time its job lost since its condition last began to hold
    parts: tuple[Part, ...] = ()  # its window, oldest first, from when its condition held; empty if not pending
    worse_at: float | None = None  # since when it has been clearly worse than it was accepted
    outgrown_at: float = 0.0  # date of the acceptance (Unix seconds) that no longer holds, as it became worse
    outgrown_value: float | None = None  # what was measured then

    @property
    def hold_seconds(self) -> float:
        """How long it outlasts its condition: what came back after a gap has not ended in a gap like that."""
        check = self.finding.check
        return max(check.hold_seconds, min(thresholds.LIKE_GAP * self.gap_seconds, check.window_seconds))

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the finding: that of its GPU, and its code."""
        return _key(self.finding)


class FindingStates:
    """A host's findings across judgments.

    The evidence reaches `window_seconds` back. For that long after `restore`, it is unknown whether conditions still
    hold, since shares over the window are not known yet; for that long after a reset, evidence may predate the reset.
    """

    def __init__(self, window_seconds: float = 0.0) -> None:
        self._window_seconds = window_seconds
        self.checks: Mapping[str, Check] = MappingProxyType({})  # with the wait and hold times from now on
        self._lives: dict[tuple[str, str], Life] = {}
        self._restored = False
        self._blind_until = 0.0

    @property
    def lives(self) -> tuple[Life, ...]:
        return tuple(self._lives.values())

    def restore(self, remembered: Iterable[Life]) -> None:
        """Add lives saved in this boot, merging them with lives observed since."""
        for life in (_with_row(life, self.checks) for life in remembered):
            known = self._lives.get(life.key)
            self._lives[life.key] = life if known is None else _joined(life, known)
            self._restored = True

    def note(self, present: Iterable[Life]) -> None:
        """Replace present lives by ones that tell more."""
        self._lives |= {life.key: life for life in present}

    def judge(
        self,
        found: Sequence[Finding],
        observable: Callable[[Finding], bool],
        now: float,
        reset_at: Callable[[Finding], float | None] = lambda _finding: None,
        gpus: KnownGpus[Any] = NO_GPUS,
    ) -> tuple[tuple[Life, ...], tuple[Life, ...]]:
        """Record which conditions hold now: those of `found`, without duplicates. If it raises, nothing is recorded.

        Returns the confirmed lives and the pending ones with conditions not known to be gone, those in `found` first
        and in that order, and those that ended in the last ENDED_SECONDS. For a finding not in `found`, `observable`
        returns whether its condition can be observed now, and `reset_at` the monotonic second of its GPU's last reset,
        if one is known. `gpus` are those of the host.
        """
        if self._restored:
            self._restored, self._blind_until = False, now + self._window_seconds
        found = self._with_uuids(found, gpus)
        before = self._as_known_now({_key(finding) for finding in found}, gpus, now)
        lives: dict[tuple[str, str], Life] = {}
        for finding in found:
            key = _key(finding)
            if key not in lives:
                lives[key] = _seen(before.get(key), finding, now)
        for key, life in before.items():
            if key in lives:
                continue
            if life.state is State.ENDED:
                kept = life if now - life.seen_at < ENDED_SECONDS else None
            elif self._is_cured(life, reset_at(life.finding), observable):
                kept = _ended(life, EndReason.RESET, now)
            elif now < self._blind_until and now - life.seen_at < UNSEEN_SECONDS:
                kept = life
            else:
                kept = _not_seen(life, now, observable=observable(life.finding))
            if kept is not None:
                lives[key] = kept
        shown = [life for life in lives.values() if life.state is not State.PENDING or life.holds is not False]
        present = [life for life in shown if life.state is not State.ENDED][:MOST_FINDINGS]
        ended = [life for life in shown if life.state is State.ENDED][: MOST_FINDINGS - len(present)]
        away = (life for life in lives.values() if life.state is State.PENDING and life.holds is False)
        self._lives = {life.key: life for life in (*present, *ended, *away)[:MOST_FINDINGS]}
        return tuple(present), tuple(ended)

    def _with_uuids(self, found: Sequence[Finding], gpus: KnownGpus[Any]) -> list[Finding]:
        """Return the findings, those known by an address alone with the UUID of an earlier finding at that address."""
        active = (life.finding for life in self._lives.values() if life.state is not State.ENDED)
        gone = (each for each in active if gpus.of(each) is None and not gpus.have_replaced(each))
        uuids = {each.pci_bus_id: each.uuid for each in gone if each.uuid and each.pci_bus_id}
        return [replace(f, uuid=f.uuid or uuids.get(f.pci_bus_id, "")) for f in found]

    def _as_known_now(
        self, found: Collection[tuple[str, str]], gpus: KnownGpus[Any], now: float
    ) -> dict[tuple[str, str], Life]:
        """Return the lives by what their GPUs are known as now.

        A finding about a GPU that was known by its address alone goes on under its UUID, unless it is `found` under its
        address; what was published under the address ends. A finding about a board that was replaced ends.
        """
        lives: dict[tuple[str, str], Life] = {}
        # A time in the future means that the entry is invalid.
        current = ((key, _with_row(life, self.checks)) for key, life in self._lives.items() if life.seen_at <= now)
        for key, life in current:
            gpu = gpus.of(life.finding)
            known = life if gpu is None else replace(life, finding=life.finding.about(gpu))
            moves = known.key != key
            if life.state is State.ENDED or key in found:
                kept = [life if moves else known]
            elif gpus.have_replaced(life.finding):
                kept = _over(life, EndReason.REPLACED, now)
            else:
                kept = [known, *(_over(life, EndReason.MOVED, now) if moves else ())]
            for each in kept:
                lives[each.key] = max(lives.get(each.key, each), each, key=lambda one: (one.state, one.lasted_seconds))
        return lives

    def _is_cured(self, life: Life, reset_at: float | None, observable: Callable[[Finding], bool]) -> bool:
        """Whether a reset ended a finding with a condition that does not hold now, as far as can be observed."""
        if reset_at is None or life.began_at > reset_at or life.held_at > reset_at + self._window_seconds:
            return False
        # A drained GPU gets no load, so conditions that need load cannot be observed.
        return life.finding.check.under_load or observable(life.finding)


def _with_row(life: Life, checks: Mapping[str, Check]) -> Life:
    check = life.finding.check
    return replace(life, finding=replace(life.finding, check=checks.get(check.code, check)))


def _key(finding: Finding) -> tuple[str, str]:
    return finding.identity, finding.check.code


def _seen(life: Life | None, finding: Finding, now: float) -> Life:
    """Return the life of a finding with a condition that holds now."""
    if life is None or life.state is State.ENDED or _is_gone(life, now):
        return _confirmed_in_time(Life(finding, State.PENDING, now, 0.0, now, now))
    seen = replace(
        _passed(life, now),
        finding=finding.with_earlier(life.finding.detail) if life.state is State.CONFIRMED else finding,
        seen_at=now,
        held_at=now,
        holds=True,
        quiet_seconds=0.0,
        unseen_seconds=0.0,
        gap_seconds=max(life.gap_seconds, _quiet_seconds(life, now)),
    )
    # If it held at two judgments in a row, it held in between.
    lost = min(finding.loss or 0.0, thresholds.MOST_LOSS) - thresholds.LEAST_LOSS if life.holds else 0.0
    return _confirmed_in_time(replace(seen, lost_seconds=life.lost_seconds + max(0.0, lost) * (now - life.seen_at)))


def _confirmed_in_time(life: Life) -> Life:
    lasted = life.lasted_seconds >= life.finding.check.wait_seconds or life.lost_seconds >= thresholds.LOST_SECONDS
    if life.finding.settling or not lasted:
        return life
    return replace(life, state=State.CONFIRMED, parts=())


def _passed(life: Life, now: float) -> Life:
    """Return the life with the time since it was last judged, if that was observed; `held` as it did then."""
    seconds = 0.0 if life.holds is None else now - life.seen_at
    held_seconds = seconds if life.holds else 0.0
    if life.state is State.CONFIRMED or not seconds:
        return replace(life, lasted_seconds=life.lasted_seconds + held_seconds)
    window_seconds = life.finding.check.window_seconds
    parts = list(life.parts) or [Part(life.seen_at, 0.0, 0.0)]
    if parts[-1].observed_seconds >= window_seconds / thresholds.WINDOW_PARTS:
        parts.append(Part(life.seen_at, 0.0, 0.0))
    began_at, observed, held = parts[-1]
    parts[-1] = Part(began_at, observed + seconds, held + held_seconds)
    surplus = sum(each.observed_seconds for each in parts) - window_seconds
    while parts and (surplus >= parts[0].observed_seconds or not parts[0].held_seconds):
        surplus -= parts.pop(0).observed_seconds
    if not parts:
        return replace(life, lasted_seconds=0.0, parts=())
    first = parts[0]
    too_old_seconds = first.held_seconds * max(0.0, surplus) / first.observed_seconds
    lasted_seconds = sum(each.held_seconds for each in parts) - too_old_seconds
    return replace(life, began_at=first.began_at, lasted_seconds=lasted_seconds, parts=tuple(parts))


def _quiet_seconds(life: Life, now: float) -> float:
    """Return how long its condition has not held, assuming that it did not hold since the last judgment either."""
    # Time in which it could not be observed does not count.
    return life.quiet_seconds + (now - life.seen_at if life.holds is False else 0.0)


def _is_gone(life: Life, now: float) -> bool:
    if life.state is State.PENDING:
        return life.holds is False and not _passed(life, now).parts
    return life.holds is False and _quiet_seconds(life, now) >= life.hold_seconds


def _not_seen(life: Life, now: float, *, observable: bool) -> Life | None:
    """Return the life of an active finding that was not found now; None if a pending one is dropped."""
    pending = life.state is State.PENDING
    if observable:
        # Whether it held since it last did is not known.
        quiet = replace(life if life.holds else _passed(life, now), seen_at=now, holds=False, lost_seconds=0.0)
        quiet = replace(quiet, quiet_seconds=_quiet_seconds(life, now), unseen_seconds=0.0)
        if pending:
            return quiet if quiet.parts and not life.finding.check.continuous else None
        return _ended(quiet, EndReason.GONE, now) if _is_gone(quiet, now) else quiet
    unseen_seconds = life.unseen_seconds + (now - life.seen_at)
    holds = False if pending and life.holds is False else None
    unseen = replace(life, seen_at=now, holds=holds, unseen_seconds=unseen_seconds)
    if unseen_seconds < UNSEEN_SECONDS:
        return unseen
    return None if pending else replace(unseen, state=State.ENDED, end=EndReason.UNSEEN)


def _ended(life: Life, end: EndReason, now: float) -> Life:
    return replace(life, state=State.ENDED, end=end, seen_at=now, holds=False)


def _over(life: Life, end: EndReason, now: float) -> list[Life]:
    """Return the ended life of a finding under its old names; nothing if it was pending."""
    return [_ended(life, end, now)] if life.state is State.CONFIRMED else []


def _joined(saved: Life, known: Life) -> Life:
    """Merge the saved life of a finding with the one observed since."""
    if State.ENDED in (saved.state, known.state) or saved.seen_at > known.seen_at:
        return known
    if known.holds:
        joined = _seen(saved, known.finding, known.seen_at)
    else:
        lasted_seconds = max(saved.lasted_seconds, known.lasted_seconds)
        names = ("state", "began_at", "gap_seconds", "parts", "outgrown_at", "outgrown_value")
        kept = {name: getattr(saved, name) for name in names}
        joined = replace(known, lasted_seconds=lasted_seconds, **kept)
    return joined if joined.lasted_seconds >= known.lasted_seconds else known
