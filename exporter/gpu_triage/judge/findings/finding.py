"""One finding about a GPU or the host; and which GPU something is about: the only place that distinguishes GPUs.

A GPU is its UUID if that is known, else its PCI address, else its index. The same GPU may be known by more later: one
that was lost before the exporter started has an address, and a UUID once it answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Generic, Protocol, TypeVar

from gpu_triage.judge.findings.table import BY_CODE, Advice, Check, Severity
from gpu_triage.read.incidents.decisions import Acceptance


class AboutGpu(Protocol):
    """A GPU, or something about a GPU, a slot or the host, by the names known when it was observed."""

    @property
    def gpu(self) -> str | None:
        """The driver's index, which another GPU may get; None for the host, and for a GPU that it does not show."""

    @property
    def uuid(self) -> str:
        """The UUID, which stays with the board; "" if unknown."""

    @property
    def pci_bus_id(self) -> str:
        """The PCI address in sysfs notation, which stays with the slot; "" if unknown."""


G = TypeVar("G", bound=AboutGpu)

_DETAIL_CHARACTERS: Final = 100
_INTERPRETED: Final = re.compile(r"[^\w .,:;()/+=°#-]")
"""Characters of a process name, say, that a chat or a pager might take for markup."""
_MOVING: Final = re.compile(r"about [\d.]+|[\d.]+(?= °C)")
"""A measurement in a detail."""


def identity_of(about: AboutGpu) -> str:
    """Return what distinguishes it: a UUID, a PCI address, an index (``GPU 3``), or ``host``."""
    return about.uuid or about.pci_bus_id or ("host" if about.gpu is None else f"GPU {about.gpu}")


class KnownGpus(Generic[G]):
    """The GPUs of a host as they are known now. Of two at one address, the last one is there."""

    def __init__(self, gpus: Iterable[G] = ()) -> None:
        listed = tuple(gpus)
        # Indices shift: a GPU that is known by nothing else is more likely meant.
        by_index = {gpu.gpu: gpu for gpu in sorted(listed, key=lambda gpu: not gpu.uuid) if gpu.gpu}
        by_address = {gpu.pci_bus_id: gpu for gpu in listed if gpu.pci_bus_id}
        by_uuid = {gpu.uuid: gpu for gpu in listed if gpu.uuid}
        self._gpus: Mapping[str, G] = {**by_index, **by_address, **by_uuid}

    def of(self, about: AboutGpu) -> G | None:
        """Return its GPU; None for the host, and for a GPU that is gone."""
        return self._gpus.get(about.uuid or about.pci_bus_id or about.gpu or "")

    def have_replaced(self, about: AboutGpu) -> bool:
        """Whether another GPU is at the address of its GPU, which is gone."""
        there = self._gpus.get(about.pci_bus_id)
        return bool(about.uuid and there is not None and there.uuid) and about.uuid not in self._gpus


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
    check: Check
    measured: str  # what was observed, with numbers
    gpu: str | None = None  # NVML index as text; None for the host, and for a GPU without an index
    uuid: str = ""  # UUID of that GPU; "" if unknown
    pci_bus_id: str = ""  # PCI address of that GPU, or of the slot; "" if unknown
    explained_by: str = ""  # code of the finding about the same GPU that causes this one; usually ""
    since: float | None = None  # Unix seconds when it was first observed; None in a single poll
    cause_advice: Advice | None = None  # advice on its specific cause; None if that is unknown
    value: float | None = None  # measured value, in the unit of its check's measure; None if nothing is measured
    # Names the part, for the texts of alerts: ``mlx5_3 port 1``, ``x4 of x16``; "" if there is nothing to add. It is a
    # label, so measurements in it are temperatures or are marked with "about".
    detail: str = ""
    settling: bool = False  # whether a host that just started may still mend it: it stays pending
    loss: float | None = None  # share of its usual pace or clock that a job loses now, 0-1; None if unknown
    state: State = State.PENDING
    lasted_seconds: float = 0.0  # how long its condition was observed to hold
    holds: bool | None = True  # whether its condition holds now; None if this cannot be observed
    quiet_seconds: float = 0.0  # how long the condition of a confirmed finding has not held
    ended_at: float | None = None  # Unix seconds when it ended; None before
    accepted: Acceptance | None = None  # how it, or its cause, was accepted: nothing acts on it. None if not
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
        Whatever acts on findings reads this: what is accepted is information. An alert does not: it is held, so that a
        fault that flaps is one page.
        """
        if self.accepted is not None:
            return Severity.INFO
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

    def with_earlier(self, detail: str) -> Finding:
        """Return the finding with its detail as published before, unless more than measurements in it have changed."""
        same = bool(detail) and _MOVING.sub("", detail) == _MOVING.sub("", self.detail)
        return replace(self, detail=detail) if same else self

    @property
    def subject(self) -> str:
        """What it concerns: ``GPU 3``, ``GPU at 0000:65:00`` or ``host``."""
        if self.gpu is not None:
            return f"GPU {self.gpu}"
        return f"GPU at {self.pci_bus_id}" if self.pci_bus_id else HOST


def of_host(
    code: str,
    measured: str,
    value: float | None = None,
    detail: str = "",
    *,
    cause_advice: Advice | None = None,
    loss: float | None = None,
) -> Finding:
    detail = _INTERPRETED.sub("_", detail)[:_DETAIL_CHARACTERS]
    return Finding(BY_CODE[code], measured, value=value, detail=detail, cause_advice=cause_advice, loss=loss)


def of_slot(code: str, pci_bus_id: str, measured: str, value: float | None = None, detail: str = "") -> Finding:
    return replace(of_host(code, measured, value, detail), pci_bus_id=pci_bus_id)


def of_gpu(
    code: str,
    gpu: AboutGpu,
    measured: str,
    cause_advice: Advice | None = None,
    value: float | None = None,
    *,
    detail: str = "",
    loss: float | None = None,
) -> Finding:
    return of_host(code, measured, value, detail, cause_advice=cause_advice, loss=loss).about(gpu)
