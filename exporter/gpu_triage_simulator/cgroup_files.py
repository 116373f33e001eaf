"""Cgroup files of simulated processes, where a scenario sets limits."""

from __future__ import annotations

from typing import Final

from gpu_triage.driver.kernel.procfs import RESOURCES
from gpu_triage.read.processes.facts import job_level
from gpu_triage_simulator import host_effects
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import Event

_PERIODS_PER_SECOND: Final = 10
_THREADS: Final = 4
"""CPUs that are throttled in a cgroup at the same time."""


def files(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of every cgroup file, by its path below sysfs."""
    found: dict[str, str] = {}
    cgroups = {process.pid: process.cgroup for process in host.scenario.processes}
    by_path: dict[str, list[tuple[Event, host_effects.Cgroup]]] = {}
    for event, effect in host.timeline.host(host_effects.Cgroup):
        for path in dict.fromkeys(job_level(cgroups[pid]) for pid in effect.pids):
            by_path.setdefault(path, []).append((event, effect))
    if by_path:
        found["fs/cgroup/cgroup.controllers"] = "cpuset cpu io memory pids\n"
    for path, effects in by_path.items():
        texts = {**_limits(effects, seconds), **_counts(effects, seconds)}
        found |= {f"fs/cgroup{path}/{name}": text for name, text in texts.items()}
        for pid, of in cgroups.items():
            if job_level(of) == path:
                found[f"fs/cgroup{of}/cgroup.procs"] = f"{pid}\n"
    return found


def _limits(effects: list[tuple[Event, host_effects.Cgroup]], seconds: float) -> dict[str, str]:
    cpus = max((effect.cpus for event, effect in effects if event.active(seconds)), default=0.0)
    memory_gib = max((effect.memory_gib for event, effect in effects if event.active(seconds)), default=0.0)
    return {
        "cpu.max": f"{int(cpus * 100_000) if cpus else 'max'} 100000\n",
        "memory.max": f"{int(memory_gib * 2**30) if memory_gib else 'max'}\n",
        "memory.high": "max\n",
    }


def _counts(effects: list[tuple[Event, host_effects.Cgroup]], seconds: float) -> dict[str, str]:
    lasted = [(_lasted(event, seconds), effect) for event, effect in effects]
    periods = sum(int(length * _PERIODS_PER_SECOND) for length, effect in lasted if effect.cpus)
    throttled = sum(int(length * _PERIODS_PER_SECOND * effect.throttled) for length, effect in lasted)
    reached = sum(int(length * effect.memory_events_per_second) for length, effect in lasted)
    killed = sum(effect.oom_kills for event, effect in effects if event.at <= seconds)
    texts = {
        "cpu.stat": (
            f"usage_usec {int(seconds * 1e6)}\nuser_usec {int(seconds * 1e6)}\nsystem_usec 0\n"
            f"nr_periods {periods}\nnr_throttled {throttled}\n"
            f"throttled_usec {throttled * _THREADS * 1_000_000 // _PERIODS_PER_SECOND // 2}\n"
        ),
        "memory.events": f"low 0\nhigh 0\nmax {reached}\noom {killed}\noom_kill {killed}\n",
    }
    written = [length * each for length, effect in lasted if (each := effect.written_bytes_per_second) is not None]
    if written:
        texts["io.stat"] = f"259:0 rbytes=0 wbytes={int(sum(written))} rios=0 wios=0 dbytes=0 dios=0\n"
    for resource in RESOURCES:
        total = sum(length * getattr(effect, f"{resource}_pressure") for length, effect in lasted)
        texts[f"{resource}.pressure"] = "".join(
            f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={int(share * total * 1e6)}\n"
            for kind, share in (("some", 1.0), ("full", 0.5))
        )
    return texts


def _lasted(event: Event, seconds: float) -> float:
    return max(0.0, (seconds if event.until is None else min(seconds, event.until)) - event.at)
