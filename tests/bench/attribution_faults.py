"""What the benchmark of attribution does to a GPU and its host, one fault at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gpu_triage_simulator.effects import (
    ApplicationClock,
    Hang,
    Link,
    Lost,
    PowerBrake,
    PowerLimit,
    RecoveryAction,
    ResetRequired,
    ThermalThrottle,
    Xid,
)
from gpu_triage_simulator.host_effects import Cpu, Disk, Kill, Network, Nfs, Pressure, Start, Swap
from gpu_triage_simulator.load import Load

SICK_SECONDS: Final = 10
HUNG_SECONDS: Final = 300
OTHER_SECONDS: Final = 60
BACK_SECONDS: Final = 90
START_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to the GPU or its host."""

    name: str  # the class it leads to
    what: str  # in words
    effects: tuple[Any, ...]  # all at once
    promised: int | None = OTHER_SECONDS  # seconds to the class; None where nothing is promised
    ends: bool = True  # whether the class ends with the fault: an Xid counts for ten minutes
    # whether the class takes what was before, so that an exporter that starts then cannot know it
    remembered: bool = False


_WAITS: Final = Load(utilization=0.35, memory_utilization=0.2)
_RESTS: Final = Load(utilization=0.0, memory_utilization=0.0, jitter=0.0, resting_watts=80.0)
_DISK: Final = "nvme0n1"
_MOUNT: Final = "/mnt/datasets"

FAULTS: Final = (
    Fault("sick", "falls off the bus", (Lost(),), SICK_SECONDS, ends=False),
    Fault("sick", "Xid 48", (Xid(48),), SICK_SECONDS, ends=False),
    Fault("sick", "needs a reset", (ResetRequired(),), SICK_SECONDS),
    Fault("sick", "the driver's calls hang", (Hang(),), SICK_SECONDS, remembered=True),
    Fault("sick", "the driver asks for a recovery action", (RecoveryAction(1),), SICK_SECONDS),
    Fault("thermal", "hw_thermal, half of the time", (ThermalThrottle("hw", 1900, 0.5),)),
    Fault(
        "thermal",
        "hw_thermal, half of the time, at 75 % busy",
        (ThermalThrottle("hw", 1900, 0.5), Load(utilization=0.75)),
    ),
    Fault("thermal", "sw_thermal, a quarter of the time", (ThermalThrottle("sw", 1900, 0.25),)),
    Fault("power_brake", "half of the time", (PowerBrake(1900, 0.5),)),
    Fault("pcie_link", "half of the lanes", (Link(width=8),)),
    Fault("pcie_link", "generation 1 of 4", (Link(generation=1),)),
    Fault("power_cap", "limit at 180 of 350 W", (PowerLimit(180.0),)),
    Fault("clock_cap", "application clock at 1,500 of 2,520 MHz", (ApplicationClock(1500),)),
    Fault("hung", "no kernel any more, memory held", (_RESTS,), HUNG_SECONDS, remembered=True),
    Fault("memory", "20 MB/s read back from swap", (_WAITS, Swap(in_bytes_per_second=2e7, used_gib=8.0))),
    Fault("memory", "pressure, without swap", (_WAITS, Pressure("memory", 0.3, 0.1))),
    Fault("storage", "a disk busy 97 % of the time", (_WAITS, Disk(_DISK, busy=0.97))),
    Fault("storage", "iowait of 25 %", (_WAITS, Cpu(user=0.1, iowait=0.25))),
    Fault("storage", "NFS takes 110 ms", (_WAITS, Nfs(_MOUNT, reads_per_second=90.0, read_seconds=0.11))),
    Fault(
        "storage",
        "a dead NFS server: no kernel any more",
        (_RESTS, Nfs(_MOUNT, reads_per_second=0.0), Pressure("io", 0.99, 0.4), Cpu(user=0.06, iowait=0.14)),
        remembered=True,
    ),
    Fault("cpu", "the node's CPUs busy 98 % of the time", (_WAITS, Cpu(node=0, user=0.95, system=0.03))),
    Fault("cpu", "one CPU busy all the time", (_WAITS, Cpu(user=0.2, saturated_cpus="3"))),
    Fault("network", "95 % of line rate", (_WAITS, Network("eno1", receive_bytes_per_second=2.97e9))),
    Fault("numa", "a process on the other node", (Load(utilization=0.4), Kill((4100,)), Start((4101,)))),
    Fault(
        "communication",
        "kernels that spin",
        (Load(utilization=1.0, memory_utilization=0.05, intensity=0.15, jitter=0.0),),
    ),
    Fault("unattributed", "busy 40 % of the time, nothing scarce", (Load(utilization=0.4),), None),
    Fault("idle", "the job ends", (Load(utilization=0.0), Kill((4100,))), None),
)
