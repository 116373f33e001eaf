"""Where a finding stands, in words: how long it has lasted, how long it must last, what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.diagnosis.evidence.host import length_of_time
from gpu_triage.diagnosis.findings.finding import Finding, State
from gpu_triage.diagnosis.findings.states import End
from gpu_triage.diagnosis.findings.table import Severity
from gpu_triage.diagnosis.findings.verdicts import OF_SEVERITY

_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {End.UNSEEN.value: "could not be observed for a day", End.RESET.value: "the GPU was reset"}
)
"""Why a finding ended, other than that its condition was gone for its hold."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a finding stands. Of an exporter that says nothing about it, nothing is known.

    Attributes:
        state: ``pending``, ``confirmed`` or ``ended``; "" where unknown.
        confirmed_severity: what it is once it is confirmed, a value of Severity; "" where unknown.
        lasted_seconds: for how long its condition was seen to hold; None after one look, and where unknown.
        wait_seconds: how long it must last before it is confirmed; None where unknown.
        holds: whether its condition holds now; None while it cannot be observed.
        quiet_seconds: for how long a confirmed one's condition has not held.
        hold_seconds: how long it stays confirmed after its condition has ended; None where unknown.
    """

    state: str = ""
    confirmed_severity: str = ""
    lasted_seconds: float | None = None
    wait_seconds: float | None = None
    holds: bool | None = True
    quiet_seconds: float = 0.0
    hold_seconds: float | None = None

    @property
    def pending(self) -> bool:
        """Whether it has not lasted as long as it must."""
        return self.state == state_name(State.PENDING)

    def __str__(self) -> str:
        """As people read it: ``has lasted 40 s of 10 min; then critical: drain``; "" for one that simply holds."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.pending:
            wait = "" if self.wait_seconds is None else length_of_time(self.wait_seconds)
            if self.lasted_seconds is None:
                yield f"must last {wait}" if wait else "pending"
            else:
                yield f"has lasted {length_of_time(self.lasted_seconds)}{wait and f' of {wait}'}"
            if self.confirmed_severity == Severity.CRITICAL.value:
                yield f"then {self.confirmed_severity}: {OF_SEVERITY[Severity.CRITICAL].words}"
        if self.holds is None:
            yield "cannot be observed now"
        elif not self.holds:
            ends = "" if self.hold_seconds is None else f", ends after {length_of_time(self.hold_seconds)}"
            yield f"gone for {length_of_time(self.quiet_seconds)}{ends}"


def standing_of(finding: Finding) -> Standing:
    """Where a finding stands."""
    return Standing(
        state=state_name(finding.state),
        confirmed_severity=finding.severity.value,
        lasted_seconds=None if finding.since is None else finding.lasted_seconds,
        wait_seconds=finding.wait_seconds,
        holds=finding.holds,
        quiet_seconds=finding.quiet_seconds,
        hold_seconds=finding.hold_seconds,
    )


def state_name(state: State) -> str:
    """The state as JSON, scripts and the page have it: ``pending``."""
    return state.name.lower()


def ended_in_words(ago_seconds: float | None, lasted_seconds: float | None, end: str) -> tuple[str, str]:
    """What stands before and after a finding that ended: ``ended 5 min ago`` and ``lasted 25 min``.

    Args:
        ago_seconds: since it ended; None where unknown.
        lasted_seconds: for how long its condition was seen to hold; None where unknown.
        end: why it ended, a value of End; "" where unknown.
    """
    before = "ended" if ago_seconds is None else f"ended {length_of_time(max(0.0, ago_seconds))} ago"
    lasted = "" if lasted_seconds is None else f"lasted {length_of_time(lasted_seconds)}"
    return before, ", ".join(filter(None, (lasted, _WHY.get(end, ""))))
