"""NVIDIA kernel modules that are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_gauge
from gpu_triage.read.metrics.rounds import HostRound

MODULE_NAMES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
"""Names of the modules in /proc/modules."""

_STATE_COLUMN = 4

GPU_KERNEL_MODULE_LOADED = host_gauge(
    "gpu_kernel_module_loaded",
    "1 when the kernel module is loaded, 0 when not; absent when /proc/modules cannot be read.",
    labels={"module": MODULE_NAMES},
    source="/proc/modules",
)


@dataclass(frozen=True, slots=True)
class HostModulesReading:
    """Whether each of MODULE_NAMES is loaded and live; None on a kernel without loadable modules."""

    loaded: Annotated[Mapping[str, bool] | None, GPU_KERNEL_MODULE_LOADED]


def read_host_modules(round_: HostRound) -> HostModulesReading:
    """Read which of NVIDIA's modules are loaded. Source: ``/proc/modules``.

    Raises:
        HostReadFailed: the file exists but cannot be read or parsed, or no procfs is mounted.
    """
    procfs = round_.machine.procfs
    inquiry = HostInquiry(round_.failures, procfs)
    live = inquiry.lines(procfs / "modules", parse_module)
    inquiry.finish()
    return HostModulesReading(None if live is None else {module: module in live for module in MODULE_NAMES})


def parse_module(line: str) -> str | None:
    """Parse the module name from a line of /proc/modules; None while it is being loaded or unloaded.

    Format: ``nvidia 56823808 4 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)``.

    Raises:
        ValueError: the line has no state column.
    """
    columns = line.split()
    if len(columns) <= _STATE_COLUMN:
        raise ValueError(f"{line[:80]!r} is no line of /proc/modules")
    return columns[0] if columns[_STATE_COLUMN] == "Live" else None


MODULES = HostCollector("modules", "kernel modules of the driver", Tier.MEDIUM, lambda _config: read_host_modules)
