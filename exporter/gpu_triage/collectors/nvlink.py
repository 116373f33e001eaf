"""The NVLink links."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import GpuCollector, GpuLabels
from gpu_triage.collectors.rendering import by_label, present
from gpu_triage.hardware.nvlink import NvlinkReader, NvlinkReading


def render(reading: NvlinkReading, gpu: GpuLabels) -> Iterator[Sample]:
    """Samples of one GPU's links."""
    for number, link in reading.links.items():
        label = str(number)
        yield from present(catalogue.NVLINK_UP, link.is_up, *gpu, label)
        yield from by_label(catalogue.NVLINK_ERRORS, link.errors, *gpu, label)
        yield from present(catalogue.NVLINK_TRANSMIT_BYTES, link.transmit_bytes, *gpu, label)
        yield from present(catalogue.NVLINK_RECEIVE_BYTES, link.receive_bytes, *gpu, label)


NVLINK = GpuCollector(
    name="nvlink",
    about="state, errors and traffic of the NVLink links",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.NVLINK_UP,
        catalogue.NVLINK_ERRORS,
        catalogue.NVLINK_TRANSMIT_BYTES,
        catalogue.NVLINK_RECEIVE_BYTES,
    ),
    reader=lambda _config: NvlinkReader().read,
    render=render,
)
