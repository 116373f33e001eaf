"""The life of a finding: absent, pending, confirmed, ended, absent, by how long its condition was seen to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.findings.finding import Finding, State
from gpu_triage.diagnosis.findings.table import Check

ENDED_SECONDS: Final = 1200.0
"""For so long an ended finding is still published as ended."""
UNSEEN_SECONDS: Final = 86_400.0
"""A finding whose condition could not be observed for so long ends."""
MOST_FINDINGS: Final = 500
"""Findings that are remembered at most; those that ended go first."""


class End(Enum):
    """Why a finding ended."""

    GONE = "gone"  # its condition was seen not to hold for as long as its hold
    UNSEEN = "unseen"  # its condition could not be observed for a day
    RESET = "reset"  # its GPU was reset, and its condition is gone


@dataclass(frozen=True, slots=True)
class Life:
    """What is remembered of one finding. Seconds are of the monotonic clock, which goes on while the exporter is down.

    Attributes:
        finding: as it was last seen.
        state: where it is in its life.
        began_at: when its condition was first seen to hold.
        lasted_seconds: for how long it was seen to hold; time in which it could not be observed does not count.
        seen_at: when it was last judged.
        held_at: when its condition was last seen to hold.
        holds: whether its condition held then; None where it could not be observed.
        quiet_seconds: for how long it was seen not to hold since it last did.
        unseen_seconds: for how long it could not be observed since it last was.
        end: why it ended, at `seen_at`; None before.
    """

    finding: Finding
    state: State
    began_at: float
    lasted_seconds: float
    seen_at: float
    held_at: float
    holds: bool | None = True
    quiet_seconds: float = 0.0
    unseen_seconds: float = 0.0
    end: End | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same finding: a GPU may get another index, so its UUID counts where it is known."""
        return _key(self.finding)


class FindingStates:
    """The findings of a host from judgement to judgement.

    Args:
        window_seconds: how long the evidence looks back. For so long after `restore`, it is not known yet whether a
            condition still holds: a share of the last minute is known after a minute. What is seen for so long after a
            reset may be of the time before it.
    """

    def __init__(self, window_seconds: float = 0.0) -> None:
        self._window_seconds = window_seconds
        self._checks: Mapping[str, Check] = MappingProxyType({})
        self._lives: dict[tuple[str, str], Life] = {}
        self._restored = False
        self._blind_until = 0.0

    @property
    def lives(self) -> tuple[Life, ...]:
        """What is to be saved."""
        return tuple(self._lives.values())

    def restore(self, remembered: Iterable[Life]) -> None:
        """Take in lives that were saved in this boot; those that were seen again meanwhile go on from there."""
        for life in (_with_row(life, self._checks) for life in remembered):
            known = self._lives.get(life.key)
            self._lives[life.key] = life if known is None else _joined(life, known)
            self._restored = True

    def apply(self, checks: Mapping[str, Check]) -> None:
        """Go by the waits and holds of these rows from now on, also for what is remembered."""
        self._checks = checks
        self._lives = {key: _with_row(life, checks) for key, life in self._lives.items()}

    def judge(
        self,
        found: Sequence[Finding],
        observable: Callable[[Finding], bool],
        now: float,
        reset_at: Callable[[Finding], float | None] = lambda _finding: None,
    ) -> tuple[tuple[Life, ...], tuple[Life, ...]]:
        """Note which conditions hold now. If it raises, nothing is noted.

        Args:
            found: findings whose conditions hold; of several about one subject with one code, the first counts.
            observable: whether it can be told now whether the condition of a finding holds, of those not in `found`.
            now: monotonic second.
            reset_at: monotonic second at which the GPU of a finding was last reset; None for the host, for a GPU that
                does not answer, and where no reset is known.

        Returns:
            Those present, each pending or confirmed, those in `found` first and in their order; and those that ended
            in the last ENDED_SECONDS.
        """
        if self._restored:
            self._restored, self._blind_until = False, now + self._window_seconds
        # A time that this boot has not reached is nonsense.
        before = {key: life for key, life in self._lives.items() if life.seen_at <= now}
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
                kept = _ended(replace(life, seen_at=now, holds=False), End.RESET)
            elif now < self._blind_until and now - life.seen_at < UNSEEN_SECONDS:
                kept = life
            else:
                kept = _not_seen(life, now, observable=observable(life.finding))
            if kept is not None:
                lives[key] = kept
        present = [life for life in lives.values() if life.state is not State.ENDED][:MOST_FINDINGS]
        ended = [life for life in lives.values() if life.state is State.ENDED][: MOST_FINDINGS - len(present)]
        self._lives = {life.key: life for life in (*present, *ended)}
        return tuple(present), tuple(ended)

    def _is_cured(self, life: Life, reset_at: float | None, observable: Callable[[Finding], bool]) -> bool:
        """Whether a reset put an end to a finding whose condition does not hold now, as far as can be told."""
        if reset_at is None or life.began_at > reset_at or life.held_at > reset_at + self._window_seconds:
            return False
        # A drained GPU gets no load, under which the condition could be looked at.
        return life.finding.check.under_load or observable(life.finding)


def _with_row(life: Life, checks: Mapping[str, Check]) -> Life:
    check = life.finding.check
    return replace(life, finding=replace(life.finding, check=checks.get(check.code, check)))


def _key(finding: Finding) -> tuple[str, str]:
    return finding.uuid or finding.subject, finding.check.code


def _seen(life: Life | None, finding: Finding, now: float) -> Life:
    """The life of a finding whose condition holds now."""
    if life is None or life.state is State.ENDED or _is_gone(life, now):
        return _confirmed_in_time(Life(finding, State.PENDING, now, 0.0, now, now))
    # Between two looks at which it held, it held.
    lasted_seconds = life.lasted_seconds + (now - life.seen_at if life.holds else 0.0)
    return _confirmed_in_time(
        replace(
            life,
            finding=finding,
            lasted_seconds=lasted_seconds,
            seen_at=now,
            held_at=now,
            holds=True,
            quiet_seconds=0.0,
            unseen_seconds=0.0,
        )
    )


def _confirmed_in_time(life: Life) -> Life:
    return replace(life, state=State.CONFIRMED) if life.lasted_seconds >= life.finding.check.wait_seconds else life


def _quiet_seconds(life: Life, now: float) -> float:
    """For how long its condition has not held, if it did not in between either."""
    # While it could not be observed, its clocks stood still.
    return life.quiet_seconds + (now - life.seen_at if life.holds is False else 0.0)


def _is_gone(life: Life, now: float) -> bool:
    return life.holds is False and _quiet_seconds(life, now) >= life.finding.check.hold_seconds


def _not_seen(life: Life, now: float, *, observable: bool) -> Life | None:
    """The life of a finding that has not ended and whose condition does not hold now, as far as can be told."""
    if observable:
        if life.state is State.PENDING:
            return None
        quiet = replace(life, seen_at=now, holds=False, quiet_seconds=_quiet_seconds(life, now), unseen_seconds=0.0)
        return _ended(quiet, End.GONE) if _is_gone(quiet, now) else quiet
    unseen_seconds = life.unseen_seconds + (now - life.seen_at)
    unseen = replace(life, seen_at=now, holds=None, unseen_seconds=unseen_seconds)
    if unseen_seconds < UNSEEN_SECONDS:
        return unseen
    return None if life.state is State.PENDING else _ended(unseen, End.UNSEEN)


def _ended(life: Life, end: End) -> Life:
    return replace(life, state=State.ENDED, end=end)


def _joined(saved: Life, known: Life) -> Life:
    """One life of what was saved of a finding and what was seen of it since."""
    if State.ENDED in (saved.state, known.state) or saved.seen_at > known.seen_at:
        return known
    if known.holds:
        joined = _seen(saved, known.finding, known.seen_at)
    else:
        lasted_seconds = max(saved.lasted_seconds, known.lasted_seconds)
        joined = replace(known, state=saved.state, began_at=saved.began_at, lasted_seconds=lasted_seconds)
    return joined if joined.lasted_seconds >= known.lasted_seconds else known
