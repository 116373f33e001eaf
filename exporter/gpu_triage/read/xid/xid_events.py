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
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.read.xid.xid_units import XidSite, parse_site

OFF_THE_BUS: Final = 79  # the Xid of a GPU that fell off the bus
UNKNOWN: Final = 999
"""NVML's code for an Xid that it does not know (nvmlEventData_t, nvml.h); the kernel log has the actual code."""

NEVER_FROM_NVML: Final = (79, 119, 120)
"""Codes NVML's events do not deliver, according to NVIDIA about DCGM (github.com/NVIDIA/DCGM, issue 162)."""

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


MARKER: Final = b"nvidia-nvswitch"  # prefix of the switch driver's messages

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


def parse_sxid(text: str, at: float = 0.0) -> SwitchError | None:
    """Parse the SXid in a switch driver's message; None for its detail lines, and for any other message."""
    match = _SXID.match(text)
    return None if match is None else SwitchError(normalize_bus_id(match[1]), int(match[2]), match[3] == "Fatal", at)
