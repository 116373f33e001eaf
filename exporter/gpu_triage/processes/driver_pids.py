"""Whose PIDs the driver reports, by its version and by the PID namespace of the exporter.

The kernel driver's source (open-gpu-kernel-modules, by tag) has, for a caller outside the host's PID namespace:

- process lists: the host's PIDs, from 535.113.01 on the caller's, without processes that it cannot see
  (``gpuGetProcWithObject``);
- the memory of a listed process: looked up by the host's PID until 565.57.01 (``gpuFindClientInfoWithPidIterator``);
- utilization samples: the host's PIDs before 570.86.15 (``kern_perf_ctrl.c``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.nvml.driver_version import version_numbers
from gpu_triage.processes.pids import names_are_host_pids, sees_every_process

_LISTS_OF_THE_CALLER: Final = (535, 113)
_MEMORY_OF_THE_CALLER: Final = (565, 57)
_SAMPLES_OF_THE_CALLER: Final = (570, 86)


class DriverPids(NamedTuple):
    """What the PIDs in the driver's process lists can be used for. A no means: another process has that PID.

    Attributes:
        procfs: whether this procfs has the listed processes under their PIDs.
        memory: whether the memory that is listed with a PID is that process's.
        utilization: whether utilization samples count by the same PIDs.
    """

    procfs: bool
    memory: bool
    utilization: bool


def driver_pids(procfs: Path, driver_version: str | None) -> DriverPids:
    """What may be done with the PIDs that this driver lists to this process.

    Args:
        procfs: root of the procfs in which processes are looked up.
        driver_version: as the driver gives it; None where it does not.
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
