"""Check that procfs and sysfs are mounted: an empty mount point looks like a kernel without any features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_triage.driver.kernel.files import is_present
from gpu_triage.errors import HostReadFailed

if TYPE_CHECKING:
    from pathlib import Path

PROCFS, SYSFS = "procfs", "sysfs"
SHOWS: Final = {
    PROCFS: "CPUs, memory, disks, network and processes of the host",
    SYSFS: "the PCI bus, links, NUMA nodes and network adapters",
}
"""What each file system provides, by the name in its option (``--path.procfs``)."""

MISSING: Final = "missing"
"""Failure reason if a file that every Linux host has does not exist."""

_LANDMARKS: Final = ("stat", "devices", "self", "class", "bus")
"""Every procfs or sysfs has some of these, whatever the kernel config; a recorded one has at least one."""


def is_mounted(root: Path) -> bool:
    """Whether the path looks like a procfs or sysfs."""
    return any(is_present(root / name) for name in _LANDMARKS)


def refuse_unmounted(root: Path) -> None:
    """Raise if no file system is mounted there.

    Raises:
        HostReadFailed: ``missing``.
    """
    if not is_mounted(root):
        detail = "nothing is mounted there: mount the host's, or correct --path.procfs or --path.sysfs"
        raise HostReadFailed(MISSING, root, detail)


def missing_file(path: Path) -> HostReadFailed:
    """Failure for a missing file that every Linux host has."""
    return HostReadFailed(MISSING, path, "every Linux host has this file: is the host's procfs mounted there?")
