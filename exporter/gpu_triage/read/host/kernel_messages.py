r"""Parse kernel messages about problems of the host and of devices around the GPUs.

The wording is that of Linux 5.4 to 6.12, and of Lustre's client, without timestamp, level or facility; for messages of
NVIDIA's driver see driver_messages.py. A message is recognized from its first word on, so a process name, which is
user-controlled, is never mistaken for a kernel message.

PCIe errors of any device: drivers/pci/pcie/aer.c. Until Linux 6.7 they are Corrected, Uncorrected (Non-Fatal) and
Uncorrected (Fatal), since 6.8 Correctable and Uncorrectable. A port logs the error message it ``received``; the
device's line, prefixed with its driver, describes the error. Messages of mlx5 adapters:
drivers/net/ethernet/mellanox/mlx5/core/events.c and en_main.c, drivers/infiniband/hw/mlx5/main.c.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id

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
    """One parsed kernel message: of a problem, or that it is resolved; "" for what it does not contain.

    The subject is what it concerns: a process as ``python3 (4242)``, a device, a server, a CPU, an address, or a GPU by
    the driver's number as ``GPU 3``, not always its index. The PID is in the host's PID namespace; None without one.
    Messages of NVIDIA's modules alone have a GPU's address, and a detail: versions, a code, a count or a driver.
    """

    trouble: ProblemKind
    subject: str = ""
    pid: int | None = None
    address: str = ""
    detail: str = ""


MARKERS: Final = (
    *("ut of memory: Kill", "blocked for more than", "blocked in I/O wait for more than", "soft lockup", "hard LOCKUP"),
    *("detected stall", "detected expedited stall", "Remounting filesystem read-only", "hutting down filesystem"),
    *("Filesystem has been shut down", "forced readonly", "nvme nvme", "not responding, ", "client was evicted"),
    *("was lost; in progress operations", "[Hardware Error]: ", "EDAC MC", "Memory failure: 0x"),
    *("DPC: containment event", "above threshold, cpu clock", ": nobody cared", "nable to handle "),
    *("kernel NULL pointer", "kernel BUG at ", " [#", "PCIe Bus Error", "AER: ", "aer_", ": [10de:", "  device [10de:"),
    *("mlx5_core ", "pciehp: Slot(", "AMD-Vi: Event logged", "DMAR:", "arm-smmu-v3 ", "change power state"),
    *("ms after ", ": enabling device ("),
    # Of messages that a problem is resolved, and of lines that complete what others report.
    *("nfs: server ", "Connection restored to ", "mounted", "ounting ", "unmount of filesystem", ": pci function "),
    *(" Comm: ", "nvidia_isr", " invoked oom-killer: "),
)
"""Substrings; a line without any of them is not one of these messages."""

_DEVICE: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DYING: Final = r"(?:Oops|Internal error|general protection fault|invalid opcode)\b[^\n]{0,120}?: [0-9a-f]{4,16}"
_DETAILS: Final = (
    r"[^\s\[\]]{1,15} invoked oom-killer: |CPU: \d{1,5} (?:UID: \d{1,10} )?PID: \d|\[<[0-9a-f]{8,16}>\] nvidia_isr"
)

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
    rf"|(?:pcieport|pci|nvidia|nouveau|mlx5_core) {_DEVICE}[: ]"
    rf"|[\w-]{{2,24}} {_DEVICE}: (?:AER: |PCIe Bus |aer_|  device \[10de:|AMD-Vi: |(?:not )?ready |.{{5,10}} change )"
    rf"|[\w-]{{2,24}} {_DEVICE}: enabling device "
    r"|AMD-Vi: Event |(?:dmar: )?DMAR: ?\[|arm-smmu-v3 "
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

# Docks and other devices that were unplugged have the same messages, with other drivers.
_OF_GPU: Final = rf"(?:nvidia|nouveau|NovaCore|vfio-pci|pci) (?P<address>{_DEVICE}): "
_SHORT: Final = r"(?P<address>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_FUNCTION: Final = r": (?:\w{1,60}:\d{1,6}:\(pid \d{1,10}\): )?"
_MLX5: Final = rf"mlx5_core (?P<address>{_DEVICE})(?: \w{{1,32}})?{_FUNCTION}"
_MODULE: Final = _MLX5 + r"Port module event\[error\]: module \d{1,4}, .{1,40}?, "
_LINK: Final = (
    rf"mlx5_core (?P<address>{_DEVICE})(?: (?P<interface>\w{{1,32}}))?{_FUNCTION}(?:Port: (?P<port>\d{{1,3}}) )?Link "
)


def _from_firmware(severity: str) -> str:
    """The report of APEI, or of BERT after a reboot; of a PCIe error with its device (drivers/firmware/efi/cper.c)."""
    device = rf"(?s:.*?device_id: (?P<address>{_DEVICE})\n)?"
    return rf"(?:\{{\d{{1,9}}\}})?\[Hardware Error\]: event severity: {severity}(?:\n{device}|$)"


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
        ProblemKind.PCIE_DPC: rf"(?:pcieport|pci) (?P<address>{_DEVICE}): DPC: containment event, status:",
        ProblemKind.IRQ_DISABLED: r"irq (?P<irq>\d{1,5}): nobody cared \(try booting with the \"irqpoll\" option\)",
        # The line that numbers it, or the reason before it; a later line has the thread (arch/x86/kernel/dumpstack.c).
        ProblemKind.KERNEL_OOPS: r"(?:BUG: (?:unable to handle |kernel NULL pointer dereference)"
        rf"|Unable to handle kernel |kernel BUG at |{_DYING} \[#\d)"
        r"(?s:.*? PID: (?P<pid>\d{1,9}) Comm: (?P<process>.{1,20}?) (?:Kdump: |Not tainted|Tainted: ))?",
        ProblemKind.CPU_THERMAL: r"(?:mce: )?CPU\d{1,5}: (Core|Package) temperature (?:is )?"
        r"above threshold, cpu clock (?:is )?throttled",
        # drivers/pci/pci.c; until 5.18 "can't"
        ProblemKind.DEVICE_INACCESSIBLE: (
            _OF_GPU + r"(?:(?:Unable to|can't) change power state from .{4,20}(?:, device| \(config space) inaccessible"
            r"|[Rr]efused to change power state(?:, currently in D3| from D3(?:hot|cold) to D0)"
            r"|not ready \d{1,7}ms after .{1,40}; giving up)"
        ),
        ProblemKind.IOMMU_FAULT: (
            # drivers/iommu/amd/iommu.c, intel/dmar.c, arm/arm-smmu-v3/arm-smmu-v3.c
            rf"[\w-]{{2,24}} (?P<address>{_DEVICE}): AMD-Vi: Event logged \[[A-Z_]{{4,40}} ",
            rf"AMD-Vi: Event logged \[[A-Z_]{{4,40}} device={_SHORT}\b",
            rf"arm-smmu-v3 \S{{1,40}}: event: [CF]_[A-Z_]{{3,40}} client: {_SHORT}\b",
            rf"(?:dmar: )?DMAR: ?\[(?:DMA (?:Read|Write)|INTR-REMAP)[^\]]{{0,30}}\] Request device \[{_SHORT}\b",
        ),
        ProblemKind.ADAPTER_POWER: (
            _MLX5 + r"Detected insufficient power on the PCIe slot \(\d{1,5}W\)",
            _MODULE + ".{0,110}(?:Power budget exceeded|insufficient/unadvertised power)",
        ),
        ProblemKind.ADAPTER_MODULE: _MODULE,
        ProblemKind.ADAPTER_HOT: _MLX5 + r"High temperature on sensors",
        ProblemKind.ADAPTER_LINK_DOWN: _LINK + r"(?:down|DOWN)\b",
    }
)
"""Groups are the PID and name of a process, the address of a device and what of it, the number of a CPU, or what else
is concerned: the last one counts."""

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
        # The kernel logs the second one only if it could read the device's registers (drivers/pci/setup-res.c).
        ProblemKind.DEVICE_INACCESSIBLE: _OF_GPU + r"(?:ready \d{1,7}ms after |enabling device \()",
        # drivers/pci/pcie/err.c; drivers/pci/hotplug/pciehp_ctrl.c
        ProblemKind.PCIE_DPC: rf"pcieport (?P<address>{_DEVICE}): "
        r"(?:AER: [Dd]evice recovery successful|pciehp: Slot\([^)]{1,40}\): Link Up)$",
        # drivers/net/ethernet/mellanox/mlx5/core/events.c
        ProblemKind.ADAPTER_POWER: _MLX5 + r"PCIe slot advertised sufficient power",
        ProblemKind.ADAPTER_MODULE: _MLX5 + r"Port module event: module \d",
        ProblemKind.ADAPTER_LINK_DOWN: _LINK + r"(?:up|ACTIVE)\b",
    }
)
"""Messages that end lasting problems: an administrator's action, or a server, device, port or link that is back."""


def parse_host_message(text: str) -> HostMessage | None:
    """Parse a kernel message about a problem of the host or a device; None for any other message."""
    if not any(marker in text for marker in MARKERS):
        return None
    if (error := parse_pcie_error(text)) is not None:
        # Ignore the port's line: the device logs the same error itself, unless it no longer can.
        trouble = ProblemKind.PCIE_CORRECTED if error.severity == "correctable" else ProblemKind.PCIE_UNCORRECTED
        return None if error.port else HostMessage(trouble, error.address)
    return _first_of(_MESSAGES, text)


def parse_trouble_over(text: str) -> HostMessage | None:
    """Parse a message that a problem is resolved; None for any other message."""
    return _first_of(_OVER, text)


def _first_of(patterns: tuple[tuple[ProblemKind, re.Pattern[str]], ...], text: str) -> HostMessage | None:
    for trouble, pattern in patterns:
        if (match := pattern.match(text)) is not None:
            named = {name: value for name, value in match.groupdict().items() if value is not None}
            subject = _subject(named) or next(filter(None, reversed(match.groups())), "")
            subject = subject.lower() if trouble is ProblemKind.CPU_THERMAL else subject
            return HostMessage(trouble, cut(subject), int(named["pid"]) if "pid" in named else None)
    return None


def _subject(named: Mapping[str, str]) -> str:
    """The process, the device, its link (``mlx5_5 port 1``, else the interface) or the CPU; "" if none is named."""
    if "pid" in named:
        return f"{named['process'] or 'process'} ({named['pid']})"
    if "address" in named:
        device = named.get("interface") or _bus_id(named["address"])
        return f"{device} port {named['port']}" if "port" in named else device
    return next((f"{name.upper()} {value}" for name, value in named.items()), "")


def _bus_id(address: str) -> str:
    return normalize_bus_id(address if address.count(":") > 1 else f"0000:{address}")


class PcieError(NamedTuple):
    """A PCIe error of the device with this address, with a severity of gpu_pcie_aer_errors_total.

    `port` received the error message; "" if the device's own line reports it, which also names the driver.
    """

    address: str
    severity: str
    port: str = ""
    driver: str = ""


_SEVERITY: Final = (
    r"(?:(?P<correctable>Corrected|Correctable)|Uncorrected|Uncorrectable)(?: \((?:(?P<fatal>Fatal)|Non-Fatal)\))?"
)
_OF_DRIVER: Final = rf"(?P<driver>[\w-]{{2,24}}) (?P<address>{_DEVICE}): (?:AER: )?"
_PCIE_ERRORS: Final = (
    re.compile(rf"{_OF_DRIVER}PCIe Bus Error: severity={_SEVERITY}"),
    re.compile(
        rf"[\w-]{{2,24}} (?P<port>{_DEVICE}): AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?: from|:) "
        rf"(?P<address>{_DEVICE})"
    ),
    # If the firmware handles errors (APEI), only the registers are logged.
    re.compile(rf"{_OF_DRIVER}aer_(?:(?P<correctable>status)|uncor_severity): 0x"),
)
# drivers/pci/hotplug/pciehp_ctrl.c: the link of a slot is gone; "ignored" and "Link Up" are not.
_LINK_LOST: Final = re.compile(rf"pcieport ({_DEVICE}): pciehp: Slot\([^)]{{1,40}}\): (?:Link Down|Card not present)$")
# The same line is logged for switches and a GPU's audio device, which use other drivers.
_FAILING_GPU: Final = re.compile(
    rf"(?:nvidia|nouveau|NovaCore|vfio-pci|pci) ({_DEVICE}): (?:AER: )? {{2,3}}device \[10de:"
)


def parse_pcie_error(text: str) -> PcieError | None:
    """Parse the PCIe error in a kernel message; None for any other message."""
    match = next(filter(None, (pattern.match(text) for pattern in _PCIE_ERRORS)), None)
    if match is None:
        return None
    said = match.groupdict("")
    severity = "correctable" if said["correctable"] else "fatal" if said.get("fatal") else "nonfatal"
    port = said.get("port")
    return PcieError(_bus_id(said["address"]), severity, _bus_id(port) if port else "", said.get("driver", ""))


def parse_link_lost(text: str) -> str | None:
    """Bus ID of a port with a link that went down, so that what is below it is gone; None for any other message."""
    match = _LINK_LOST.match(text)
    return None if match is None else _bus_id(match[1])


def parse_failing_gpu(text: str) -> str | None:
    """Bus ID of the GPU in the detail lines of a PCIe error; None for any other message."""
    match = _FAILING_GPU.match(text)
    return None if match is None else _bus_id(match[1])


def corrected_errors(text: str) -> int:
    """Number of corrected memory errors in an EDAC message, hundreds in a flood; 0 for any other message."""
    match = _CORRECTED.match(text)
    return int(match[1]) if match is not None else 0


def parse_kill_order(text: str) -> tuple[int, str] | None:
    """Host PID and memory cgroup of the process that the OOM killer, since Linux 5.0, is going to kill; else None."""
    match = _OOM_ORDER.match(text) if text.startswith("oom-kill:") else None
    return None if match is None else (int(match[2]), match[1])


def parse_oom_call(text: str) -> str | None:
    """The process with the allocation that started the OOM killer, which may kill another one."""
    match = _OOM_CALL.match(text)
    return None if match is None else cut(match[1])


def cut(text: str) -> str:
    return text[:_LONGEST_SUBJECT]
