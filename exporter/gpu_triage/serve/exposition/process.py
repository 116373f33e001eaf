"""Metrics of the exporter's own process: memory, CPU time and open files, with the standard client library names."""

import os
import resource
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import psutil

from gpu_triage.read.metrics.metric import Sample, host_counter, host_gauge

_STAT: Final = "/proc/self/stat"
PROCESS_VIRTUAL_MEMORY_BYTES = host_gauge("Virtual memory size in bytes.", source=_STAT)
PROCESS_RESIDENT_MEMORY_BYTES = host_gauge("Resident memory size in bytes.", source=_STAT)
PROCESS_START_TIME_SECONDS = host_gauge("Start time of the process since unix epoch in seconds.", source=_STAT)
PROCESS_CPU_SECONDS_TOTAL = host_counter("Total user and system CPU time spent in seconds.", source=_STAT)
PROCESS_OPEN_FDS = host_gauge("Number of open file descriptors.", source="/proc/self/fd")
PROCESS_MAX_FDS = host_gauge("Maximum number of open file descriptors.", source="getrlimit(2)")


# Kept, because it keeps the start: that is by the system clock, and setting the clock must not look like a restart.
_process = lru_cache(maxsize=1)(psutil.Process)


def process_samples(pid: int | None = None) -> Iterator[Sample]:
    """What can be read of this process (or that of `pid`), from the real procfs even if another host is monitored."""
    try:
        process = _process(os.getpid() if pid is None else pid)
        with process.oneshot():
            memory, cpu = process.memory_info(), process.cpu_times()
            started_at, files = process.create_time(), process.num_fds()
    except (psutil.Error, OSError, ValueError, IndexError):
        return
    yield PROCESS_VIRTUAL_MEMORY_BYTES.sample(memory.vms)
    yield PROCESS_RESIDENT_MEMORY_BYTES.sample(memory.rss)
    yield PROCESS_START_TIME_SECONDS.sample(started_at)
    yield PROCESS_CPU_SECONDS_TOTAL.sample(cpu.user + cpu.system)
    yield PROCESS_OPEN_FDS.sample(files)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        yield PROCESS_MAX_FDS.sample(most)
