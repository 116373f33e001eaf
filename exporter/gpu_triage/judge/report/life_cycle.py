"""Life-cycle status of a finding as text: how long it has lasted, how long it must last, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.states import EndReason
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import OF_SEVERITY
from gpu_triage.judge.report.words import CLUSTER, Words

_UNUSUAL_ENDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        EndReason.UNSEEN.value: "could not be observed for a day",
        EndReason.RESET.value: "the GPU was reset",
        EndReason.REPLACED.value: "the GPU was replaced",
        EndReason.MOVED.value: "continued under the UUID of its GPU, which was unknown",
    }
)
"""Why a finding ended, except for the usual reason that its condition no longer held."""


@dataclass(frozen=True, slots=True)
class LifeCycle:
    """Life-cycle status of a finding. The defaults apply if an exporter does not report it."""

    confirmed_severity: str = ""  # its severity once confirmed, a value of Severity; "" if unknown
    state: str = ""  # ``pending``, ``confirmed`` or ``ended``; "" if unknown
    lasted_seconds: float | None = None  # how long its condition was observed to hold; None if unknown
    wait_seconds: float | None = None  # how long it must last before it is confirmed; None if unknown
    holds: bool | None = True  # whether its condition holds now; None if this cannot be observed
    quiet_seconds: float = 0.0  # how long the condition of a confirmed finding has not held
    hold_seconds: float | None = None  # how long it stays confirmed after its condition ends; None if unknown

    @property
    def pending(self) -> bool:
        """Whether it has not lasted for its wait time."""
        return self.state == state_name(State.PENDING)

    def __str__(self) -> str:
        """As text: ``has lasted 40 s of 10 min; then critical: drain``; "" for a confirmed finding that holds."""
        return self.told(CLUSTER)

    def told(self, words: Words) -> str:
        """As text, in the words of a report."""
        return "; ".join(self._parts(words))

    def _parts(self, words: Words) -> Iterator[str]:
        if self.pending:
            wait = "" if self.wait_seconds is None else length_of_time(self.wait_seconds)
            if self.lasted_seconds is None:
                yield f"must last {wait}" if wait else "pending"
            else:
                yield f"has lasted {length_of_time(self.lasted_seconds)}{wait and f' of {wait}'}"
            if self.confirmed_severity == Severity.CRITICAL.value:
                yield f"then {self.confirmed_severity}: {words.verdicts[OF_SEVERITY[Severity.CRITICAL]]}"
        if self.holds is None:
            yield "cannot be observed now"
        elif not self.holds:
            ends = "" if self.hold_seconds is None else f", ends after {length_of_time(self.hold_seconds)}"
            yield f"gone for {length_of_time(self.quiet_seconds)}{ends}"


def life_cycle_of(finding: Finding) -> LifeCycle:
    return LifeCycle(
        state=state_name(finding.state),
        confirmed_severity=finding.severity.value,
        lasted_seconds=None if finding.since is None else finding.lasted_seconds,
        wait_seconds=finding.wait_seconds,
        holds=finding.holds,
        quiet_seconds=finding.quiet_seconds,
        hold_seconds=finding.hold_seconds,
    )


def state_name(state: State) -> str:
    """Return the state as used in JSON, scripts and the web page: ``pending``."""
    return state.name.lower()


def ended_in_words(ago_seconds: float | None, lasted_seconds: float | None, end: str) -> tuple[str, str]:
    """Return the text before and after a finding that ended: ``ended 5 min ago`` and ``lasted 25 min``.

    Args:
        ago_seconds: time since it ended; None if unknown.
        lasted_seconds: how long its condition was observed to hold; None if unknown.
        end: why it ended, a value of EndReason; "" if unknown.
    """
    before = "ended" if ago_seconds is None else f"ended {length_of_time(max(0.0, ago_seconds))} ago"
    lasted = "" if lasted_seconds is None else f"lasted {length_of_time(lasted_seconds)}"
    return before, ", ".join(filter(None, (lasted, _UNUSUAL_ENDS.get(end, ""))))
