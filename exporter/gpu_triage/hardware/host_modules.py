"""Which of NVIDIA's kernel modules are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_triage.hardware.host_inquiry import HostInquiry

if TYPE_CHECKING:
    from gpu_triage.hardware.rounds import HostRound

MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
"""The modules looked for, by their names in /proc/modules."""

_STATE_COLUMN = 4


@dataclass(frozen=True, slots=True)
class HostModulesReading:
    """Kernel modules of the host.

    Attributes:
        loaded: those of MODULES that are loaded and live; None on a kernel without loadable modules.
    """

    loaded: frozenset[str] | None


def read_host_modules(round_: HostRound) -> HostModulesReading:
    """NVIDIA's loaded modules. Source: ``/proc/modules``.

    Raises:
        HostReadFailed: the file is there and cannot be read or understood.
    """
    inquiry = HostInquiry(round_.failures)
    live = inquiry.lines(round_.machine.procfs / "modules", parse_module)
    inquiry.finish()
    return HostModulesReading(loaded=None if live is None else frozenset(live) & frozenset(MODULES))


def parse_module(line: str) -> str | None:
    """Name of the module a line of /proc/modules is about, None while it is being loaded or unloaded.

    The line: ``nvidia 56823808 4 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)``.

    Raises:
        ValueError: the line has no state column.
    """
    columns = line.split()
    if len(columns) <= _STATE_COLUMN:
        raise ValueError(f"{line[:80]!r} is no line of /proc/modules")
    return columns[0] if columns[_STATE_COLUMN] == "Live" else None
