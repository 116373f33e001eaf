"""Whether procfs and sysfs are where they should be: an empty mount point looks like a kernel without any feature."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import is_present

if TYPE_CHECKING:
    from pathlib import Path

PROCFS, SYSFS = "procfs", "sysfs"
SHOWS: Final = MappingProxyType(
    {
        PROCFS: "CPUs, memory, disks, network and processes of the host",
        SYSFS: "the PCI bus, links, NUMA nodes and network adapters",
    }
)
"""What each of them shows, by the name in its option (``--path.procfs``)."""

MISSING: Final = "missing"
"""The error of a file that every Linux host has, where there is none."""

_LANDMARKS: Final = ("stat", "devices", "self", "class", "bus")
"""Every procfs and every sysfs has some of these, whatever the kernel's features; a recorded one has at least one."""


def is_mounted(root: Path) -> bool:
    """Whether this looks like a procfs or a sysfs."""
    return any(is_present(root / name) for name in _LANDMARKS)


def refuse_unmounted(root: Path) -> None:
    """Raise where nothing is mounted.

    Raises:
        HostReadFailed: ``missing``.
    """
    if not is_mounted(root):
        detail = "nothing is mounted there: mount the host's, or correct --path.procfs or --path.sysfs"
        raise HostReadFailed(MISSING, root, detail)


def missing_file(path: Path) -> HostReadFailed:
    """The failure of a file that every Linux host has, and that is not there."""
    return HostReadFailed(MISSING, path, "every Linux host has this file: is the host's procfs mounted there?")
