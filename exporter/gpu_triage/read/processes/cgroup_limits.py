"""Cgroup limits of the jobs on a GPU: how often they were hit, and pressure stall times.

Data loader workers share their job's cgroup, so throttling them shows up even though they do not use the GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeVar

from gpu_triage.driver.kernel.cgroups import CgroupFolders, Place, levels
from gpu_triage.driver.kernel.files import parse_count, parse_file, text_of
from gpu_triage.driver.kernel.procfs import KINDS, RESOURCES, parse_pressure
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.metrics.metric import ANY, gpu_counter, gpu_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.processes.facts import ProcessFacts, job_level

T = TypeVar("T")

_MOST_CGROUPS: Final = 32  # per GPU, including parent cgroups
_MOST_BYTES: Final = 1 << 16  # io.stat has a line of about 100 bytes per disk
_LIMITS_KEPT_SECONDS: Final = 30.0
_NANOSECONDS: Final = 1e9
_NO_LIMIT: Final = "max"
_WRITTEN: Final = re.compile(r"\bwbytes=([0-9]{1,20})\b")
_NO_MEMORY_LIMIT_BYTES: Final = 1 << 62
"""In cgroup v1, "no limit" reads as the largest page-aligned byte count."""

MEMORY_EVENTS: Final = ("high", "max", "oom", "oom_kill")

_WHERE: Final = "`cgroup` is its path, as cAdvisor's label `id`"
GPU_CGROUP_CPU_LIMIT_CPUS = gpu_gauge(
    "CPU limit, in CPUs, of a cgroup with processes on the GPU, or of one above it: a Kubernetes limit, Docker's "
    f"--cpus, systemd's CPUQuota. {_WHERE}. Absent without a limit.",
    labels=("cgroup",),
    source="/sys/fs/cgroup/**/cpu.max; version 1: cpu.cfs_{quota,period}_us",
)
_cgroup_counter = partial(gpu_counter, labels=("cgroup",))

GPU_CGROUP_CPU_PERIODS_TOTAL = _cgroup_counter(
    "Enforcement periods, usually 100 ms, in which a cgroup with a CPU limit had work.",
    source="/sys/fs/cgroup/**/cpu.stat nr_periods",
)
GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL = _cgroup_counter(
    "Periods in which the CPU limit throttled the cgroup.", source="/sys/fs/cgroup/**/cpu.stat nr_throttled"
)
GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL = _cgroup_counter(
    "Time for which the CPU limit stopped the cgroup, summed over CPUs: up to one second per second and CPU.",
    source="/sys/fs/cgroup/**/cpu.stat throttled_usec; version 1: throttled_time",
)
GPU_CGROUP_MEMORY_EVENTS_TOTAL = gpu_counter(
    "How often a cgroup with a memory limit, or one below it, hit its limits ({event}). Version 1 has max and "
    "oom_kill. Absent without a limit.",
    labels={"cgroup": ANY, "event": MEMORY_EVENTS},
    source="/sys/fs/cgroup/**/memory.events; version 1: memory.failcnt, memory.oom_control",
    default_samples=lambda sample: sample.value > 0,
)
GPU_CGROUP_PRESSURE_SECONDS_TOTAL = gpu_counter(
    "Time for which at least one (some) or all (full) active tasks of the job's own cgroup waited for the resource. "
    "Absent with version 1 and on kernels without PSI.",
    labels={"cgroup": ANY, "resource": RESOURCES, "kind": KINDS},
    source="/sys/fs/cgroup/**/{cpu,io,memory}.pressure total",
    default_samples=no_sample,
)
GPU_CGROUP_WRITTEN_BYTES_TOTAL = _cgroup_counter(
    "Bytes that the job's own cgroup wrote to disks of the host, not to file servers. Absent with version 1 and "
    "without the io controller.",
    source="/sys/fs/cgroup/**/io.stat wbytes",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """One cgroup that contains processes of the GPU, or a parent of one; None where no limit is set."""

    path: str
    cpu_limit: Annotated[float | None, GPU_CGROUP_CPU_LIMIT_CPUS] = None
    periods: Annotated[int | None, GPU_CGROUP_CPU_PERIODS_TOTAL] = None
    throttled_periods: Annotated[int | None, GPU_CGROUP_CPU_THROTTLED_PERIODS_TOTAL] = None
    throttled_seconds: Annotated[float | None, GPU_CGROUP_CPU_THROTTLED_SECONDS_TOTAL] = None
    memory_events: Annotated[Mapping[str, int] | None, GPU_CGROUP_MEMORY_EVENTS_TOTAL] = None
    pressure: Annotated[Mapping[tuple[str, str], float] | None, GPU_CGROUP_PRESSURE_SECONDS_TOTAL] = None
    written_bytes: Annotated[int | None, GPU_CGROUP_WRITTEN_BYTES_TOTAL] = None


@dataclass(slots=True)
class _Known:
    """A cgroup of the last round: its limits, when they were read, and its counters."""

    cpus: float | None = None  # None if unlimited
    limits_memory: bool = False
    read_at: float = -math.inf
    counters: MonotoneCounters = field(default_factory=MonotoneCounters)


class CgroupsReader:
    def __init__(self) -> None:
        self._folders: CgroupFolders | None = None
        self._known: dict[str, _Known] = {}

    def read(
        self, machine: Machine, facts: Mapping[int, ProcessFacts], now: float, failures: list[str]
    ) -> tuple[CgroupReading, ...]:
        """Read the cgroups that contain these processes, plus parent cgroups that have a limit.

        `failures` receives each distinct read failure once; a failed file only omits its own values.
        """
        if self._folders is None:
            self._folders = CgroupFolders(machine.procfs, machine.sysfs)
        places = self._places(self._folders, facts)
        ask = _Asking()
        self._known = {path: self._known.get(path) or _Known() for path in places}
        readings = [_reading(path, of, ask, self._known[path], now) for path, of in places.items()]
        failures.extend(sorted(ask.failures))
        return tuple(each for each in readings if each is not None)

    def _places(self, folders: CgroupFolders, facts: Mapping[int, ProcessFacts]) -> dict[str, dict[str, Path]]:
        """Folders of each cgroup by path; inner keys: ``unified``, ``cpu``, ``memory``, ``job``."""
        found: dict[str, dict[str, Path]] = {}
        for pid, each in sorted(facts.items()):
            for name, place in each.cgroups._asdict().items():
                for path, folder, of_job in _levels(folders, place, pid):
                    if path in found or len(found) < _MOST_CGROUPS:
                        found.setdefault(path, {}).update({name: folder} | ({"job": folder} if of_job else {}))
        return found


def _reading(path: str, places: Mapping[str, Path], ask: _Asking, cgroup: _Known, now: float) -> CgroupReading | None:
    if now - cgroup.read_at >= _LIMITS_KEPT_SECONDS:
        cgroup.cpus, cgroup.limits_memory = _cpu_limit(places, ask), _has_memory_limit(places, ask)
        cgroup.read_at = now
    job = places.get("job")
    if cgroup.cpus is None and not cgroup.limits_memory and job is None:
        return None
    cpu = _cpu_counts(places, ask) if cgroup.cpus is not None else {}
    stalls = {of: ask(job, f"{of}.pressure", parse_pressure) or {} for of in RESOURCES}
    reading = CgroupReading(
        path,
        cgroup.cpus,
        periods=cpu.get("nr_periods"),
        throttled_periods=cpu.get("nr_throttled"),
        throttled_seconds=cpu["throttled"] / _NANOSECONDS if "throttled" in cpu else None,
        memory_events=(_memory_events(places, ask) if cgroup.limits_memory else {}) or None,
        pressure={(of, kind): seconds for of, kinds in stalls.items() for kind, seconds in kinds.items()} or None,
        written_bytes=ask(job, "io.stat", _written_bytes),
    )
    return cgroup.counters.continued(reading)


def _levels(folders: CgroupFolders, place: Place | None, pid: int) -> Iterator[tuple[str, Path, bool]]:
    """Yield path and folder of a process's cgroup and its parents, and whether it is the job's own cgroup (v2 only)."""
    if place is None or (root := folders.root(place.hierarchy)) is None or (path := folders.path(place, pid)) is None:
        return
    own = job_level(path)
    for level in levels(path):
        yield level, root / level.lstrip("/"), not place.hierarchy and level == own


class _Asking:
    """Reads cgroup files. A missing file is not an error: its controller is not enabled."""

    def __init__(self) -> None:
        self.failures: set[str] = set()

    def __call__(self, folder: Path | None, name: str, parse: Callable[[str], T]) -> T | None:
        """Parse a file; None without it or its folder, and if it cannot be read or parsed (recorded in `failures`)."""
        try:
            return None if folder is None else parse_file(folder / name, parse, _MOST_BYTES)
        except HostReadFailed as failed:
            self.failures.add(failed.reason)
            return None


def _cpu_limit(places: Mapping[str, Path], ask: _Asking) -> float | None:
    if limit := ask(places.get("unified"), "cpu.max", parse_cpu_max):
        return limit
    quota, period = (ask(places.get("cpu"), f"cpu.cfs_{each}_us", int) for each in ("quota", "period"))
    return quota / period if quota and period and quota > 0 and period > 0 else None


def parse_cpu_max(text: str) -> float:
    """Parse ``cpu.max`` (``400000 100000``: quota and period in µs) into CPUs; 0 for ``max`` (no limit)."""
    quota, period = text.split()
    return 0.0 if quota == _NO_LIMIT else parse_count(quota) / max(1, parse_count(period))


def _has_memory_limit(places: Mapping[str, Path], ask: _Asking) -> bool:
    limits = [ask(places.get("unified"), name, str.strip) for name in ("memory.max", "memory.high")]
    limit_bytes = ask(places.get("memory"), "memory.limit_in_bytes", int)
    return any(limit not in (None, _NO_LIMIT) for limit in limits) or (
        limit_bytes is not None and limit_bytes < _NO_MEMORY_LIMIT_BYTES
    )


def _cpu_counts(places: Mapping[str, Path], ask: _Asking) -> dict[str, int]:
    """Return ``nr_periods``, ``nr_throttled``, and ``throttled`` in nanoseconds."""
    for name, throttled, to_nanoseconds in (("unified", "throttled_usec", 1000), ("cpu", "throttled_time", 1)):
        counts = ask(places.get(name), "cpu.stat", parse_flat) or {}
        if "nr_periods" in counts:
            return counts | ({"throttled": counts[throttled] * to_nanoseconds} if throttled in counts else {})
    return {}


def _memory_events(places: Mapping[str, Path], ask: _Asking) -> Mapping[str, int]:
    events: Mapping[str, int | None] | None = ask(places.get("unified"), "memory.events", parse_flat)
    if not events:
        killed = ask(places.get("memory"), "memory.oom_control", parse_flat) or {}
        events = {"max": ask(places.get("memory"), "memory.failcnt", int), "oom_kill": killed.get("oom_kill")}
    return known({name: events.get(name) for name in MEMORY_EVENTS})


def parse_flat(text: str) -> dict[str, int]:
    """Parse a flat keyed file (lines like ``nr_throttled 12``)."""
    pairs = (line.split() for line in text.split("\n") if line)
    return {name: parse_count(count) for name, count in pairs}


def _written_bytes(text: str) -> int:
    """Sum over the disks of ``io.stat``, with lines like ``259:0 rbytes=4096 wbytes=8192 rios=1 wios=2 …``."""
    return sum(int(count) for count in _WRITTEN.findall(text))


def hides_cgroups(procfs: Path, sysfs: Path) -> str | None:
    """Return why cgroups of other processes cannot be found, or None if they can.

    ``missing``: no cgroup hierarchy is mounted. ``other_cgroup_namespace``: only this container's cgroups are visible.
    """
    folders = CgroupFolders(procfs, sysfs)
    if folders.root("") is None and folders.root("cpu,cpuacct") is None:
        return "missing"
    outside = "/.." in text_of(procfs / "1" / "cgroup")
    shown = text_of((folders.root("") or sysfs) / "cgroup.type")
    # The root cgroup has no cgroup.type file; a container's namespace root does.
    return "other_cgroup_namespace" if outside and shown else None
