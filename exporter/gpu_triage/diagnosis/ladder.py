"""The bottleneck of a GPU: the first class that matches, from the top of the playbook's ladder, over the watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.advice import CRITICAL_XIDS
from gpu_triage.diagnosis.starvation import scarce_cpu, scarce_memory, scarce_network, scarce_storage
from gpu_triage.diagnosis.view import GpuView, HostView

FABRIC_JOINED: Final = 3
FABRIC_UNHEALTHY: Final = 2
LIMITED_CLOCKS: Final = ("sm", "graphics", "memory")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Which resource is scarce first for one GPU.

    Attributes:
        name: the class, as `class` of instance_gpu:gpu_bottleneck:active.
        because: what was measured.
        unseen: what a watch cannot tell, but would change the class; "" mostly.
    """

    name: str
    because: str
    unseen: str = ""


Rung = Callable[[GpuView, HostView], str | None]
"""Why a class matches; None when it does not."""


def bottleneck_of(gpu: GpuView, host: HostView) -> Bottleneck:
    """The first class that matches; there always is one."""
    if host.released:
        return Bottleneck("idle", "released on request", "whatever it does, nobody watches it")
    for name, rung in LADDER:
        because = rung(gpu, host)
        if because is not None:
            return Bottleneck(name, because, _unseen(name, gpu))
    return Bottleneck("idle", "no compute process")


def recent_xids(gpu: GpuView) -> Iterator[tuple[str, float]]:
    """Code and age in seconds of the Xids that count as of now."""
    for track in gpu.series(catalogue.XID_LAST_TIMESTAMP):
        age_seconds = max(0.0, gpu.evidence.wall - track.last)
        if age_seconds <= thresholds.XID_RECENT_SECONDS:
            yield track.labels["xid"], age_seconds


def is_critical(xid: str) -> bool:
    """Whether a GPU must not go on after this Xid."""
    return xid.isdecimal() and int(xid) in CRITICAL_XIDS


def fabric_trouble(gpu: GpuView) -> str | None:
    """What is wrong with the GPU's part of the NVSwitch fabric."""
    state, health = gpu.last(catalogue.FABRIC_STATE), gpu.last(catalogue.FABRIC_HEALTH)
    if state is not None and 0 < state < FABRIC_JOINED:
        return "has not joined the NVSwitch fabric"
    return "its part of the NVSwitch fabric is unhealthy" if health == FABRIC_UNHEALTHY else None


def narrow_link(gpu: GpuView) -> str | None:
    """By how many lanes the link is short, if it was for all of the watch."""
    width, expected = gpu.one(catalogue.PCIE_WIDTH), gpu.last(catalogue.PCIE_EXPECTED_WIDTH)
    if width is None or expected is None or width.high >= expected:
        return None
    return f"{width.last:.0f} of {expected:.0f} lanes"


def slow_link(gpu: GpuView) -> str | None:
    """By how many generations the link is short, if it was for all of the watch, at rest or not."""
    generation, expected = gpu.one(catalogue.PCIE_GENERATION), gpu.last(catalogue.PCIE_EXPECTED_GENERATION)
    if generation is None or expected is None or generation.high >= expected:
        return None
    return f"PCIe generation {generation.last:.0f} of {expected:.0f}"


def limited_clock(gpu: GpuView) -> str | None:
    """Which clock somebody set below its default."""
    for clock in LIMITED_CLOCKS:
        target = gpu.last(catalogue.CLOCK_TARGET, clock=clock)
        default = gpu.last(catalogue.CLOCK_DEFAULT, clock=clock)
        if target is not None and default is not None and target < default:
            return f"{clock} clock set to {target / 1e6:.0f} MHz, default {default / 1e6:.0f} MHz"
    return None


def _sick(gpu: GpuView, _host: HostView) -> str | None:
    if not gpu.up:
        return f"does not answer ({gpu.label(catalogue.ERROR_INFO, 'error') or 'unknown'})"
    xids = [xid for xid, _ in recent_xids(gpu) if is_critical(xid)]
    if xids:
        return f"Xid {', '.join(xids)} within {thresholds.XID_RECENT_SECONDS / 60:.0f} minutes"
    uncorrected = gpu.last(catalogue.ECC_VOLATILE_ERRORS, severity="uncorrected")
    if uncorrected:
        return f"{uncorrected:.0f} uncorrected memory errors"
    if gpu.last(catalogue.ROW_REMAP_FAILURE):
        return "a memory row could not be remapped"
    if gpu.last(catalogue.RECOVERY_ACTION):
        return "the driver asks for a recovery action"
    return fabric_trouble(gpu)


def _thermal(gpu: GpuView, _host: HostView) -> str | None:
    share = max(gpu.throttled("hw_thermal"), gpu.throttled("sw_thermal"))
    if not gpu.busy or share <= thresholds.THERMAL_SHARE:
        return None
    return f"throttled for heat {share:.0%} of the time"


def _power_brake(gpu: GpuView, _host: HostView) -> str | None:
    share = gpu.brake_share
    return f"braked {share:.0%} of the time" if share > thresholds.POWER_BRAKE_SHARE else None


def _pcie_link(gpu: GpuView, _host: HostView) -> str | None:
    return (narrow_link(gpu) or slow_link(gpu)) if gpu.loaded else None


def _power_cap(gpu: GpuView, _host: HostView) -> str | None:
    share = gpu.throttled("sw_power_cap")
    if not gpu.capped or share < thresholds.POWER_CAP_CLASS_SHARE:
        return None
    return f"at a lowered power limit {share:.0%} of the time"


def _clock_cap(gpu: GpuView, _host: HostView) -> str | None:
    # Of a GPU that waits or rests, its clocks are not the bottleneck, and must not hide what is.
    return limited_clock(gpu) if gpu.loaded and not gpu.waiting else None


def _memory(gpu: GpuView, host: HostView) -> str | None:
    return scarce_memory(host) if gpu.waiting else None


def _storage(gpu: GpuView, host: HostView) -> str | None:
    return scarce_storage(host) if gpu.waiting else None


def _cpu(gpu: GpuView, host: HostView) -> str | None:
    return scarce_cpu(host, gpu.node, single=True) if gpu.waiting else None


def _network(gpu: GpuView, host: HostView) -> str | None:
    return scarce_network(host) if gpu.waiting else None


def _numa(gpu: GpuView, _host: HostView) -> str | None:
    remote = gpu.last(catalogue.NUMA_MISMATCHED_PROCESSES) or 0
    return f"{remote:.0f} of its processes on the wrong NUMA node" if gpu.waiting and remote else None


def _communication(gpu: GpuView, _host: HostView) -> str | None:
    busy, power, activity = gpu.busy_share, gpu.power_share, gpu.one(catalogue.SM_ACTIVE)
    if gpu.partitioned or busy is None or power is None:
        return None
    spinning = busy >= thresholds.SPINNING_BUSY_SHARE and power < thresholds.SPINNING_POWER_SHARE
    if not spinning or (activity is not None and activity.mean >= thresholds.SPINNING_SM_ACTIVITY):
        return None
    return f"busy {busy:.0%} of the time at {power:.0%} of its power"


def _compute(gpu: GpuView, _host: HostView) -> str | None:
    return f"busy {gpu.busy_share:.0%} of the time, and nothing holds it back" if gpu.busy else None


def _unattributed(gpu: GpuView, _host: HostView) -> str | None:
    share = gpu.busy_share
    unlisted = not gpu.processes_known and (share or 0.0) >= thresholds.WORKING_SHARE
    if not gpu.occupied and not unlisted:
        return None
    return (
        "a compute process, busy share not known" if share is None else f"busy {share:.0%} of the time, no cause seen"
    )


LADDER: Final[tuple[tuple[str, Rung], ...]] = (
    ("sick", _sick),
    ("thermal", _thermal),
    ("power_brake", _power_brake),
    ("pcie_link", _pcie_link),
    ("power_cap", _power_cap),
    ("clock_cap", _clock_cap),
    # Class hung needs to know that the GPU was busy before: see `held_idle`.
    ("memory", _memory),
    ("storage", _storage),
    ("cpu", _cpu),
    ("network", _network),
    ("numa", _numa),
    ("communication", _communication),
    ("compute", _compute),
    ("unattributed", _unattributed),
)
"""The classes in the playbook's order, but for hung and idle."""


def held_idle(gpu: GpuView) -> bool:
    """Whether its memory is held while it rests: hung, if it was busy before."""
    held, share, power = gpu.last(catalogue.MEMORY_USED), gpu.busy_share, gpu.power_share
    return (
        gpu.occupied
        and share is not None
        and share < thresholds.HUNG_BUSY_SHARE
        and (power is None or power < thresholds.HUNG_POWER_SHARE)
        and held is not None
        and held >= thresholds.HUNG_HELD_BYTES
    )


def _unseen(name: str, gpu: GpuView) -> str:
    if name != "unattributed":
        return ""
    if held_idle(gpu):
        return "hung, if it was busy before: a watch has no history"
    share = gpu.busy_share
    if share is not None and share < thresholds.WORKING_SHARE:
        return "whether it worked before, and waits now, a watch cannot tell"
    return ""
