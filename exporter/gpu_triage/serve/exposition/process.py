"""Metrics of the exporter's own process: memory, CPU time and open files, with the standard client library names."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.boot import read_boot
from gpu_triage.driver.kernel.files import read_names
from gpu_triage.driver.kernel.process_stat import read_process_stat
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.metric import Sample, host_counter, host_gauge

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


class OwnProcess:
    """Reads the kernel's data on this process, always from the real procfs, even if another host is monitored."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._booted_at = read_boot(procfs).began_at

    def samples(self) -> Iterator[Sample]:
        try:
            yield from self._of_stat()
            yield from self._of_files()
        except HostReadFailed:
            return

    def _of_stat(self) -> Iterator[Sample]:
        stat = read_process_stat(self._procfs / "self")
        if stat is None or self._booted_at is None:
            return
        hertz = os.sysconf("SC_CLK_TCK")
        yield _VIRTUAL_MEMORY.sample(stat.virtual_bytes)
        yield _RESIDENT_MEMORY.sample(stat.resident_pages * resource.getpagesize())
        yield _START_TIME.sample(stat.started_ticks / hertz + self._booted_at)
        yield _CPU_SECONDS.sample((stat.user_ticks + stat.system_ticks) / hertz)

    def _of_files(self) -> Iterator[Sample]:
        names = read_names(self._procfs / "self" / "fd")
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if names is None:
            return
        yield _OPEN_FILES.sample(len(names))
        if most != resource.RLIM_INFINITY:
            yield _MOST_FILES.sample(most)
