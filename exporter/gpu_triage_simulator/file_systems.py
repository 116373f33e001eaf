"""Statistics of the Lustre client and of nvidia-fs, if the scenario has them."""

from __future__ import annotations

from gpu_triage_simulator import host_effects
from gpu_triage_simulator.host import SimulatedHost


def files(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of every file, by its path below procfs."""
    counted: dict[str, list[float]] = {}
    for event, effect in host.timeline.host(host_effects.FileSystem):
        lasted = max(0.0, (seconds if event.until is None else min(seconds, event.until)) - event.at)
        reads = int(lasted * effect.reads_per_second)
        of = counted.setdefault(effect.lustre, [0.0, 0.0, 0.0, 0.0])
        of[0] += reads
        of[1] += int(lasted * effect.read_bytes_per_second)
        of[2] += reads * effect.read_seconds
        of[3] += effect.in_flight if event.active(seconds) else 0
    return {_path(name): (_lustre if name else _gds)(*counts) for name, counts in counted.items()}


def _path(name: str) -> str:
    return f"fs/lustre/llite/{name}-ffff9bc043537800/stats" if name else "driver/nvidia-fs/stats"


def _lustre(reads: float, read_bytes: float, seconds: float, _in_flight: float) -> str:
    return (
        "snapshot_time             1783960164.279418700 secs.nsecs\n"
        f"read_bytes                {reads:.0f} samples [bytes] 1 1048576 {read_bytes:.0f} 0\n"
        f"read                      {reads:.0f} samples [usecs] 1 999999 {seconds * 1e6:.0f} 0\n"
    )


def _gds(reads: float, read_bytes: float, _seconds: float, in_flight: float) -> str:
    mib = int(read_bytes) >> 20
    return (
        "GDS Version: 1.13.1.3 \nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.24.3)\n"
        f"Reads\t\t\t\t: n={reads:.0f} ok={reads:.0f} err=0 readMiB={mib} io_state_err=0\n"
        "Writes\t\t\t\t: n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0\n"
        f"Ops\t\t\t\t: Read={in_flight:.0f} Write=0 BatchIO=0\n"
    )
