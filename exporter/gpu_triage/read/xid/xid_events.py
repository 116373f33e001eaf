"""Xid reports, and the kernel messages they are parsed from.

The driver prints an Xid as ``NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, …``: older branches
without ``PCI:``, some with an eight-digit domain or with the function, MIG with the instance after the address
(https://docs.nvidia.com/deploy/xid-errors/). In addition, and sometimes instead, it prints
``NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.``

NVLink 5 Xids state after the unit name whether they are fatal:
``NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x…)``.

That the card in a slot may have changed is reported by the PCI core, not by the driver: whenever it finds a device, at
boot, after a hotplug or a rescan, it prints ``pci 0000:65:00.0: [10de:2330] type 00 class 0x030200 …``
(pci_setup_device, drivers/pci/probe.c).

SXids are NVSwitch errors, which the switch driver only reports in the kernel log:
``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up``; details follow on separate lines
with the same number (``Severity 1 Engine instance 30 …``, ``Data {0x…}``) and are not counted. NVLink 5 switches have
no driver on the host: their errors are Xids 144 to 150 of the GPUs.
Source: NVIDIA's Fabric Manager User Guide, "NVSwitch SXid Errors".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.xid.codes import XID_CODES

OFF_THE_BUS: Final = 79  # the Xid of a GPU that fell off the bus
UNKNOWN: Final = 999
"""NVML's code for an Xid that it does not know (nvmlEventData_t, nvml.h); the kernel log has the actual code."""

MISSED_BY_NVML: Final = (79, 119, 120)
"""Codes that NVML's events did not deliver on 2024-04-24, when NVIDIA was working on it (github.com/NVIDIA/DCGM, issue
162); whether later drivers do is unknown."""

_WITH_SITE: Final = frozenset({13, 31})  # Xids with a message that may contain a location on the chip
_ADDRESS: Final = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?"
_XID: Final = re.compile(rf"NVRM: Xid \({_ADDRESS}[^)]{{0,60}}\): ([0-9]{{1,5}})\b")
# A process name is user-controlled: after one, require more text behind the word than a 15-byte name can hold.
_FATAL: Final = re.compile(
    r", (?:(?:[A-Za-z0-9_/]{1,64}) +(Fatal|Nonfatal)(?: |$)"
    r"|pid=[^,]{1,20}, name=[^,]{1,64}, [A-Za-z0-9_/]{1,64} +(Fatal|Nonfatal) +XC[0-9])"
)
# During probe, the driver splits this message over several lines, each with the prefix.
_OFF_THE_BUS: Final = re.compile(
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}:?\s.{{0,200}}?fallen off the bus", re.DOTALL
)
_ACTION: Final = re.compile(r"GPU recovery action changed from 0x\w{1,4} \(.{1,40}?\) to 0x\w{1,4} \((.{1,40}?)\)")
NO_ACTION: Final = "None"
_DRIVER_LOADED: Final = "NVRM: loading NVIDIA UNIX "
_FOUND: Final = re.compile(
    r"pci ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): \[10de:[0-9a-f]{4}\] type 00 class 0x03"
)


class XidSource(Enum):
    """Sources of Xids; the label `source` of gpu_exporter_xid_source_up."""

    KMSG = "kmsg"
    NVML = "nvml"


@dataclass(frozen=True, slots=True)
class XidReport:
    """One Xid as reported by one source, between two monotonic seconds."""

    gpu: str  # PCI bus ID as in sysfs (``0000:65:00.0``); the UUID if the driver provides no bus ID
    code: int | None  # the Xid, or `UNKNOWN`; None if the source only reports that the GPU fell off the bus
    source: XidSource
    earliest: float
    latest: float  # for a source without timestamps, when it was received
    uuid: str | None = None  # of the GPU, if the source identifies the card and not only its address
    fatal: bool | None = None  # whether the message contains Fatal; None for other codes, or a source without messages
    site: XidSite | None = None  # location on the chip from the message; None if it contains none


@dataclass(frozen=True, slots=True)
class CardFound:
    """At this monotonic second, the kernel found a GPU on the bus: earlier messages may concern another card there."""

    gpu: str
    at: float


@dataclass(frozen=True, slots=True)
class DriverLoaded:
    """At this monotonic second, the NVIDIA kernel module was loaded: every GPU is reinitialized."""

    at: float


def parse_found(text: str) -> str | None:
    """Parse the PCI core's message that it found an NVIDIA GPU into a sysfs bus ID; None for any other message."""
    match = _FOUND.match(text)
    return None if match is None else normalize_bus_id(match[1])


def parse_xid(text: str, at: float = 0.0) -> XidReport | None:
    """Parse the Xid in a driver message of this monotonic second; None for any other message."""
    match = _XID.match(text)
    if match is not None:
        code = int(match[3])
        site = parse_site(text) if code in _WITH_SITE else None
        fatal = _fatal(code, text, match.end())
        return XidReport(_bus_id(match), code, XidSource.KMSG, at, at, fatal=fatal, site=site)
    match = _OFF_THE_BUS.match(text)
    return None if match is None else XidReport(_bus_id(match), None, XidSource.KMSG, at, at)


def recovery_action(text: str) -> str | None:
    """Parse the action that the driver requests in the message of an Xid 154, such as ``GPU Reset Required``.

    `NO_ACTION` if it withdraws a request (gpu.c, gpuRefreshRecoveryAction); None for any other message.
    """
    match = _ACTION.search(text)
    return None if match is None else match[1]


_NVLINK_ERROR: Final = re.compile(
    r"\b(1(?:4[4-9]|50)), ([A-Z][A-Z0-9_]{1,40})\S{0,40} +(Fatal|Nonfatal) +XC ?[0-9]+ +i ?[0-9]+ +Link +([0-9]{1,3})"
    r" +[(\[](0x[0-9a-f]{1,8})(?: (0x[0-9a-f]{1,8}))?"
)
_LINK_EVENT: Final = "NETIR_LINK_EVT"
_MEMORY: Final = "uncorrected memory errors follow (Xid 48, then 94 or 95)"
_DIED: Final = "the program has died (Xid 45): do what an Xid 154 asks for, and without one restart the job"
_PACKETS: Final = "packets were lost"
_NONFATAL_EFFECTS: Final[tuple[tuple[str, int, str], ...]] = (
    ("SAW_MVB", 0x09, _MEMORY),
    ("RLW_REMAP", 0x3F, _DIED),
    ("RLW_SRC_TRACK", 0x0C, _DIED),
    ("RLW_RXPIPE", 0x07, _PACKETS),
    ("TLW_CTRL", 0x02, _MEMORY),
    ("TLW_RX", 0x02, _MEMORY),
    ("TLW_TX", 0x02, _MEMORY),
)
"""Units and bits of the error status that hit jobs even if they are nonfatal; NVIDIA's sheet "Xid 144-150 Decode"."""
_DOWN_BECAUSE: Final = {
    **dict.fromkeys((2, 4, 10, 42, 43), "a bad signal, check cables and connectors"),
    **dict.fromkeys((15, 17, 22, 38), "software or a person did it"),
    **dict.fromkeys((16, 18), "software or a person did it, or a bad signal"),
    **dict.fromkeys((21, *range(32, 38)), "the device at its other end did it"),
    40: "the host did it",
}
"""Why a link went down, by bits 20 to 25 of the first number; the same sheet, column Investigatory Action."""


def nvlink_error(text: str) -> str:
    """What the message of an Xid 144-150 contains beyond its code: unit, link, and effect or reason; "" if not one."""
    match = _NVLINK_ERROR.search(text)
    if match is None:
        return ""
    unit, link, first, status = match[2], int(match[4]), int(match[5], 16), int(match[6] or "0", 16)
    words = f"{unit}, link {link}"
    if unit == _LINK_EVENT:
        reason = _DOWN_BECAUSE.get(first >> 20 & 0x3F)
        return f"{words} down" + (f": {reason}" if reason else "")
    bits = 0 if match[3] == "Fatal" else status
    effects = (effect for name, hits, effect in _NONFATAL_EFFECTS if unit.startswith(name) and hits & bits)
    return f"{words}, error status 0x{status:x}" + "".join(f"; {effect}" for effect in effects)


def is_driver_loaded(text: str) -> bool:
    """Whether this is the message that the NVIDIA kernel module prints when loaded."""
    return text.startswith(_DRIVER_LOADED)


def _fatal(code: int, text: str, after_code: int) -> bool | None:
    known = XID_CODES.get(code)
    if known is None or not known.fatal_in_text:
        return None
    word = _FATAL.match(text, after_code)
    return None if word is None else (word[1] or word[2]) == "Fatal"


def _bus_id(match: re.Match[str]) -> str:
    # An Xid concerns the GPU, which is function 0; function 1 is its audio device.
    return normalize_bus_id(match[1] + (match[2] or ".0"))


_SXID: Final = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\): (\d{1,6}), "
    r"(Fatal|Non-fatal)\b"
)


@dataclass(frozen=True, slots=True)
class SwitchError:
    """One SXid of the switch with this bus ID, at this monotonic second; fatal if the switch must be reset."""

    switch: str
    code: int
    fatal: bool
    at: float


KernelNews = XidReport | CardFound | DriverLoaded | SwitchError
"""Xids and SXids from the kernel log, and the events that end them."""


def parse_news(text: str, at: float) -> KernelNews | None:
    """Parse a message of this monotonic second about a GPU, a switch or their driver; None for any other message."""
    if not text.startswith(("NVRM: ", "pci ", "nvidia-nvswitch")):
        return None
    if (found := parse_sxid(text, at) or parse_xid(text, at)) is not None:
        # An Xid 154 with the action None ends one before it, and is not an error.
        return None if recovery_action(text) == NO_ACTION else found
    if is_driver_loaded(text):
        return DriverLoaded(at)
    address = parse_found(text)
    return None if address is None else CardFound(address, at)


def parse_sxid(text: str, at: float = 0.0) -> SwitchError | None:
    """Parse the SXid in a switch driver's message; None for its detail lines, and for any other message."""
    match = _SXID.match(text)
    return None if match is None else SwitchError(normalize_bus_id(match[1]), int(match[2]), match[3] == "Fatal", at)


ENOUGH_PROCESSES: Final = 3  # minimum number of processes that failed in one place
_ENOUGH_PROGRAMS: Final = 2
_APART_SECONDS: Final = 86_400.0
_MOSTLY: Final = 0.75
_TOGETHER_SECONDS: Final = 10.0
"""Maximum time between the log lines of one failure."""

_MOST_FAILURES: Final = 64
_MOST_GPUS: Final = 256
_UNKNOWN: Final = "<unknown>"
_PROCESS: Final = re.compile(r", pid='?([^,']{1,20})'?(?:, name=([^,]{1,64}))?,")
# ``13, pid=…, name=…, Graphics SM Warp Exception on (GPC 10, TPC 1, SM 1): Out Of Range Address``, and
# ``31, pid=…, name=…, … MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x…``, without the GPC by some drivers
_SM: Final = re.compile(r"Graphics SM (?:Warp|Global) Exception on \(GPC (\d{1,3}), TPC (\d{1,3}), SM \d{1,3}\)")
_MMU: Final = re.compile(r"MMU Fault: ENGINE GRAPHICS GPC(\d{1,3}) GPCCLIENT_T1_(\d{1,3}) faulted")


class XidSite(NamedTuple):
    """Location of an Xid on the chip, and the process that caused it.

    The unit is ``GPC 10 TPC 1`` or ``GPC 2 L1 7``; PID and program are as printed by the driver, "" if not printed.
    """

    unit: str
    pid: str
    program: str


@dataclass(slots=True)
class _Failure:
    pid: str
    program: str
    at: float
    units: set[str] = field(default_factory=set)


class UnitFailures:
    """Xids 13 and 31 with a location on the chip: if they occur in one place whatever runs, the board is at fault.

    A faulty program fails wherever its blocks run, usually in many places at once; one that fails in its first block
    always does so in the same place, on any GPU. So a place is only suspected after several processes failed there and
    nowhere else, of different programs or on different days, and none of these failed in that place of another GPU.
    """

    def __init__(self) -> None:
        self._failures: dict[str, deque[_Failure]] = {}

    def see(self, gpu: str, site: XidSite, at: float) -> None:
        """Record a line of the kernel log about the GPU with this bus ID, at this monotonic second."""
        if gpu not in self._failures and len(self._failures) >= _MOST_GPUS:
            return
        failures = self._failures.setdefault(gpu, deque(maxlen=_MOST_FAILURES))
        last = failures[-1] if failures else None
        if last is None or last.pid != site.pid or at - last.at > _TOGETHER_SECONDS:
            last = _Failure(site.pid, site.program, at)
            failures.append(last)
        last.at = at
        last.units.add(site.unit)

    def forget(self, gpu: str) -> None:
        """Discard an address's failures, since there may now be another card."""
        self._failures.pop(gpu, None)

    def suspects(self) -> Mapping[str, tuple[str, int]]:
        """The suspected location and how many processes failed there, by bus ID of GPUs that have one."""
        return {gpu: suspect for gpu in self._failures if (suspect := self._suspect(gpu)) is not None}

    def _suspect(self, gpu: str) -> tuple[str, int] | None:
        failures = self._failures[gpu]
        places = Counter(next(iter(failure.units)) for failure in failures if len(failure.units) == 1)
        if not places:
            return None
        (unit, count), *_ = places.most_common(1)
        if count < _MOSTLY * len(failures):
            return None
        here = [failure for failure in failures if failure.units == {unit}]
        here = [failure for failure in here if not self._fails_elsewhere(gpu, unit, failure.program)]
        # Without a PID from the driver, each failure counts as one process.
        processes = {failure.pid or f"at {failure.at}" for failure in here}
        programs = {failure.program for failure in here if failure.program}
        if len(processes) < ENOUGH_PROCESSES:
            return None
        differ = len(programs) >= _ENOUGH_PROGRAMS or here[-1].at - here[0].at >= _APART_SECONDS
        return (unit, len(processes)) if differ else None

    def _fails_elsewhere(self, gpu: str, unit: str, program: str) -> bool:
        """Whether a program also fails in the same place of another GPU, which means the program is at fault."""
        others = (failure for other, failures in self._failures.items() if other != gpu for failure in failures)
        return any(failure.program == program and unit in failure.units for failure in others)


def parse_site(text: str) -> XidSite | None:
    """Parse the location in the message of an Xid 13 or 31; None if it contains none."""
    if (sm := _SM.search(text)) is not None:
        unit = f"GPC {int(sm[1])} TPC {int(sm[2])}"
    elif (mmu := _MMU.search(text)) is not None:
        unit = f"GPC {int(mmu[1])} L1 {int(mmu[2])}"
    else:
        return None
    return XidSite(unit, *parse_process(text))


def parse_process(text: str) -> tuple[str, str]:
    """PID and program in the message of an Xid; "" if the driver does not print them."""
    process = _PROCESS.search(text)
    pid, program = ("", "") if process is None else (process[1], process[2] or "")
    return "" if pid == _UNKNOWN else pid, "" if program == _UNKNOWN else program
