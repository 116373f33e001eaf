r"""Parse kernel messages about problems of the host around the GPUs.

The wording is that of Linux 5.4 to 6.12, and of Lustre's client, without timestamp, level or facility; for messages of
NVIDIA's driver and of other devices see driver_messages.py. A message is recognized from its
first word on, so a process name, which is user-controlled, is never mistaken for a kernel message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

_MCI_STATUS_UC: Final = 1 << 61
"""Bit of a bank's MCi_STATUS register: the error could not be corrected."""

_LONGEST_SUBJECT: Final = 64


class ProblemKind(Enum):
    """Kind of problem that a kernel message reports; the value is the label `kind`."""

    OOM_KILL = "oom_kill"
    HUNG_TASK = "hung_task"
    SOFT_LOCKUP = "soft_lockup"
    HARD_LOCKUP = "hard_lockup"
    RCU_STALL = "rcu_stall"
    FILESYSTEM_READ_ONLY = "filesystem_read_only"
    NVME_TIMEOUT = "nvme_timeout"
    NVME_RESET = "nvme_reset"
    NVME_LOST = "nvme_lost"
    NFS_NOT_RESPONDING = "nfs_not_responding"
    LUSTRE_LOST = "lustre_lost"
    HARDWARE_CORRECTED = "hardware_corrected"
    HARDWARE_UNCORRECTED = "hardware_uncorrected"
    MEMORY_CORRECTED = "memory_corrected"
    MEMORY_UNCORRECTED = "memory_uncorrected"
    PCIE_CORRECTED = "pcie_corrected"
    PCIE_UNCORRECTED = "pcie_uncorrected"
    PCIE_DPC = "pcie_dpc"
    CPU_THERMAL = "cpu_thermal"
    ADAPTER_POWER = "adapter_power"
    ADAPTER_MODULE = "adapter_module"
    ADAPTER_HOT = "adapter_hot"
    ADAPTER_LINK_DOWN = "adapter_link_down"
    PEERMEM_ERROR = "peermem_error"
    DRIVER_MISMATCH = "driver_version_mismatch"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    GPU_INIT_FAILED = "gpu_init_failed"
    GPU_LOST_AT_PROBE = "gpu_lost_at_probe"
    GPU_PROBE_FAILED = "gpu_probe_failed"
    GPU_NOT_PROBED = "gpu_not_probed"
    GPU_BOUND_ELSEWHERE = "gpu_bound_elsewhere"
    GPU_UNSUPPORTED = "gpu_unsupported"
    GPU_BAR = "gpu_bar"
    GSP_INIT_FAILED = "gsp_init_failed"
    GSP_TIMEOUT = "gsp_timeout"
    INFOROM_CORRUPTED = "inforom_corrupted"
    SWITCH_MISMATCH = "nvswitch_version_mismatch"


class HostMessage(NamedTuple):
    """One parsed kernel message.

    The subject is what it concerns: a process as ``python3 (4242)``, a device, a server, a CPU, an address; "" if the
    message does not name it. The PID is in the host's PID namespace; None without one.
    """

    trouble: ProblemKind
    subject: str = ""
    pid: int | None = None


class ProblemResolved(NamedTuple):
    """A parsed message that a problem is resolved."""

    trouble: ProblemKind
    subject: str


class KillOrder(NamedTuple):
    """The OOM killer's announcement of the process it is going to kill, by the host's PID, and its memory cgroup."""

    pid: int
    cgroup: str


MARKERS: Final = (
    "ut of memory: Kill",
    "blocked for more than",
    "blocked in I/O wait for more than",
    "soft lockup",
    "hard LOCKUP",
    "detected stall",
    "self-detected stall",
    "detected expedited stall",
    "Remounting filesystem read-only",
    "hutting down filesystem",
    "Filesystem has been shut down",
    "forced readonly",
    "nvme nvme",
    "not responding, ",
    "was lost; in progress operations",
    "client was evicted",
    "[Hardware Error]: ",
    "EDAC MC",
    "Memory failure: 0x",
    "DPC: containment event",
    "above threshold, cpu clock",
)
"""Substrings; a line without any of them is not one of these messages."""

OVER_MARKERS: Final = ("nfs: server ", "Connection restored to ", "mounted", "ounting ", ": pci function ")
"""The same for messages that a problem is resolved."""

BEGINNINGS: Final = (
    r"(?:Memory cgroup o|O)ut of memory: Kill|INFO: (?:task |rcu_)|(?:NMI )?watchdog: |rcu: INFO: |EXT\d-fs \(|XFS \("
    r"|BTRFS \w{4,8} \(device |nvme nvme\d|(?:nfs|NFS): server |Lustre(?:Error)?: |mce: (?:\[|CPU)"
    r"|(?:\{\d{1,9}\})?\[Hardware Error\]: |EDAC MC\d|Memory failure: 0x|CPU\d{1,5}: (?:Core|Package) temperature "
)
"""Regular expression for the start of each message, to locate it after the timestamp in a log line."""

_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"

# A comm is up to 15 arbitrary bytes chosen by the process; the parentheses and numbers after it are the kernel's.
_OOM: Final = re.compile(r"(?:Memory cgroup o|O)ut of memory: Kill(?:ed)? process (\d{1,9}) \((.{0,40}?)\)")
_OOM_ORDER: Final = re.compile(r"oom-kill:constraint=.*?,task_memcg=(/.{0,1000}?),task=.{0,40}?,pid=(\d{1,9}),uid=\d+$")
_HUNG: Final = re.compile(r"INFO: task (.{0,40}):(\d{1,9}) (?:is )?blocked (?:in I/O wait)? *for more than \d+ seconds")
_SOFT: Final = re.compile(r"(?:NMI )?watchdog: BUG: soft lockup - CPU#(\d{1,5}) stuck for \d+s!")
_HARD: Final = re.compile(
    r"(?:NMI )?watchdog: (?:CPU\d{1,5}: )?(?:BUG: )?Watchdog detected hard LOCKUP on cpu (\d{1,5})"
)
_STALL: Final = re.compile(r"(?:rcu: )?INFO: (rcu_\w{1,20}) (?:self-)?detected (?:expedited )?stalls? on CPU")
_EXT4: Final = re.compile(r"EXT\d-fs \(([^)\s]{1,40})\): Remounting filesystem read-only")
_XFS: Final = re.compile(
    r"XFS \(([^)\s]{1,40})\): (?!User initiated)(?:.{0,300}[Ss]hutting down filesystem|Filesystem has been shut down)"
)
_BTRFS: Final = re.compile(
    r"BTRFS (?:info|warning|error|critical) \(device ([^):\s]{1,40})[^)]{0,20}\): .{0,200}?forced readonly"
)
_NVME_TIMEOUT: Final = re.compile(r"nvme (nvme\d{1,4}): I/O (?:tag )?\d.{0,80}? QID \d{1,5} timeout(?:, (\w{1,12}))?")
_NVME_RESET: Final = re.compile(
    r"nvme (nvme\d{1,4}): (?:controller is down; will reset|frozen state error detected, reset controller)"
)
_NVME_LOST: Final = re.compile(
    r"nvme (nvme\d{1,4}): (?:Removing after probe failure|Disabling device after reset failure)"
)
_NFS: Final = re.compile(r"(?i:nfs): server (\S{1,255}) not responding, (?:still trying|timed out)")
_LUSTRE: Final = re.compile(
    r"Lustre(?:Error)?: (?:\d{1,4}-\d{1,4}: )?\S{1,100}: "
    r"(?:Connection to (\S{1,100}) \(at .{1,100}?\) was lost; in progress|This client was evicted by ([^\s;]{1,100});)"
)
_MCE: Final = re.compile(
    r"mce: \[Hardware Error\]: CPU (\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,16} Bank \d{1,3}: ([0-9a-f]{16})"
)
_AMD: Final = re.compile(r"(?:mce: )?\[Hardware Error\]: (Corrected|Deferred|Uncorrected|System Fatal)(?: error)?[,.]")
_FIRMWARE: Final = re.compile(r"\{\d{1,9}\}\[Hardware Error\]: event severity: (corrected|recoverable|fatal)$")
_EDAC: Final = re.compile(r"EDAC (MC\d{1,3}): (\d{1,9}) (CE|UE) (?:.{0,200}? on (?!unknown|any)([^\s(]{1,64}))?")
_POISON: Final = re.compile(r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for ")
_DPC: Final = re.compile(rf"(?:pcieport|pci) ({_ADDRESS}): DPC: containment event, status:")
_THERMAL: Final = re.compile(
    r"(?:mce: )?CPU\d{1,5}: (Core|Package) temperature (?:is )?above threshold, cpu clock (?:is )?throttled"
)
_OVER: Final = (
    (ProblemKind.FILESYSTEM_READ_ONLY, re.compile(r"EXT\d-fs \(([^)\s]{1,40})\): (?:re-)?mounted\b")),
    (ProblemKind.FILESYSTEM_READ_ONLY, re.compile(r"XFS \(([^)\s]{1,40})\): (?:Mounting V\d|Unmounting) Filesystem")),
    (ProblemKind.FILESYSTEM_READ_ONLY, re.compile(r"BTRFS info \(device ([^):\s]{1,40})\): first mount of filesystem")),
    (ProblemKind.NFS_NOT_RESPONDING, re.compile(r"(?i:nfs): server (\S{1,255}) OK$")),
    (
        ProblemKind.LUSTRE_LOST,
        re.compile(r"Lustre: (\S{1,100}?)(?:-(?:osc|mdc|lwp|mgc)-\S{1,60})?: Connection restored to "),
    ),
    (ProblemKind.NVME_LOST, re.compile(r"nvme (nvme\d{1,4}): pci function ")),
)
"""Messages that end lasting problems: an administrator's action, or a server that is back."""

_AMD_TROUBLE: Final = {"Corrected": ProblemKind.HARDWARE_CORRECTED, "Deferred": ProblemKind.HARDWARE_CORRECTED}


def parse_host_message(text: str) -> HostMessage | None:
    """Parse a kernel message about the host; None for any other message.

    >>> parse_host_message("EXT4-fs (nvme0n1p2): Remounting filesystem read-only")
    HostMessage(trouble=<ProblemKind.FILESYSTEM_READ_ONLY: 'filesystem_read_only'>, subject='nvme0n1p2', pid=None)
    """
    if not any(marker in text for marker in MARKERS):
        return None
    for pattern, understand in _PATTERNS:
        match = pattern.match(text)
        if match is not None:
            said = understand(match)
            return said._replace(subject=cut(said.subject))
    return None


def parse_trouble_over(text: str) -> ProblemResolved | None:
    """Parse a message that a problem is resolved; None for any other message.

    >>> parse_trouble_over("nfs: server nas01 OK")
    ProblemResolved(trouble=<ProblemKind.NFS_NOT_RESPONDING: 'nfs_not_responding'>, subject='nas01')
    """
    for trouble, pattern in _OVER:
        match = pattern.match(text)
        if match is not None:
            return ProblemResolved(trouble, cut(match[1]))
    return None


def corrected_errors(text: str) -> int:
    """Number of corrected memory errors in an EDAC message, hundreds in a flood; 0 for any other message."""
    match = _EDAC.match(text)
    return int(match[2]) if match is not None and match[3] == "CE" else 0


def parse_kill_order(text: str) -> KillOrder | None:
    """Parse the OOM killer's choice of process, in Linux 5.0 or later; None for any other message."""
    match = _OOM_ORDER.match(text) if text.startswith("oom-kill:") else None
    return None if match is None else KillOrder(int(match[2]), match[1])


def cut(text: str) -> str:
    """A subject as it is kept: of a limited length."""
    return text[:_LONGEST_SUBJECT]


def _of(trouble: ProblemKind) -> Callable[[re.Match[str]], HostMessage]:
    return lambda match: HostMessage(trouble, match[1])


def _of_cpu(trouble: ProblemKind) -> Callable[[re.Match[str]], HostMessage]:
    return lambda match: HostMessage(trouble, f"CPU {match[1]}")


def _of_process(trouble: ProblemKind, name: int, pid: int) -> Callable[[re.Match[str]], HostMessage]:
    return lambda match: HostMessage(trouble, f"{match[name] or 'process'} ({match[pid]})", int(match[pid]))


def _nvme_timeout(match: re.Match[str]) -> HostMessage:
    ends_in_reset = match[2] in ("reset", "disable")
    return HostMessage(ProblemKind.NVME_RESET if ends_in_reset else ProblemKind.NVME_TIMEOUT, match[1])


def _machine_check(match: re.Match[str]) -> HostMessage:
    is_uncorrected = int(match[2], 16) & _MCI_STATUS_UC
    trouble = ProblemKind.HARDWARE_UNCORRECTED if is_uncorrected else ProblemKind.HARDWARE_CORRECTED
    return HostMessage(trouble, f"CPU {match[1]}")


def _firmware(match: re.Match[str]) -> HostMessage:
    return HostMessage(ProblemKind.HARDWARE_CORRECTED if match[1] == "corrected" else ProblemKind.HARDWARE_UNCORRECTED)


def _edac(match: re.Match[str]) -> HostMessage:
    trouble = ProblemKind.MEMORY_UNCORRECTED if match[3] == "UE" else ProblemKind.MEMORY_CORRECTED
    return HostMessage(trouble, match[4] or match[1])


def _patterns() -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str]], HostMessage]]]:
    yield _OOM, _of_process(ProblemKind.OOM_KILL, name=2, pid=1)
    yield _HUNG, _of_process(ProblemKind.HUNG_TASK, name=1, pid=2)
    yield _SOFT, _of_cpu(ProblemKind.SOFT_LOCKUP)
    yield _HARD, _of_cpu(ProblemKind.HARD_LOCKUP)
    yield _STALL, _of(ProblemKind.RCU_STALL)
    yield from ((pattern, _of(ProblemKind.FILESYSTEM_READ_ONLY)) for pattern in (_EXT4, _XFS, _BTRFS))
    yield _NVME_TIMEOUT, _nvme_timeout
    yield _NVME_RESET, _of(ProblemKind.NVME_RESET)
    yield _NVME_LOST, _of(ProblemKind.NVME_LOST)
    yield _NFS, _of(ProblemKind.NFS_NOT_RESPONDING)
    yield _LUSTRE, lambda match: HostMessage(ProblemKind.LUSTRE_LOST, match[1] or match[2])
    yield _MCE, _machine_check
    yield _AMD, lambda match: HostMessage(_AMD_TROUBLE.get(match[1], ProblemKind.HARDWARE_UNCORRECTED))
    yield _FIRMWARE, _firmware
    yield _EDAC, _edac
    yield _POISON, lambda _: HostMessage(ProblemKind.MEMORY_UNCORRECTED)
    yield _DPC, _of(ProblemKind.PCIE_DPC)
    yield _THERMAL, lambda match: HostMessage(ProblemKind.CPU_THERMAL, match[1].lower())


_PATTERNS: Final = tuple(_patterns())
