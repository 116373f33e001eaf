"""What the host's InfiniBand and RoCE ports have carried, and whether they can."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.collectors.rendering import present
from gpu_triage.hardware.host_infiniband import HostInfinibandReader, HostInfinibandReading


def render(reading: HostInfinibandReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for port in reading.ports:
        labels = (port.device, port.port)
        yield from present(catalogue.HOST_INFINIBAND_RECEIVE_BYTES, port.receive_bytes, *labels)
        yield from present(catalogue.HOST_INFINIBAND_TRANSMIT_BYTES, port.transmit_bytes, *labels)
        yield from present(catalogue.HOST_INFINIBAND_RATE, port.rate_bytes_per_second, *labels)
        yield from present(catalogue.HOST_INFINIBAND_UP, port.up, *labels)


HOST_INFINIBAND = HostCollector(
    name="host_infiniband",
    about="InfiniBand and RoCE ports",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_INFINIBAND_RECEIVE_BYTES,
        catalogue.HOST_INFINIBAND_TRANSMIT_BYTES,
        catalogue.HOST_INFINIBAND_RATE,
        catalogue.HOST_INFINIBAND_UP,
    ),
    reader=lambda _config: HostInfinibandReader().read,
    render=render,
    # The kernel asks the adapter's firmware for its counters, each time they are read.
    own_lane=True,
)
