"""Which GPUs are there, which answer, and whether the driver does: the sampler's own knowledge as samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.nvml import DriverVersions

NAME = "presence"
METRICS = (
    catalogue.UP,
    catalogue.ERROR_INFO,
    catalogue.DEVICES,
    catalogue.DRIVER_UP,
    catalogue.DRIVER_ERROR_INFO,
    catalogue.DRIVER_INFO,
    catalogue.P2P_EXPECTED,
)


@dataclass(frozen=True, slots=True)
class GpuPresence:
    """One GPU ever seen.

    Attributes:
        labels: its index and UUID.
        name: the product; "" until it was read.
        error: why it does not answer (``lost``, ``stalled``, ``missing``, …); None when it does.
    """

    labels: GpuLabels
    name: str
    error: str | None


@dataclass(frozen=True, slots=True)
class PresenceReading:
    """Who is there.

    Attributes:
        gpus: every GPU ever seen by this process.
        driver_error: why NVML cannot be used; None when it can, and before the first look.
        driver_known: whether NVML was tried at all.
        versions: of the driver; None while it is unavailable.
        nvml_count: GPUs that NVML counts; None while it is unavailable.
        pci_count: NVIDIA GPUs on the PCI bus that are this host's own; None where sysfs has no bus.
        expected_count: GPUs declared; None if not.
        expected_p2p: whether peers should reach each other; None if not declared.
        most_since_boot: most GPUs that the driver has shown since the boot; None while it has shown none.
    """

    gpus: tuple[GpuPresence, ...]
    driver_error: str | None
    driver_known: bool
    versions: DriverVersions | None
    nvml_count: int | None
    pci_count: int | None
    expected_count: int | None
    expected_p2p: bool | None
    most_since_boot: int | None = None


def render(reading: PresenceReading) -> Iterator[Sample]:
    """Samples of who is there."""
    for gpu in reading.gpus:
        yield catalogue.UP.sample(gpu.error is None, *gpu.labels)
        if gpu.error is not None:
            yield catalogue.ERROR_INFO.sample(1, *gpu.labels, gpu.error)
    yield from present(catalogue.DEVICES, reading.nvml_count, "nvml")
    yield from present(catalogue.DEVICES, reading.pci_count, "pci")
    yield from present(catalogue.DEVICES, reading.expected_count, "expected")
    yield from present(catalogue.DEVICES, reading.most_since_boot, "boot")
    if reading.driver_known:
        yield catalogue.DRIVER_UP.sample(reading.driver_error is None)
    if reading.driver_error is not None:
        yield catalogue.DRIVER_ERROR_INFO.sample(1, reading.driver_error)
    if reading.versions is not None:
        versions = reading.versions
        yield catalogue.DRIVER_INFO.sample(1, versions.driver or "", versions.cuda or "", versions.nvml or "")
    yield from present(catalogue.P2P_EXPECTED, reading.expected_p2p)
