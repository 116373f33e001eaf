"""Configurable thresholds of findings, by code: defaults, ranges and meaning (see `settings`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings.check import Unit
from gpu_triage.read.xid.codes import XID_CODES, XidKind


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold."""

    value: float  # default
    about: str  # its meaning, a sentence without a period
    low: float  # lowest allowed value
    high: float  # highest allowed value
    unit: Unit  # unit of these values; a ratio may exceed 1


_share = partial(Limit, low=0.01, high=1.0, unit=Unit.RATIO)
_count = partial(Limit, low=1, high=1_000_000, unit=Unit.COUNT)
_celsius = partial(Limit, unit=Unit.CELSIUS)
_rate = partial(Limit, low=1, high=1024.0**4, unit=Unit.BYTES_PER_SECOND)
_seconds = partial(Limit, unit=Unit.SECONDS)


def _throttled(value: float, reason: str) -> Limit:
    return _share(value, f"Held back by {reason} for more than this share of the time")


_APPLICATION_XID: Final = _count(3, "More Xids of programs than this, of any code, in 10 minutes")

LIMITS: Final[Mapping[str, Mapping[str, Limit]]] = MappingProxyType(
    {
        **{
            f"xid.{xid.code}": {"count": _APPLICATION_XID}
            for xid in XID_CODES.values()
            if xid.kind is XidKind.APPLICATION
        },
        "gpu.slow": {
            "corrected_per_second": _count(
                100, "At least this many corrected memory errors per second before it stalled"
            ),
            "seconds": _seconds(120, "and stalled for no longer than this: then it counts as lost", low=10, high=3600),
        },
        "gpu.repeat_offender": {
            "in_7_days": _count(2, "Incidents of one kind within 7 days", low=2, high=100),
            "in_30_days": _count(3, "Incidents of one kind within 30 days", low=2, high=100),
        },
        "thermal.hw": {"share": _throttled(0.1, "hw_thermal")},
        "thermal.sw": {"share": _throttled(0.25, "sw_thermal")},
        "thermal.margin": {
            "margin": _celsius(5, "Fewer degrees than this left before the GPU slows down", low=1, high=40),
            "memory_margin": _celsius(2, "or before its memory does, which runs hotter by design", low=1, high=40),
        },
        "thermal.low_limit": {
            "gap": _celsius(
                25, "Highest operating temperature at least this many degrees below slowdown", low=5, high=60
            )
        },
        "power.brake": {"share": _throttled(0.05, "hw_power_brake")},
        "power.hw_slowdown": {"share": _throttled(0.05, "hw_slowdown, without heat or brake,")},
        "power.reading": {
            "ratio": _share(
                1.2, "Reads at least this share of the highest power limit, at a low clock", low=1.01, high=10
            )
        },
        "power.cap": {"share": _throttled(0.9, "a lowered power limit")},
        "power.limit": {
            "ratio": _share(0.99, "A power limit below this share of the default counts as lowered", low=0.1, high=1.0)
        },
        "clock.straggler": {
            "drop": _share(0.1, "SM clock lower than the median of its busy peers by more than this share", high=0.9),
            "peers": _count(3, "Busy GPUs of one model that are needed for a comparison", low=3, high=64),
        },
        "pcie.flapping": {
            "retrainings": _count(5, "The link changed its width or generation, and back, more often in 15 minutes")
        },
        "pcie.replays": {"count": _count(30, "More replays than this in 15 minutes")},
        "pcie.aer": {"count": _count(100, "More correctable AER errors than this in 15 minutes")},
        "nvlink.errors": {
            "replays": _count(10, "More replays and recoveries than this in 15 minutes"),
            "crc": _count(100, "More CRC errors than this in 15 minutes"),
        },
        "nvlink.recovering": {"count": _count(2, "One link of NVLink 5 recovered at least so often within an hour")},
        "nvlink.flapping": {"downs": _count(2, "Links went down at least so often in 30 minutes")},
        "ecc.corrected_rising": {"a_day": _count(100, "More corrected memory errors than this in a day")},
        "host.memory_errors_rising": {"a_day": _count(100, "More corrected errors of the host's memory in a day")},
        "host.hung_task": {"tasks": _count(2, "Tasks that hang at the same time", high=1000)},
        "cpu.slow_clock": {
            "ratio": _share(0.45, "The busiest CPU runs below this share of its clock"),
            "busy": _share(0.9, "while it is busy for this share of the time"),
        },
        "memory.swapping": {"rate": _rate(65536, "Reads back more than this a second from swap")},
        "memory.limited": {
            "pressure": _share(0.1, "At its own memory limit, a job's tasks are stalled for this share of the time")
        },
        "memory.starved": {
            "rate": _rate(1024.0**2, "GPUs wait, and at least this is read back from swap a second"),
            "pressure": _share(0.1, "or tasks are stalled for memory for this share of the time"),
        },
        "storage.starved": {
            "iowait": _share(0.1, "GPUs wait, and iowait is at least this share of the CPU time"),
            "pressure": _share(0.2, "or tasks are stalled for I/O for this share of the time"),
            "blocked": _share(0.3, "or this share of the job's threads that do not sleep wait for it in the kernel"),
            "disk": _share(0.9, "or a disk is busy for this share of the time, and slow"),
            "nfs": _seconds(
                0.05,
                "or reads, writes or lookups of NFS, or reads of Lustre, take this long on average",
                low=0.001,
                high=60,
            ),
        },
        "cpu.starved": {
            "node": _share(0.9, "GPUs wait, and the CPUs of their NUMA node are busy for this share of the time"),
            "busiest": _share(0.98, "or the busiest CPU of the node is busy for this share of the time"),
        },
        "cpu.limited": {
            "share": _share(0.25, "GPUs wait, and the job's CPU limit stops it in this share of the periods, or more")
        },
        "network.starved": {
            "line_rate": _share(0.85, "GPUs wait, and an adapter is at this share of its line rate, or more")
        },
        "network.port_flapping": {"downs": _count(3, "A port lost its link more often than this in an hour")},
        "network.link_degraded": {"downs": _count(3, "An interface lost its link more often than this in an hour")},
        "network.port_errors": {"count": _count(30, "More link errors of a port than this in 15 minutes")},
        "network.interface_errors": {"count": _count(30, "More bad packets than this in 15 minutes")},
        "network.timeouts": {"count": _count(10, "More requests without acknowledgment than this in 15 minutes")},
        "work.blocked": {"stuck": _seconds(60, "A process has not run once for so long", low=10, high=3600)},
        "work.memory_full": {
            "full": _share(0.97, "Device memory filled beyond this share", low=0.5),
            "growth": _share(0.001, "and grown by more than this share of it in 15 minutes", low=0.0),
        },
        "work.memory_imbalance": {
            "full": _share(0.9, "One GPU's memory filled beyond this share"),
            "empty": _share(0.1, "while an idle sibling's is filled below this share"),
        },
    }
)
"""Thresholds by finding and name. Those of `memory.starved` etc. also decide the class and `memory.saturated` etc."""
