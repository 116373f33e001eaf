"""What the host's disks have read and written, and how long it took them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_disk import HostDiskReader, HostDiskReading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostDiskReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for disk in reading.disks:
        yield catalogue.HOST_DISK_READ_BYTES.sample(disk.read_bytes, disk.device)
        yield catalogue.HOST_DISK_WRITTEN_BYTES.sample(disk.written_bytes, disk.device)
        yield catalogue.HOST_DISK_READS.sample(disk.reads, disk.device)
        yield catalogue.HOST_DISK_WRITES.sample(disk.writes, disk.device)
        yield catalogue.HOST_DISK_READ_SECONDS.sample(disk.read_seconds, disk.device)
        yield catalogue.HOST_DISK_WRITE_SECONDS.sample(disk.write_seconds, disk.device)
        yield catalogue.HOST_DISK_BUSY_SECONDS.sample(disk.busy_seconds, disk.device)
        yield catalogue.HOST_DISK_QUEUE_SECONDS.sample(disk.queue_seconds, disk.device)


HOST_DISK = HostCollector(
    name="host_disk",
    about="disks",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_DISK_READ_BYTES,
        catalogue.HOST_DISK_WRITTEN_BYTES,
        catalogue.HOST_DISK_READS,
        catalogue.HOST_DISK_WRITES,
        catalogue.HOST_DISK_READ_SECONDS,
        catalogue.HOST_DISK_WRITE_SECONDS,
        catalogue.HOST_DISK_BUSY_SECONDS,
        catalogue.HOST_DISK_QUEUE_SECONDS,
    ),
    reader=lambda _config: HostDiskReader().read,
    render=render,
)
