"""One thing found, of one GPU or of the host."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage.baseline.link_advice import Advice
from gpu_triage.diagnosis.evidence.gpu import GpuEvidence
from gpu_triage.diagnosis.findings.table import BY_CODE, Check, Severity


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
    momentary: bool = False  # seen in single samples, without a share of time: a warning at most

    @property
    def severity(self) -> Severity:
        """How urgent: that of its check, unless single samples are all there is."""
        severity = self.check.severity
        return Severity.WARNING if self.momentary and severity is Severity.CRITICAL else severity

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


def of_gpu(
    code: str, gpu: GpuEvidence, measured: str, cause_advice: Advice | None = None, *, momentary: bool = False
) -> Finding:
    """A finding about one GPU."""
    return Finding(BY_CODE[code], measured, gpu.gpu, gpu.uuid, cause_advice=cause_advice, momentary=momentary)


def of_slot(code: str, pci_bus_id: str, measured: str) -> Finding:
    """A finding about whatever is at this address."""
    return Finding(BY_CODE[code], measured, pci_bus_id=pci_bus_id)


def of_host(code: str, measured: str) -> Finding:
    """A finding about the host."""
    return Finding(BY_CODE[code], measured)
