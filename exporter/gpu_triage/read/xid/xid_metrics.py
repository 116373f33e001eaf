"""Metrics of Xids and SXids, and of the sources that report them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_triage.read.metrics.contract import GpuLabels, OwnSubject
from gpu_triage.read.metrics.metric import ANY, Sample, Tier, gpu_counter, gpu_gauge, host_counter, host_gauge
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.read.xid.xid_events import MISSED_BY_NVML, XidSource
from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU, FATAL_LABELS, XidCounts, XidName

_FROM_ZERO: Final = tuple(XidName(str(xid.code)) for xid in XID_CODES.values() if xid.common)
_FATAL_IN_TEXT: Final = [xid.code for xid in XID_CODES.values() if xid.fatal_in_text]

GPU_XID_ERRORS_TOTAL = gpu_counter(
    "Xid errors of the GPU by code, each counted once, including those in the kernel log at startup. Codes that matter "
    f"once they repeat ({', '.join(name.xid for name in _FROM_ZERO)}) start at 0 once an Xid source is available; "
    f"others are absent until they occur. After {CODES_PER_GPU} codes of a GPU, further ones count as other. `fatal` "
    f"is true or false for the NVLink 5 codes ({_FATAL_IN_TEXT[0]} to {_FATAL_IN_TEXT[-1]}) logged as Fatal or "
    "Nonfatal, else empty.",
    labels={"xid": ANY, "fatal": FATAL_LABELS.values()},
    source="nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = gpu_gauge(
    "Unix time of the last Xid error of this code, from the kernel log, else from NVML's report. Alert on its age: the "
    "counter restarts with the exporter.",
    labels={"xid": ANY, "fatal": FATAL_LABELS.values()},
    source="nvmlEventSetWait_v2; /dev/kmsg, NVRM: Xid",
)
GPU_XID_SUSPECT_UNIT_PROCESSES = gpu_gauge(
    "Processes that failed with Xid 13 or 31 in one unit of the chip since boot, if different programs or days point "
    "only to that unit: a fault of the board. Absent otherwise.",
    labels=("unit",),
    source="/dev/kmsg, NVRM: Xid",
)
GPU_XID_UNASSIGNED_ERRORS_TOTAL = host_counter(
    "Like gpu_xid_errors_total, for a GPU that the driver has not listed since the exporter started, such as one "
    "that fell off the bus; once it is seen, the counts move there.",
    labels={"pci_bus_id": ANY, "xid": ANY, "fatal": FATAL_LABELS.values()},
    source="/dev/kmsg, NVRM: Xid",
)
GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS = host_gauge(
    "Like gpu_xid_last_timestamp_seconds, for a GPU that the driver has not listed since the exporter started, or a "
    "replaced one.",
    labels={"pci_bus_id": ANY, "xid": ANY, "fatal": FATAL_LABELS.values()},
    source="/dev/kmsg, NVRM: Xid",
)
GPU_NVSWITCH_SXID_ERRORS_TOTAL = host_counter(
    "SXid errors of the NVSwitch by code, including those in the kernel log at startup. `fatal` is true if the switch "
    "must be reset. Absent until there is one, and for NVLink 5 switches (see Xids 144 to 150 of the GPUs). After "
    f"{CODES_PER_GPU} codes, further ones count as other.",
    labels={"pci_bus_id": ANY, "sxid": ANY, "fatal": ("true", "false")},
    source="/dev/kmsg, SXid",
)
GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS = host_gauge(
    "Unix time of the last SXid error of this code, from the kernel log.",
    labels={"pci_bus_id": ANY, "sxid": ANY, "fatal": ("true", "false")},
    source="/dev/kmsg, SXid",
)
GPU_EXPORTER_XID_SOURCE_UP = host_gauge(
    "1 while the exporter receives Xid errors from this source (kmsg, nvml), 0 otherwise. The kernel log is 0 for 2 "
    "minutes after an overrun. NVML misses events from before the exporter, and in 2024 missed "
    f"Xids {', '.join(map(str, MISSED_BY_NVML))}.",
    labels={"source": [source.value for source in XidSource]},
    source="the sampler",
)


@dataclass(frozen=True, slots=True)
class XidReading:
    """All Xids known now; GPUs and codes without any are missing."""

    # GPUs for which missing codes are known to be 0: their Xids are received, including earlier ones. Empty while this
    # is not certain.
    counted: tuple[GpuLabels, ...]
    gpus: Mapping[GpuLabels, XidCounts]
    # Counts by PCI bus ID of a GPU never seen, such as one that fell off the bus earlier; then by Xid.
    unassigned: Mapping[str, XidCounts]
    sources: Mapping[str, bool]
    switches: Mapping[str, XidCounts] = field(default_factory=dict)  # SXids by PCI bus ID of the NVSwitch, then by code
    # By GPU, the location on the chip where programs keep failing, and the number of processes.
    suspects: Mapping[GpuLabels, tuple[str, int]] = field(default_factory=dict)


def render(reading: XidReading) -> Iterator[Sample]:
    """Render the samples of all Xids.

    For Xids that programs cause, alerts count occurrences within minutes. An increase is only seen if the counter was
    scraped before the first Xid, so these counters start at 0 on every GPU.
    """
    for gpu in reading.counted:
        seen = reading.gpus.get(gpu, {})
        yield from (GPU_XID_ERRORS_TOTAL.sample(0, *gpu, *name) for name in _FROM_ZERO if name not in seen)
    for gpu, xids in reading.gpus.items():
        for name, count in xids.items():
            yield GPU_XID_ERRORS_TOTAL.sample(count.count, *gpu, *name)
            yield GPU_XID_LAST_TIMESTAMP_SECONDS.sample(count.last_at, *gpu, *name)
    for gpu, (unit, processes) in reading.suspects.items():
        yield GPU_XID_SUSPECT_UNIT_PROCESSES.sample(processes, *gpu, unit)
    for bus_id, xids in reading.unassigned.items():
        for name, count in xids.items():
            yield GPU_XID_UNASSIGNED_ERRORS_TOTAL.sample(count.count, bus_id, *name)
            yield GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS.sample(count.last_at, bus_id, *name)
    for bus_id, sxids in reading.switches.items():
        for name, count in sxids.items():
            yield GPU_NVSWITCH_SXID_ERRORS_TOTAL.sample(count.count, bus_id, *name)
            yield GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS.sample(count.last_at, bus_id, *name)
    for source, heard in reading.sources.items():
        yield GPU_EXPORTER_XID_SOURCE_UP.sample(heard, source)


XID = OwnSubject("Xid errors, from NVML's events and the kernel log", Tier.EVENT, render)
