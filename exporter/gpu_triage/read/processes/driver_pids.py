"""Which PID namespace the driver's PIDs refer to, depending on driver version and the exporter's PID namespace.

According to the kernel driver's source (open-gpu-kernel-modules, by tag), a caller outside the host's PID namespace
gets:

- process lists: host PIDs; from 535.113.01, PIDs in the caller's namespace, without processes it cannot see
  (``gpuGetProcWithObject``);
- the memory of a listed process: looked up by host PID until 565.57.01 (``gpuFindClientInfoWithPidIterator``);
- utilization samples: host PIDs before 570.86.15 (``kern_perf_ctrl.c``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.nvml.driver_version import version_numbers
from gpu_triage.read.processes.pids import names_are_host_pids, sees_every_process

_LISTS_OF_THE_CALLER: Final = (535, 113)
_MEMORY_OF_THE_CALLER: Final = (565, 57)
_SAMPLES_OF_THE_CALLER: Final = (570, 86)


class DriverPids(NamedTuple):
    """What the PIDs in the driver's process lists are valid for. False means the PID may refer to another process.

    Attributes:
        procfs: whether this procfs uses the same PIDs.
        memory: whether the memory reported with a PID belongs to that process.
        utilization: whether utilization samples use the same PIDs.
    """

    procfs: bool
    memory: bool
    utilization: bool


def driver_pids(procfs: Path, driver_version: str | None) -> DriverPids:
    """Determine what the PIDs this driver reports to this process are valid for.

    Args:
        procfs: root of the procfs in which processes are looked up.
        driver_version: as reported by the driver; None if unknown.
    """
    if sees_every_process(procfs):
        return DriverPids(procfs=True, memory=True, utilization=True)
    version = version_numbers(driver_version)
    if not version:
        return DriverPids(procfs=False, memory=False, utilization=False)
    own_procfs = names_are_host_pids(procfs) is False
    if version < _LISTS_OF_THE_CALLER:
        return DriverPids(procfs=not own_procfs, memory=True, utilization=True)
    return DriverPids(
        procfs=own_procfs,
        memory=version >= _MEMORY_OF_THE_CALLER,
        utilization=version >= _SAMPLES_OF_THE_CALLER,
    )
