"""What the host's network interfaces have carried, lost and can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_network import HostNetworkReader, HostNetworkReading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostNetworkReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for interface in reading.interfaces:
        device = interface.device
        yield catalogue.HOST_NETWORK_RECEIVE_BYTES.sample(interface.receive_bytes, device)
        yield catalogue.HOST_NETWORK_TRANSMIT_BYTES.sample(interface.transmit_bytes, device)
        yield catalogue.HOST_NETWORK_ERRORS.sample(interface.receive_errors, device, "receive")
        yield catalogue.HOST_NETWORK_ERRORS.sample(interface.transmit_errors, device, "transmit")
        yield catalogue.HOST_NETWORK_DROPS.sample(interface.receive_drops, device, "receive")
        yield catalogue.HOST_NETWORK_DROPS.sample(interface.transmit_drops, device, "transmit")
        if interface.speed_bytes_per_second is not None:
            yield catalogue.HOST_NETWORK_SPEED.sample(interface.speed_bytes_per_second, device)
        if interface.numa_node is not None:
            yield catalogue.HOST_NETWORK_NUMA_NODE.sample(interface.numa_node, device)


HOST_NETWORK = HostCollector(
    name="host_network",
    about="network interfaces",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_NETWORK_RECEIVE_BYTES,
        catalogue.HOST_NETWORK_TRANSMIT_BYTES,
        catalogue.HOST_NETWORK_ERRORS,
        catalogue.HOST_NETWORK_DROPS,
        catalogue.HOST_NETWORK_SPEED,
        catalogue.HOST_NETWORK_NUMA_NODE,
    ),
    reader=lambda _config: HostNetworkReader().read,
    render=render,
)
