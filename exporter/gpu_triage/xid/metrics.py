"""Xids: what the driver reports of GPUs that went wrong, and who listens for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.subjects.contract import GpuLabels
from gpu_triage.subjects.metric import ANY, Sample, Tier, gpu_counter, gpu_gauge, host_counter, host_gauge
from gpu_triage.xid.codes import XID_CODES
from gpu_triage.xid.events import XidSource
from gpu_triage.xid.ledger import CODES_PER_GPU, FATAL_LABELS, XidCounts, XidName

NAME: Final = "xid"
ABOUT: Final = "Xid errors, from NVML's events and the kernel log"
TIER: Final = Tier.EVENT

_FROM_ZERO: Final = tuple(XidName(str(xid.code)) for xid in XID_CODES.values() if xid.common)
_FATAL_IN_TEXT: Final = [xid.code for xid in XID_CODES.values() if xid.fatal_in_text]

GPU_XID_ERRORS_TOTAL = gpu_counter(
    "gpu_xid_errors_total",
    "Xid errors of the GPU by code, each counted once though NVML and the kernel log report it. Starts with what the "
    f"kernel log still holds. The codes that programs often cause ({', '.join(name.xid for name in _FROM_ZERO)}) start "
    "at 0 once Xids are heard, the others are absent until there is one. Codes beyond the first "
    f"{CODES_PER_GPU} of a GPU are counted as other. `fatal` is true or false for the NVLink 5 codes "
    f"({_FATAL_IN_TEXT[0]} to {_FATAL_IN_TEXT[-1]}) whose kernel message says Fatal or Nonfatal, and empty otherwise.",
    labels={"xid": ANY, "fatal": FATAL_LABELS.values()},
    source="nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = gpu_gauge(
    "gpu_xid_last_timestamp_seconds",
    "Unix time of the last Xid error of this code, as the kernel stamped it, else when NVML told of it. Alert on its "
    "age: the count starts anew with the exporter.",
    labels={"xid": ANY, "fatal": FATAL_LABELS.values()},
    source="nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
)
GPU_XID_UNASSIGNED_ERRORS_TOTAL = host_counter(
    "gpu_xid_unassigned_errors_total",
    "As gpu_xid_errors_total, for a GPU that the driver has not shown since the exporter started, as when it fell "
    "off the bus before; moves there once the GPU is seen. Also what happened, before the exporter started, at this "
    "address before the kernel found the present GPU there: it may be of a card since replaced.",
    labels={"pci_bus_id": ANY, "xid": ANY, "fatal": FATAL_LABELS.values()},
    source="/dev/kmsg, NVRM: Xid",
)
GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS = host_gauge(
    "gpu_xid_unassigned_last_timestamp_seconds",
    "As gpu_xid_last_timestamp_seconds, for a GPU that the driver has not shown since the exporter started, or that "
    "was replaced before.",
    labels={"pci_bus_id": ANY, "xid": ANY, "fatal": FATAL_LABELS.values()},
    source="/dev/kmsg, NVRM: Xid",
)
GPU_EXPORTER_XID_SOURCE_UP = host_gauge(
    "gpu_exporter_xid_source_up",
    "1 while Xid errors are heard from this source (kmsg, nvml), 0 while not: where all are 0, no Xid means that "
    "nobody listens. The kernel log needs permission; NVML hears only what happens while it listens.",
    labels={"source": [source.value for source in XidSource]},
    source="the sampler",
)


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
        yield from (GPU_XID_ERRORS_TOTAL.sample(0, *gpu, *name) for name in _FROM_ZERO if name not in seen)
    for gpu, xids in reading.gpus.items():
        for name, count in xids.items():
            yield GPU_XID_ERRORS_TOTAL.sample(count.count, *gpu, *name)
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(count.last_at, *gpu, *name)
    for bus_id, xids in reading.unassigned.items():
        for name, count in xids.items():
            yield GPU_XID_UNASSIGNED_ERRORS_TOTAL.sample(count.count, bus_id, *name)
            yield GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS.sample(count.last_at, bus_id, *name)
    for source, heard in reading.sources.items():
        yield GPU_EXPORTER_XID_SOURCE_UP.sample(heard, source)
