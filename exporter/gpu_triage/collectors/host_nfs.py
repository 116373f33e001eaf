"""What the host's NFS mounts have asked of their servers, and how long it took them."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_nfs import HostNfsReader, HostNfsReading


def render(reading: HostNfsReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for mount in reading.mounts:
        for name, operation in mount.operations.items():
            yield catalogue.HOST_NFS_OPERATIONS.sample(operation.count, mount.mount, name)
            yield catalogue.HOST_NFS_OPERATION_SECONDS.sample(operation.seconds, mount.mount, name)
        yield catalogue.HOST_NFS_BYTES.sample(mount.read_bytes, mount.mount, "read")
        yield catalogue.HOST_NFS_BYTES.sample(mount.written_bytes, mount.mount, "write")


HOST_NFS = HostCollector(
    name="host_nfs",
    about="NFS mounts",
    tier=Tier.MEDIUM,
    metrics=(
        catalogue.HOST_NFS_OPERATIONS,
        catalogue.HOST_NFS_OPERATION_SECONDS,
        catalogue.HOST_NFS_BYTES,
    ),
    reader=lambda _config: HostNfsReader().read,
    render=render,
)
