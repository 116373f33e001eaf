"""The exporter's own process: memory, CPU time and open files, by the names that all Prometheus clients use."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import read_names, read_text
from gpu_triage.subjects.metric import Sample, host_counter, host_gauge

_STAT: Final = "/proc/self/stat"
_VIRTUAL_MEMORY = host_gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", source=_STAT)
_RESIDENT_MEMORY = host_gauge("process_resident_memory_bytes", "Resident memory size in bytes.", source=_STAT)
_START_TIME = host_gauge(
    "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", source=_STAT
)
_CPU_SECONDS = host_counter(
    "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", source=_STAT
)
_OPEN_FILES = host_gauge("process_open_fds", "Number of open file descriptors.", source="/proc/self/fd")
_MOST_FILES = host_gauge("process_max_fds", "Maximum number of open file descriptors.", source="getrlimit(2)")

_USER, _SYSTEM, _STARTED, _VIRTUAL, _RESIDENT = 11, 12, 19, 20, 21
"""Places behind the name in /proc/self/stat, whose fields proc(5) counts from 1."""


class OwnProcess:
    """Reads what the kernel says of this process; its own procfs, whatever host is looked at."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._booted_at = _booted_at(procfs)

    def samples(self) -> Iterator[Sample]:
        """The process now; what cannot be read is left out."""
        try:
            yield from self._of_stat()
            yield from self._of_files()
        except (HostReadFailed, ValueError, IndexError):
            return

    def _of_stat(self) -> Iterator[Sample]:
        text = read_text(self._procfs / "self" / "stat")
        if text is None or self._booted_at is None:
            return
        fields = text.rpartition(")")[2].split()
        hertz = os.sysconf("SC_CLK_TCK")
        yield _VIRTUAL_MEMORY.sample(int(fields[_VIRTUAL]))
        yield _RESIDENT_MEMORY.sample(int(fields[_RESIDENT]) * resource.getpagesize())
        yield _START_TIME.sample(int(fields[_STARTED]) / hertz + self._booted_at)
        yield _CPU_SECONDS.sample(int(fields[_USER]) / hertz + int(fields[_SYSTEM]) / hertz)

    def _of_files(self) -> Iterator[Sample]:
        names = read_names(self._procfs / "self" / "fd")
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if names is None:
            return
        yield _OPEN_FILES.sample(len(names))
        if most != resource.RLIM_INFINITY:
            yield _MOST_FILES.sample(most)


def _booted_at(procfs: Path) -> float | None:
    """Unix second of the boot; None where nobody says."""
    try:
        lines = (read_text(procfs / "stat") or "").split("\n")
        return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)
    except (HostReadFailed, ValueError, IndexError):
        return None
