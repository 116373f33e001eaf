"""What procfs has of the boot and of processes, and its pressure stall information.

``/proc/PID/stat`` is one line per process or thread, ``4242 (python3) S 1 4242 4242 0 …``. The name may contain
parentheses and spaces; proc(5) numbers the fields after it from 3. Pressure stall information, which the kernel has of
the host and of each cgroup: https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.files import names_in, parse_count, text_of

_MAKERS_OF_VIRTUAL_MACHINES: Final = (
    *("QEMU", "KVM", "Red Hat", "Xen", "VMware", "OpenStack", "Nutanix", "Parallels", "innotek", "Bochs"),
    *("Amazon EC2", "Google", "Microsoft Corporation Virtual", "Alibaba Cloud", "DigitalOcean"),
)
"""How the firmware's names of vendor and product begin, with a blank between them; EC2's of bare metal end in metal."""

UNINTERRUPTIBLE: Final = "D"
RUNNING: Final = "R"
STOPPED: Final = ("T", "t")
"""By a signal, or by a debugger."""

_COUNTS: Final = (1, 2, 11, 12, 17, 19, 21)
_TERMINAL: Final = slice(4, 6)  # its terminal (0: none), and the process group in the foreground of that


def is_virtual_machine(procfs: Path, sysfs: Path) -> bool | None:
    """Whether this host is a virtual machine; None if neither its CPUs nor its firmware show it.

    Source: on x86 the flag ``hypervisor`` of ``/proc/cpuinfo`` (CPUID leaf 1, ECX bit 31), else what
    ``/sys/class/dmi/id`` has of vendor and product. Reading cpuinfo may interrupt every CPU: ask once.
    """
    flags = re.search(r"^flags\s*:(.*)$", text_of(procfs / "cpuinfo"), re.MULTILINE)
    if flags is not None:
        return "hypervisor" in flags[1].split()
    made_by = " ".join(text_of(sysfs / "class/dmi/id" / name).strip() for name in ("sys_vendor", "product_name"))
    return made_by.startswith(_MAKERS_OF_VIRTUAL_MACHINES) and "metal" not in made_by if made_by.strip() else None


class ProcessStat(NamedTuple):
    """The fields used of a process's or thread's stat file. Times are in ticks of 1/sysconf(SC_CLK_TCK) seconds.

    The name is the comm: at most 15 bytes of anything, and never the command line, which may hold secrets. Ticks of a
    process are those of all its threads; `started_ticks` count from boot. `foreground` is whether it is in the
    foreground process group of a terminal.
    """

    name: str
    state: str
    foreground: bool
    parent: int
    group: int
    user_ticks: int
    system_ticks: int
    threads: int
    started_ticks: int
    resident_pages: int

    @property
    def ticks(self) -> int:
        return self.user_ticks + self.system_ticks

    def is_same(self, other: ProcessStat | None) -> bool:
        """Whether this is the same process, not a later one with its PID, and runs the same program."""
        return other is not None and (self.name, self.started_ticks) == (other.name, other.started_ticks)


def thread_numbers(folder: str) -> list[int]:
    return [int(name) for name in names_in(f"{folder}/task") if name.isdecimal() and name.isascii()]


def read_process_stats(procfs: Path, pids: Iterable[int]) -> dict[int, ProcessStat | None]:
    return {pid: read_process_stat(f"{procfs}/{pid}") for pid in pids}


def read_process_stat(folder: Path | str) -> ProcessStat | None:
    """Read the stat file in ``/proc/PID`` or ``/proc/PID/task/TID``; None if missing or invalid."""
    before, bracket, after = text_of(f"{folder}/stat").rpartition(")")
    if not bracket:
        return None
    fields = after.split()
    try:
        counts = [parse_count(fields[place]) for place in _COUNTS]
    except (ValueError, IndexError):
        return None
    terminal, group = fields[_TERMINAL]
    foreground = terminal != "0" and group == str(counts[1])
    return ProcessStat(before.partition("(")[2].strip(), fields[0], foreground, *counts)


PAGE_CACHE: Final = "local disks or the page cache"
"""For functions shared by all file systems, from which the specific one cannot be identified."""

_STORAGE: Final = (
    # Lustre's client: I/O (cl_, vvp_, osc_), locks (ldlm_) and requests (ptlrpc_).
    ("Lustre", re.compile(r"(?:ptlrpc|ldlm|cl_sync|cl_io|cl_lock|vvp|osc|lov|mdc|ll)_\w+")),
    ("GPFS", re.compile(r"cxi[A-Z]\w+|gpfs\w*|mmfs\w*")),
    ("WEKA", re.compile(r"weka\w+")),
    ("BeeGFS", re.compile(r"(?:Fhgfs|BeeGFS|beegfs|fhgfs)\w*")),
    ("CephFS", re.compile(r"(?:ceph|rbd)_\w+")),
    ("FUSE", re.compile(r"request_wait_answer|fuse_\w+")),
    ("NFS", re.compile(r"(?:nfs|nfs3|nfs4|pnfs|rpc|rpcauth|xprt)_\w+|__rpc_\w+")),
    ("SMB", re.compile(r"(?:cifs|smb2|SMB2)_\w+|wait_for_response")),
    ("GPUDirect Storage", re.compile(r"nvfs_\w+")),
    (
        PAGE_CACHE,
        re.compile(
            r"(?:__)?(?:folio_wait|folio_lock|wait_on_page|lock_page|filemap)\w*|(?:blk|blkdev|submit_bio|bio|iomap|dio|"
            r"jbd2|ext4|xfs|btrfs|zfs|md|raid5|dm|nvme|io_schedule|bit_wait_io|wait_on_buffer|do_blockdev|__blkdev|"
            r"wbt|rq_qos|balance_dirty_pages|cv_wait_common)\w*"
        ),
    ),
)


def storage_behind(wait_channel: str) -> str | None:
    """Kind of storage a thread waits for in this kernel function; None if it is not storage or unknown."""
    return next((name for name, functions in _STORAGE if functions.fullmatch(wait_channel)), None)


_BOOT_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n?")
_BTIME: Final = re.compile(r"^btime ([0-9]{1,11})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot: the kernel's random ID ("" if unknown), and when it began in Unix seconds (None if unknown)."""

    boot_id: str
    began_at: float | None


def read_boot(procfs: Path) -> Boot:
    """Read the current boot. Never raises: unreadable values are unknown."""
    boot_id, stat = text_of(procfs / "sys" / "kernel" / "random" / "boot_id"), text_of(procfs / "stat")
    btime = _BTIME.search(stat)
    return Boot(
        boot_id=boot_id.strip() if _BOOT_ID.fullmatch(boot_id) else "",
        began_at=float(btime[1]) if btime is not None else None,
    )


RESOURCES: Final = ("cpu", "io", "memory")  # what tasks may wait for; the names of the files
KINDS: Final = ("some", "full")  # whether at least one task waited, or every task with work to do
_MICROSECONDS_PER_SECOND: Final = 1_000_000


def parse_pressure(text: str) -> Mapping[str, float]:
    """Parse seconds by kind from lines like ``some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564`` (µs)."""
    seconds: dict[str, float] = {}
    for line in text.strip().split("\n"):
        kind, *pairs = line.split() or [""]
        facts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if kind not in KINDS or "total" not in facts:
            raise ValueError(f"{line[:80]!r} is not a line of a pressure file")
        seconds[kind] = parse_count(facts["total"]) / _MICROSECONDS_PER_SECOND
    return seconds
