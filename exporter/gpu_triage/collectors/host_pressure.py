"""Time that tasks of the host lost waiting for CPU, I/O or memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_pressure import HostPressureReading, read_host_pressure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostPressureReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for resource, pressure in (("cpu", reading.cpu), ("io", reading.io), ("memory", reading.memory)):
        if pressure is None:
            continue
        for kind, seconds in (("some", pressure.some_seconds), ("full", pressure.full_seconds)):
            if seconds is not None:
                yield catalogue.HOST_PRESSURE_SECONDS.sample(seconds, resource, kind)


HOST_PRESSURE = HostCollector(
    name="host_pressure",
    about="pressure stall information",
    tier=Tier.MEDIUM,
    metrics=(catalogue.HOST_PRESSURE_SECONDS,),
    reader=lambda _config: read_host_pressure,
    render=render,
)
