"""What a judge says: one thing found, of one GPU or of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_triage.diagnosis.codes import BY_CODE, Check
from gpu_triage.diagnosis.view import GpuView, HostView


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        check: what kind of thing.
        measured: what was seen, with its numbers.
        gpu: NVML index as text; None for the host, and for a GPU without an index.
        uuid: of that GPU; "" where unknown.
        pci_bus_id: of a GPU that has nothing else to be known by; "" mostly.
        explained_by: code of the finding about the same GPU that it follows from; "" mostly.
        since: Unix seconds at which it began, as far as was seen; None where nobody remembers.
    """

    check: Check
    measured: str
    gpu: str | None = None
    uuid: str = ""
    pci_bus_id: str = ""
    explained_by: str = ""
    since: float | None = None

    @property
    def subject(self) -> str:
        """Whom it is about: ``GPU 3``, ``GPU at 0000:65:00`` or ``host``."""
        if self.gpu is not None:
            return f"GPU {self.gpu}"
        return f"GPU at {self.pci_bus_id}" if self.pci_bus_id else "host"

    @property
    def of_host(self) -> bool:
        """Whether it is about the host as a whole."""
        return self.gpu is None and not self.pci_bus_id


Judge = Callable[[HostView], Iterator[Finding]]


def of_gpu(code: str, gpu: GpuView, measured: str) -> Finding:
    """A finding about one GPU."""
    return Finding(BY_CODE[code], measured, gpu.gpu, gpu.uuid)


def of_host(code: str, measured: str) -> Finding:
    """A finding about the host."""
    return Finding(BY_CODE[code], measured)
