"""Metrics of the exporter's own process: memory, CPU time and open files, with the standard client library names."""

import resource
from collections.abc import Callable, Iterator
from typing import Final

from psutil import Error, Process

from gpu_triage.read.metrics.metric import Sample, host_counter, host_gauge

__all__ = ["Process", "process_samples"]

_STAT: Final = "/proc/self/stat"
PROCESS_VIRTUAL_MEMORY_BYTES = host_gauge("Virtual memory size in bytes.", source=_STAT)
PROCESS_RESIDENT_MEMORY_BYTES = host_gauge("Resident memory size in bytes.", source=_STAT)
PROCESS_START_TIME_SECONDS = host_gauge("Start time of the process since unix epoch in seconds.", source=_STAT)
PROCESS_CPU_SECONDS_TOTAL = host_counter("Total user and system CPU time spent in seconds.", source=_STAT)
PROCESS_OPEN_FDS = host_gauge("Number of open file descriptors.", source="/proc/self/fd")
PROCESS_MAX_FDS = host_gauge("Maximum number of open file descriptors.", source="getrlimit(2)")


def process_samples(found: Callable[[], Process]) -> Iterator[Sample]:
    """What can be read of the process that is `found`, from the real procfs even if another host is monitored."""
    try:
        process = found()
        with process.oneshot():
            memory, cpu = process.memory_info(), process.cpu_times()
            started_at, files = process.create_time(), process.num_fds()
    except (Error, OSError, ValueError, IndexError):
        return
    yield PROCESS_VIRTUAL_MEMORY_BYTES.sample(memory.vms)
    yield PROCESS_RESIDENT_MEMORY_BYTES.sample(memory.rss)
    yield PROCESS_START_TIME_SECONDS.sample(started_at)
    yield PROCESS_CPU_SECONDS_TOTAL.sample(cpu.user + cpu.system)
    yield PROCESS_OPEN_FDS.sample(files)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        yield PROCESS_MAX_FDS.sample(most)
