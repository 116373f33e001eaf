"""Metrics of the exporter's own process: memory, CPU time and open files, with the standard client library names."""

import resource
from collections.abc import Iterator
from typing import Final

from psutil import Error, Process

from gpu_triage.read.metrics.metric import Sample, host_counter, host_gauge

__all__ = ["Process", "process_samples"]

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


def process_samples(process: Process) -> Iterator[Sample]:
    """What can be read of a process, from the real procfs even if another host is monitored."""
    try:
        with process.oneshot():
            memory, cpu = process.memory_info(), process.cpu_times()
            started_at, files = process.create_time(), process.num_fds()
    except (Error, OSError, ValueError, IndexError):
        return
    yield _VIRTUAL_MEMORY.sample(memory.vms)
    yield _RESIDENT_MEMORY.sample(memory.rss)
    yield _START_TIME.sample(started_at)
    yield _CPU_SECONDS.sample(cpu.user + cpu.system)
    yield _OPEN_FILES.sample(files)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        yield _MOST_FILES.sample(most)
