r"""Parse kernel messages about problems of the host around the GPUs.

The wording is that of Linux 5.4 to 6.12, and of Lustre's client, without timestamp, level or facility; for messages of
NVIDIA's driver and of other devices see driver_messages.py. A message is recognized from its
first word on, so a process name, which is user-controlled, is never mistaken for a kernel message.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

_LONGEST_SUBJECT: Final = 64


class Ending(Enum):
    """When what a kernel message reports is over."""

    MOMENTARY = "it is an event, and logged again if it happens again"
    ANNOUNCED = "the kernel logs its end; a day at most, as the end may go unlogged (a server that was retired)"
    REPAIRED = "the kernel logs its end, however much later"
    UNBLOCKED = "the task leaves state D; if no such process is visible, 15 minutes after the last message"
    LOADED = "the driver is loaded again"
    PROBED = "the driver is loaded again; logged while it is loading, before the message that it is loaded"
    REBOOTED = "the host reboots, which begins another kernel log"


class ProblemKind(Enum):
    """Kind of problem that a kernel message reports, and how it ends; the value is the label `kind`."""

    ending: Ending

    def __new__(cls, label: str, ending: Ending = Ending.MOMENTARY) -> "ProblemKind":  # noqa: PYI034 - Python 3.10
        kind = object.__new__(cls)
        kind._value_, kind.ending = label, ending
        return kind

    OOM_KILL = "oom_kill"
    HUNG_TASK = "hung_task", Ending.UNBLOCKED
    SOFT_LOCKUP = "soft_lockup"  # logged again every minute, as are the next two
    HARD_LOCKUP = "hard_lockup"
    RCU_STALL = "rcu_stall"
    FILESYSTEM_READ_ONLY = "filesystem_read_only", Ending.REPAIRED
    NVME_TIMEOUT = "nvme_timeout"
    NVME_RESET = "nvme_reset"
    NVME_LOST = "nvme_lost", Ending.REPAIRED
    NFS_NOT_RESPONDING = "nfs_not_responding", Ending.ANNOUNCED
    LUSTRE_LOST = "lustre_lost", Ending.ANNOUNCED
    HARDWARE_CORRECTED = "hardware_corrected"
    HARDWARE_UNCORRECTED = "hardware_uncorrected"
    MEMORY_CORRECTED = "memory_corrected"  # has a counter, as has heat
    MEMORY_UNCORRECTED = "memory_uncorrected"
    PCIE_CORRECTED = "pcie_corrected"
    PCIE_UNCORRECTED = "pcie_uncorrected"
    PCIE_DPC = "pcie_dpc", Ending.ANNOUNCED
    DEVICE_INACCESSIBLE = "device_inaccessible", Ending.ANNOUNCED
    IOMMU_FAULT = "iommu_fault"
    IRQ_DISABLED = "irq_disabled", Ending.REBOOTED
    KERNEL_OOPS = "kernel_oops", Ending.REBOOTED  # a thread that crashed keeps its locks
    CPU_THERMAL = "cpu_thermal"
    ADAPTER_POWER = "adapter_power", Ending.ANNOUNCED
    ADAPTER_MODULE = "adapter_module", Ending.ANNOUNCED
    ADAPTER_HOT = "adapter_hot"
    ADAPTER_LINK_DOWN = "adapter_link_down", Ending.ANNOUNCED
    PEERMEM_ERROR = "peermem_error"
    DRIVER_MISMATCH = "driver_version_mismatch", Ending.LOADED
    DRIVER_NOT_LOADED = "driver_not_loaded", Ending.PROBED
    MODULE_REJECTED = "module_rejected", Ending.LOADED
    GPU_INIT_FAILED = "gpu_init_failed", Ending.LOADED
    GPU_LOST_AT_PROBE = "gpu_lost_at_probe", Ending.PROBED
    GPU_PROBE_FAILED = "gpu_probe_failed", Ending.PROBED
    GPU_NOT_PROBED = "gpu_not_probed", Ending.PROBED
    GPU_BOUND_ELSEWHERE = "gpu_bound_elsewhere", Ending.PROBED
    GPU_UNSUPPORTED = "gpu_unsupported", Ending.PROBED
    GPU_BAR = "gpu_bar", Ending.PROBED
    GPU_NOT_STARTED = "gpu_not_started", Ending.PROBED
    GPU_UNPOWERED = "gpu_unpowered", Ending.LOADED
    GSP_INIT_FAILED = "gsp_init_failed", Ending.LOADED
    GSP_TIMEOUT = "gsp_timeout", Ending.LOADED
    INFOROM_CORRUPTED = "inforom_corrupted"
    SWITCH_MISMATCH = "nvswitch_version_mismatch"  # another fabric manager needs no new driver

    @property
    def until_loaded(self) -> bool:
        """Whether nothing is left of it once the driver has been loaded again."""
        return self.ending in (Ending.LOADED, Ending.PROBED) or self is ProblemKind.SWITCH_MISMATCH


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
    *("ut of memory: Kill", "blocked for more than", "blocked in I/O wait for more than", "soft lockup", "hard LOCKUP"),
    *("detected stall", "self-detected stall", "detected expedited stall", "Remounting filesystem read-only"),
    *("hutting down filesystem", "Filesystem has been shut down", "forced readonly", "nvme nvme", "not responding, "),
    *("was lost; in progress operations", "client was evicted", "[Hardware Error]: ", "EDAC MC", "Memory failure: 0x"),
    *("DPC: containment event", "above threshold, cpu clock", ": nobody cared", "nable to handle "),
    *("kernel NULL pointer", "kernel BUG at ", " [#"),
)
"""Substrings; a line without any of them is not one of these messages."""

OVER_MARKERS: Final = (
    *("nfs: server ", "Connection restored to ", "mounted", "ounting ", "unmount of filesystem", ": pci function "),
)
"""The same for messages that a problem is resolved."""

_DYING: Final = r"(?:Oops|Internal error|general protection fault|invalid opcode)\b[^\n]{0,120}?: [0-9a-f]{4,16}"
_DETAILS: Final = (
    r"[^\s\[\]]{1,15} invoked oom-killer: |CPU: \d{1,5} (?:UID: \d{1,10} )?PID: \d|\[<[0-9a-f]{8,16}>\] nvidia_isr"
)
DETAIL_MARKERS: Final = (" Comm: ", "nvidia_isr", " invoked oom-killer: ")
"""Substrings of lines that complete what others report."""

REPORTS: Final = (
    (re.compile(rf"BUG: |Unable to handle kernel |kernel BUG at |{_DYING} \[#"), re.compile(rf"CPU: \d|{_DYING} \[#")),
    (re.compile(r"irq \d{1,5}: nobody cared"), re.compile(r"CPU: \d|\[<[0-9a-f]{8,16}>\] nvidia_isr")),
    (
        re.compile(r"(?:\{\d{1,9}\})?\[Hardware Error\]: event severity: "),
        re.compile(r"(?:\{\d{1,9}\})?\[Hardware Error\]: {2,8}(?!event severity)"),
    ),
)
"""Reports of several lines: how the first begins, and the lines that belong to it; other lines may come between."""

BEGINNINGS: Final = (
    r"(?:Memory cgroup o|O)ut of memory: Kill|INFO: (?:task |rcu_)|(?:NMI )?watchdog: |rcu: INFO: |EXT\d-fs \(|XFS \("
    r"|BTRFS \w{4,8} \(device |nvme nvme\d|(?:nfs|NFS): server |Lustre(?:Error)?: |mce: (?:\[|CPU)"
    r"|(?:\{\d{1,9}\})?\[Hardware Error\]: |EDAC MC\d|Memory failure: 0x|CPU\d{1,5}: (?:Core|Package) temperature "
    r"|irq \d{1,5}: nobody cared |BUG: (?:unable to handle |kernel NULL )|Unable to handle kernel |kernel BUG at "
    rf"|{_DYING} \[#|{_DETAILS}"
)
"""Regular expression for the start of each message, to locate it after the timestamp in a log line."""


def messages(
    beginnings: Mapping[ProblemKind, str | tuple[str, ...]],
) -> tuple[tuple[ProblemKind, re.Pattern[str]], ...]:
    """Kinds of messages by the beginnings of their text, as regular expressions; the first that matches counts."""
    every = ((kind, (each,) if isinstance(each, str) else each) for kind, each in beginnings.items())
    return tuple((kind, re.compile(beginning)) for kind, several in every for beginning in several)


_OOM_CALL: Final = re.compile(r"(\S{1,15}) invoked oom-killer: gfp_mask=0x")
_OOM_ORDER: Final = re.compile(r"oom-kill:constraint=.*?,task_memcg=(/.{0,1000}?),task=.{0,40}?,pid=(\d{1,9}),uid=\d+$")
_MACHINE_CHECK: Final = (
    r"mce: \[Hardware Error\]: CPU (?P<cpu>\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,16} Bank \d{1,3}: "
)
_EDAC: Final = r"EDAC (MC\d{{1,3}}): \d{{1,9}} {} (?:.{{0,200}}? on (?!unknown|any)([^\s(]{{1,64}}))?"
_CORRECTED: Final = re.compile(r"EDAC MC\d{1,3}: (\d{1,9}) CE ")
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


def _from_firmware(severity: str) -> str:
    """The report of APEI, or of BERT after a reboot; of a PCIe error with its device (drivers/firmware/efi/cper.c)."""
    return (
        rf"(?:\{{\d{{1,9}}\}})?\[Hardware Error\]: event severity: {severity}(?:\n(?s:.*?device_id: ({_ADDRESS})\n)?|$)"
    )


_MESSAGES: Final = messages(
    {
        # A comm is up to 15 bytes chosen by the process; the parentheses and numbers after it are the kernel's.
        ProblemKind.OOM_KILL: r"(?:Memory cgroup o|O)ut of memory: Kill(?:ed)? process "
        r"(?P<pid>\d{1,9}) \((?P<process>.{0,40}?)\)",
        ProblemKind.HUNG_TASK: r"INFO: task (?P<process>.{0,40}):(?P<pid>\d{1,9}) "
        r"(?:is )?blocked (?:in I/O wait)? *for more than \d+ seconds",
        ProblemKind.SOFT_LOCKUP: r"(?:NMI )?watchdog: BUG: soft lockup - CPU#(?P<cpu>\d{1,5}) stuck for \d+s!",
        ProblemKind.HARD_LOCKUP: r"(?:NMI )?watchdog: (?:CPU\d{1,5}: )?(?:BUG: )?"
        r"Watchdog detected hard LOCKUP on cpu (?P<cpu>\d{1,5})",
        ProblemKind.RCU_STALL: r"(?:rcu: )?INFO: (rcu_\w{1,20}) (?:self-)?detected (?:expedited )?stalls? on CPU",
        ProblemKind.FILESYSTEM_READ_ONLY: (
            r"EXT\d-fs \(([^)\s]{1,40})\): Remounting filesystem read-only",
            r"XFS \(([^)\s]{1,40})\): (?!User initiated).{0,300}[Ss]hutting down filesystem",
            r"XFS \(([^)\s]{1,40})\): Filesystem has been shut down",
            r"BTRFS (?:info|warning|error|critical) \(device ([^):\s]{1,40})[^)]{0,20}\): .{0,200}?forced readonly",
        ),
        ProblemKind.NVME_RESET: (
            r"nvme (nvme\d{1,4}): I/O (?:tag )?\d.{0,80}? QID \d{1,5} timeout, (?:reset|disable)\b",
            r"nvme (nvme\d{1,4}): (?:controller is down; will reset|frozen state error detected, reset controller)",
        ),
        ProblemKind.NVME_TIMEOUT: r"nvme (nvme\d{1,4}): I/O (?:tag )?\d.{0,80}? QID \d{1,5} timeout",
        ProblemKind.NVME_LOST: r"nvme (nvme\d{1,4}): "
        r"(?:Removing after probe failure|Disabling device after reset failure)",
        ProblemKind.NFS_NOT_RESPONDING: r"(?i:nfs): server (\S{1,255}) not responding, (?:still trying|timed out)",
        ProblemKind.LUSTRE_LOST: r"Lustre(?:Error)?: (?:\d{1,4}-\d{1,4}: )?\S{1,100}: "
        r"(?:Connection to (\S{1,100}) \(at .{1,100}?\) was lost; in progress"
        r"|This client was evicted by ([^\s;]{1,100});)",
        ProblemKind.HARDWARE_UNCORRECTED: (
            # Bit 61 of a bank's MCi_STATUS register: the error could not be corrected.
            rf"{_MACHINE_CHECK}[2367abef][0-9a-f]{{15}}",
            r"(?:mce: )?\[Hardware Error\]: (?:Uncorrected|System Fatal)(?: error)?[,.]",
            _from_firmware("(?:recoverable|fatal)"),
        ),
        ProblemKind.HARDWARE_CORRECTED: (
            rf"{_MACHINE_CHECK}[0-9a-f]{{16}}",
            r"(?:mce: )?\[Hardware Error\]: (?:Corrected|Deferred)(?: error)?[,.]",
            _from_firmware("corrected"),
        ),
        ProblemKind.MEMORY_CORRECTED: _EDAC.format("CE"),
        ProblemKind.MEMORY_UNCORRECTED: (_EDAC.format("UE"), r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for "),
        ProblemKind.PCIE_DPC: rf"(?:pcieport|pci) ({_ADDRESS}): DPC: containment event, status:",
        ProblemKind.IRQ_DISABLED: r"irq (?P<irq>\d{1,5}): nobody cared \(try booting with the \"irqpoll\" option\)",
        # The line that numbers it, or the reason before it; a later line has the thread (arch/x86/kernel/dumpstack.c).
        ProblemKind.KERNEL_OOPS: r"(?:BUG: (?:unable to handle |kernel NULL pointer dereference)"
        rf"|Unable to handle kernel |kernel BUG at |{_DYING} \[#\d)"
        r"(?s:.*? PID: (?P<pid>\d{1,9}) Comm: (?P<process>.{1,20}?) (?:Kdump: |Not tainted|Tainted: ))?",
        ProblemKind.CPU_THERMAL: r"(?:mce: )?CPU\d{1,5}: (Core|Package) temperature (?:is )?"
        r"above threshold, cpu clock (?:is )?throttled",
    }
)
"""Groups are the PID and name of a process, the number of a CPU, or what else is concerned: the last one counts."""

_OVER: Final = messages(
    {
        ProblemKind.FILESYSTEM_READ_ONLY: (
            r"EXT\d-fs \(([^)\s]{1,40})\): (?:(?:re-)?mounted\b|unmounting filesystem)",
            r"XFS \(([^)\s]{1,40})\): (?:Mounting V\d|Unmounting) Filesystem",
            r"BTRFS info \(device ([^):\s]{1,40})\): (?:first mount|last unmount) of filesystem",
        ),
        ProblemKind.NFS_NOT_RESPONDING: r"(?i:nfs): server (\S{1,255}) OK$",
        ProblemKind.LUSTRE_LOST: r"Lustre: (\S{1,100}?)(?:-(?:osc|mdc|lwp|mgc)-\S{1,60})?: Connection restored to ",
        ProblemKind.NVME_LOST: r"nvme (nvme\d{1,4}): pci function ",
    }
)
"""Messages that end lasting problems: an administrator's action, or a server that is back."""


def parse_host_message(text: str) -> HostMessage | None:
    """Parse a kernel message about the host; None for any other message."""
    if not any(marker in text for marker in MARKERS):
        return None
    for trouble, pattern in _MESSAGES:
        match = pattern.match(text)
        if match is None:
            continue
        named = {name: value for name, value in match.groupdict().items() if value is not None}
        if "pid" in named:
            return HostMessage(trouble, cut(f"{named['process'] or 'process'} ({named['pid']})"), int(named["pid"]))
        numbered = next((f"{name.upper()} {value}" for name, value in named.items()), "")
        subject = numbered or next(filter(None, reversed(match.groups())), "")
        return HostMessage(trouble, cut(subject.lower() if trouble is ProblemKind.CPU_THERMAL else subject))
    return None


def parse_trouble_over(text: str) -> ProblemResolved | None:
    """Parse a message that a problem is resolved; None for any other message."""
    for trouble, pattern in _OVER:
        match = pattern.match(text)
        if match is not None:
            return ProblemResolved(trouble, cut(match[1]))
    return None


def corrected_errors(text: str) -> int:
    """Number of corrected memory errors in an EDAC message, hundreds in a flood; 0 for any other message."""
    match = _CORRECTED.match(text)
    return int(match[1]) if match is not None else 0


def parse_kill_order(text: str) -> KillOrder | None:
    """Parse the OOM killer's choice of process, in Linux 5.0 or later; None for any other message."""
    match = _OOM_ORDER.match(text) if text.startswith("oom-kill:") else None
    return None if match is None else KillOrder(int(match[2]), match[1])


def parse_oom_call(text: str) -> str | None:
    """The process with the allocation that started the OOM killer, which may kill another one."""
    match = _OOM_CALL.match(text)
    return None if match is None else cut(match[1])


def cut(text: str) -> str:
    return text[:_LONGEST_SUBJECT]
