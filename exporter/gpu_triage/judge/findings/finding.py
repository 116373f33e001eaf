"""One finding about a GPU or the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from gpu_triage.judge.findings.check import Advice
from gpu_triage.judge.findings.identity import AboutGpu, identity_of
from gpu_triage.judge.findings.table import BY_CODE, Check, Severity

LIKELY_SECONDS: Final = 300.0
"""How long a pending warning has to last before it is urgent, or half of its wait if that is less.

A job that starts or pauses looks starved for less. What has lasted for half of its wait will probably last.
"""
HOST: Final = "host"
"""The subject of a finding about no GPU and no slot."""


class State(IntEnum):
    """State of a finding, the value of gpu_finding. There is no series before PENDING, or some time after ENDED."""

    ENDED = 0  # was confirmed; its condition then ended and stayed away for the hold time
    PENDING = 1  # its condition holds, but has not lasted for the wait time
    CONFIRMED = 2  # its condition lasted for the wait time; its alert fires, and schedulers act while it holds

    @property
    def text(self) -> str:
        """As in JSON, in scripts and on the page: ``pending``."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    check: Check
    measured: str  # what was observed, with numbers
    gpu: str | None = None  # NVML index as text; None for the host, and for a GPU without an index
    uuid: str = ""  # UUID of that GPU; "" if unknown
    pci_bus_id: str = ""  # PCI address of that GPU, or of the slot; "" if unknown
    explained_by: str = ""  # code of the finding about the same GPU that causes this one; usually ""
    since: float | None = None  # Unix seconds when it was first observed; None in a single poll
    cause_advice: Advice | None = None  # advice on its specific cause; None if that is unknown
    value: float | None = None  # measured value, in the unit of its check's measure; None if nothing is measured
    state: State = State.PENDING
    lasted_seconds: float = 0.0  # how long its condition was observed to hold
    holds: bool | None = True  # whether its condition holds now; None if this cannot be observed
    quiet_seconds: float = 0.0  # how long the condition of a confirmed finding has not held
    ended_at: float | None = None  # Unix seconds when it ended; None before
    end: str = ""  # why it ended, a value of states.EndReason; "" before

    @property
    def severity(self) -> Severity:
        """Urgency once confirmed."""
        return self.check.severity

    @property
    def urgency(self) -> Severity:
        """Current urgency: critical only while confirmed and its condition is seen to hold, else at most a warning.

        A pending warning is information until it is likely to last, and while its condition cannot be observed. A
        single poll does not know how long it has lasted.
        Whatever acts on findings reads this. An alert does not: it is held, so that a fault that flaps is one page.
        """
        if self.severity is Severity.CRITICAL:
            acute = self.state is State.CONFIRMED and self.holds is True
            return Severity.CRITICAL if acute else Severity.WARNING
        likely_seconds = min(LIKELY_SECONDS, self.check.wait_seconds / 2)
        likely = self.since is None or (self.holds is True and self.lasted_seconds >= likely_seconds)
        return Severity.INFO if self.state is State.PENDING and not likely else self.severity

    @property
    def advice(self) -> Advice:
        """Meaning and remedy: the advice on its specific cause if known, else on its code."""
        return self.cause_advice or self.check.advice

    @property
    def identity(self) -> str:
        """The identity of its GPU, slot or host."""
        return identity_of(self)

    def about(self, gpu: AboutGpu) -> Finding:
        """Return the finding with the present names of its GPU."""
        return replace(self, gpu=gpu.gpu, uuid=gpu.uuid, pci_bus_id=gpu.pci_bus_id or self.pci_bus_id)

    @property
    def subject(self) -> str:
        """What it concerns: ``GPU 3``, ``GPU at 0000:65:00`` or ``host``."""
        if self.gpu is not None:
            return f"GPU {self.gpu}"
        return f"GPU at {self.pci_bus_id}" if self.pci_bus_id else HOST


def of_gpu(
    code: str, gpu: AboutGpu, measured: str, cause_advice: Advice | None = None, value: float | None = None
) -> Finding:
    return Finding(BY_CODE[code], measured, gpu.gpu, gpu.uuid, gpu.pci_bus_id, cause_advice=cause_advice, value=value)


def of_slot(code: str, pci_bus_id: str, measured: str, value: float | None = None) -> Finding:
    return Finding(BY_CODE[code], measured, pci_bus_id=pci_bus_id, value=value)


def of_host(code: str, measured: str, value: float | None = None) -> Finding:
    return Finding(BY_CODE[code], measured, value=value)
