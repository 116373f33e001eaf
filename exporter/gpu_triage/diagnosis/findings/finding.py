"""One thing found, of one GPU or of the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from gpu_triage.baseline.link_advice import Advice
from gpu_triage.diagnosis.findings.table import BY_CODE, Check, Severity


class State(IntEnum):
    """Where a finding is in its life, as gpu_finding has it; absent before and after."""

    ENDED = 0  # it was confirmed, and its condition has not held for as long as its hold
    PENDING = 1  # its condition holds, and has not lasted as long as its wait
    CONFIRMED = 2  # it has lasted as long as its wait: a person and the scheduler hear of it


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found."""

    check: Check
    measured: str  # what was seen, with its numbers
    gpu: str | None = None  # NVML index as text; None for the host, and for a GPU without an index
    uuid: str = ""  # of that GPU; "" where unknown
    pci_bus_id: str = ""  # of a GPU that has nothing else to be known by; "" mostly
    explained_by: str = ""  # code of the finding about the same GPU that it follows from; "" mostly
    since: float | None = None  # Unix seconds at which it began, as far as was seen; None after one look
    cause_advice: Advice | None = None  # advice on its cause, if the cause is known; else None
    value: float | None = None  # what was measured, in the unit of its check's measure; None where nothing is
    state: State = State.PENDING
    lasted_seconds: float = 0.0  # for how long its condition was seen to hold
    holds: bool | None = True  # whether its condition holds now; None while it cannot be observed
    quiet_seconds: float = 0.0  # for how long a confirmed one's condition has not held
    ended_at: float | None = None  # Unix seconds at which it ended; None before
    end: str = ""  # why it ended, a value of states.End; "" before

    @property
    def severity(self) -> Severity:
        """How urgent it is once it is confirmed."""
        return self.check.severity

    @property
    def urgency(self) -> Severity:
        """How urgent it is now: a warning at most until it is confirmed."""
        pending = self.state is not State.CONFIRMED and self.severity is Severity.CRITICAL
        return Severity.WARNING if pending else self.severity

    @property
    def wait_seconds(self) -> float:
        """How long its condition must last before it is confirmed."""
        return self.check.wait_seconds

    @property
    def hold_seconds(self) -> float:
        """How long it stays confirmed after its condition has ended."""
        return self.check.hold_seconds

    @property
    def advice(self) -> Advice:
        """What it means and what to do: the advice on its cause, else that on its code."""
        return self.cause_advice or self.check.advice

    @property
    def subject(self) -> str:
        """Whom it is about: ``GPU 3``, ``GPU at 0000:65:00`` or ``host``."""
        if self.gpu is not None:
            return f"GPU {self.gpu}"
        return f"GPU at {self.pci_bus_id}" if self.pci_bus_id else "host"


class GpuIdentity(Protocol):
    """Which GPU something is about."""

    @property
    def gpu(self) -> str:
        """The driver's index."""

    @property
    def uuid(self) -> str:
        """The UUID; stays with the board."""


def of_gpu(
    code: str, gpu: GpuIdentity, measured: str, cause_advice: Advice | None = None, value: float | None = None
) -> Finding:
    """A finding about one GPU."""
    return Finding(BY_CODE[code], measured, gpu.gpu, gpu.uuid, cause_advice=cause_advice, value=value)


def of_slot(code: str, pci_bus_id: str, measured: str, value: float | None = None) -> Finding:
    """A finding about whatever is at this address."""
    return Finding(BY_CODE[code], measured, pci_bus_id=pci_bus_id, value=value)


def of_host(code: str, measured: str, value: float | None = None) -> Finding:
    """A finding about the host."""
    return Finding(BY_CODE[code], measured, value=value)
