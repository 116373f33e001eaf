"""Memory and swap of the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_triage.hardware.host_inquiry import HostInquiry
from gpu_triage.hardware.kernel_files import parse_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_triage.hardware.rounds import HostRound

_BYTES_PER_KIBIBYTE = 1024
_MEMINFO = frozenset({"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"})
_VMSTAT = frozenset({"pswpin", "pswpout", "pgmajfault"})


@dataclass(frozen=True, slots=True)
class HostMemoryReading:
    """Memory of the host; None for what the kernel does not report.

    Attributes:
        total_bytes: memory the kernel has.
        available_bytes: what new work could have without swapping; kernel 3.14 and later.
        swap_total_bytes: swap space; 0 on a host without.
        swap_used_bytes: swap space in use.
        swap_in_bytes: read back from swap since boot.
        swap_out_bytes: written to swap since boot.
        major_faults: page faults that had to wait for storage, since boot.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    major_faults: int | None


def read_host_memory(round_: HostRound) -> HostMemoryReading:
    """Memory of the host. Source: ``/proc/meminfo`` (KiB) and ``/proc/vmstat`` (pages).

    Raises:
        HostReadFailed: neither can be read or understood.
    """
    inquiry = HostInquiry(round_.failures)
    procfs = round_.machine.procfs
    meminfo = inquiry.parse(procfs / "meminfo", parse_meminfo) or {}
    vmstat = inquiry.parse(procfs / "vmstat", parse_vmstat) or {}
    inquiry.finish()
    # Swap is counted in pages of this kernel: 4 KiB on x86, 64 KiB on many ARM servers.
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return HostMemoryReading(
        total_bytes=meminfo.get("MemTotal"),
        available_bytes=meminfo.get("MemAvailable"),
        swap_total_bytes=meminfo.get("SwapTotal"),
        swap_used_bytes=_difference(meminfo.get("SwapTotal"), meminfo.get("SwapFree")),
        swap_in_bytes=_product(vmstat.get("pswpin"), page_bytes),
        swap_out_bytes=_product(vmstat.get("pswpout"), page_bytes),
        major_faults=vmstat.get("pgmajfault"),
    )


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name, for the names read here, of lines like ``MemTotal:       263842796 kB``.

    Raises:
        ValueError: one of those lines looks different, or there is none.
    """
    facts: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            number, _, unit = value.strip().partition(" ")
            if unit != "kB":
                raise ValueError(f"{line[:80]!r} is not in kB")
            facts[name] = parse_count(number) * _BYTES_PER_KIBIBYTE
    return _not_empty(facts)


def parse_vmstat(text: str) -> Mapping[str, int]:
    """Counts by name, for the names read here, of lines like ``pswpin 1203``.

    Raises:
        ValueError: one of those lines looks different, or there is none.
    """
    facts: dict[str, int] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(" ")
        if name in _VMSTAT:
            facts[name] = parse_count(value.strip())
    return _not_empty(facts)


def _not_empty(facts: dict[str, int]) -> dict[str, int]:
    if not facts:
        raise ValueError("none of the lines that every kernel has")
    return facts


def _product(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor


def _difference(whole: int | None, part: int | None) -> int | None:
    # Both are sampled without a lock: a free figure above the total is no reading.
    return None if whole is None or part is None or part > whole else whole - part
