"""Memory and swap of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_memory import HostMemoryReading, read_host_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostMemoryReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for spec, value in (
        (catalogue.HOST_MEMORY_TOTAL, reading.total_bytes),
        (catalogue.HOST_MEMORY_AVAILABLE, reading.available_bytes),
        (catalogue.HOST_SWAP_TOTAL, reading.swap_total_bytes),
        (catalogue.HOST_SWAP_USED, reading.swap_used_bytes),
        (catalogue.HOST_SWAP_IN_BYTES, reading.swap_in_bytes),
        (catalogue.HOST_SWAP_OUT_BYTES, reading.swap_out_bytes),
        (catalogue.HOST_MAJOR_FAULTS, reading.major_faults),
    ):
        if value is not None:
            yield spec.sample(value)


HOST_MEMORY = HostCollector(
    name="host_memory",
    about="memory, swap and paging",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_MEMORY_TOTAL,
        catalogue.HOST_MEMORY_AVAILABLE,
        catalogue.HOST_SWAP_TOTAL,
        catalogue.HOST_SWAP_USED,
        catalogue.HOST_SWAP_IN_BYTES,
        catalogue.HOST_SWAP_OUT_BYTES,
        catalogue.HOST_MAJOR_FAULTS,
    ),
    reader=lambda _config: read_host_memory,
    render=render,
)
