"""Identity and time of the current boot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import text_of

_BOOT_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n?")
_BTIME: Final = re.compile(r"^btime ([0-9]{1,11})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot: the kernel's random ID ("" if unknown), and when it began in Unix seconds (None if unknown)."""

    boot_id: str
    began_at: float | None


def read_boot(procfs: Path) -> Boot:
    """Read the current boot. Never raises: unreadable values are unknown.

    Source: ``/proc/sys/kernel/random/boot_id``, ``/proc/stat`` btime
    """
    boot_id, stat = text_of(procfs / "sys" / "kernel" / "random" / "boot_id"), text_of(procfs / "stat")
    btime = _BTIME.search(stat)
    return Boot(
        boot_id=boot_id.strip() if _BOOT_ID.fullmatch(boot_id) else "",
        began_at=float(btime[1]) if btime is not None else None,
    )
