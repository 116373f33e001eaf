"""Xids: what the driver reports of GPUs that went wrong, and who listens for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.hardware.xid_codes import XID_CODES
from gpu_triage.hardware.xid_ledger import XidCounts, XidName

NAME: Final = "xid"
ABOUT: Final = "Xid errors, from NVML's events and the kernel log"
METRICS: Final = (
    catalogue.XID_ERRORS,
    catalogue.XID_LAST_TIMESTAMP,
    catalogue.XID_UNASSIGNED_ERRORS,
    catalogue.XID_UNASSIGNED_LAST_TIMESTAMP,
    catalogue.EXPORTER_XID_SOURCE_UP,
)
_FROM_ZERO: Final = tuple(XidName(str(xid.code)) for xid in XID_CODES.values() if xid.common)


@dataclass(frozen=True, slots=True)
class XidReading:
    """All Xids known now; a GPU or a code without one is not in it.

    Attributes:
        counted: every GPU that had none so far of the codes that are not in `gpus`: its Xids are heard, and those
            from before are known. Empty while that cannot be said.
        gpus: by GPU ever seen by this process, then by Xid.
        unassigned: by the PCI bus id of a GPU never seen, as it is when it fell off the bus before; then by Xid.
        sources: whether each source of Xids is heard.
    """

    counted: tuple[GpuLabels, ...]
    gpus: Mapping[GpuLabels, XidCounts]
    unassigned: Mapping[str, XidCounts]
    sources: Mapping[str, bool]


def render(reading: XidReading) -> Iterator[Sample]:
    """Samples of all Xids.

    What a program causes is told by its number within minutes. Such a counter has to be seen before its first Xids, for
    an increase starts with the first value that is scraped: so it starts at 0 on every GPU.
    """
    for gpu in reading.counted:
        seen = reading.gpus.get(gpu, {})
        yield from (catalogue.XID_ERRORS.sample(0, *gpu, *name) for name in _FROM_ZERO if name not in seen)
    for gpu, xids in reading.gpus.items():
        for name, count in xids.items():
            yield catalogue.XID_ERRORS.sample(count.count, *gpu, *name)
            yield catalogue.XID_LAST_TIMESTAMP.sample(count.last_at, *gpu, *name)
    for bus_id, xids in reading.unassigned.items():
        for name, count in xids.items():
            yield catalogue.XID_UNASSIGNED_ERRORS.sample(count.count, bus_id, *name)
            yield catalogue.XID_UNASSIGNED_LAST_TIMESTAMP.sample(count.last_at, bus_id, *name)
    for source, heard in reading.sources.items():
        yield catalogue.EXPORTER_XID_SOURCE_UP.sample(heard, source)
