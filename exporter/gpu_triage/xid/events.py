"""One source's word that a GPU had an Xid, and what the driver writes into the kernel log when one has.

The driver prints an Xid as ``NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, …``: older branches
without ``PCI:``, some with eight digits of domain or with the function, MIG with the instance after the address
(https://docs.nvidia.com/deploy/xid-errors/). Beside it, and sometimes instead of it, stands
``NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.``

An NVLink 5 Xid says after the name of the unit whether it is fatal:
``NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x…)``.

That another card may be in the slot from now on, the PCI core says, not the driver: whenever it finds a device, at
boot, after a hotplug or a rescan, it prints ``pci 0000:65:00.0: [10de:2330] type 00 class 0x030200 …``
(pci_setup_device, drivers/pci/probe.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpu_triage.kernel.pci_bus import normalise_bus_id
from gpu_triage.xid.codes import XID_CODES
from gpu_triage.xid.switches import SwitchError
from gpu_triage.xid.units import XidSite, parse_site

OFF_THE_BUS: Final = 79
"""The Xid of a GPU that fell off the bus."""

UNKNOWN: Final = 999
"""What NVML says for an Xid that it does not know (nvmlEventData_t, nvml.h); the kernel log has its code."""

NEVER_FROM_NVML: Final = (79, 119, 120)
"""Codes that NVML's events do not deliver, as NVIDIA says of its own monitor (github.com/NVIDIA/DCGM, issue 162)."""

_WITH_SITE: Final = frozenset({13, 31})
"""The Xids whose text may name a place on the chip."""

_ADDRESS: Final = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?"
_XID: Final = re.compile(rf"NVRM: Xid \({_ADDRESS}[^)]{{0,60}}\): ([0-9]{{1,5}})\b")
# After a process's name, which anybody may choose, the word needs more behind it than the 15 bytes of a name can hold.
_FATAL: Final = re.compile(
    r", (?:(?:[A-Za-z0-9_/]{1,64}) +(Fatal|Nonfatal)(?: |$)"
    r"|pid=[^,]{1,20}, name=[^,]{1,64}, [A-Za-z0-9_/]{1,64} +(Fatal|Nonfatal) +XC[0-9])"
)
# The driver's probe breaks its sentence over several lines, each with the prefix again.
_OFF_THE_BUS: Final = re.compile(
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}:?\s.{{0,200}}?fallen off the bus", re.DOTALL
)
_DRIVER_LOADED: Final = "NVRM: loading NVIDIA UNIX "
_FOUND: Final = re.compile(
    r"pci ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): \[10de:[0-9a-f]{4}\] type 00 class 0x03"
)


class XidSource(Enum):
    """Who reports Xids; the label `source` of gpu_exporter_xid_source_up."""

    KMSG = "kmsg"
    NVML = "nvml"


@dataclass(frozen=True, slots=True)
class XidReport:
    """One Xid as one source reports it.

    Attributes:
        gpu: PCI bus id as sysfs writes it (``0000:65:00.0``); the UUID where the driver gives no bus id.
        code: the Xid, or `UNKNOWN`; None where the source says only that the GPU fell off the bus.
        source: who says so.
        earliest: monotonic second before which it did not happen.
        latest: monotonic second by which it had happened; for a source without a clock, when it was heard.
        uuid: whose it is, where the source knows the card and not only its address.
        fatal: whether the text calls it fatal; None for a code whose text does not say, or a source without a text.
        site: where on the chip the text says that it came from; None where it does not say.
    """

    gpu: str
    code: int | None
    source: XidSource
    earliest: float
    latest: float
    uuid: str | None = None
    fatal: bool | None = None
    site: XidSite | None = None


class LoggedXid(NamedTuple):
    """What a message of the driver says; attributes as those of XidReport."""

    gpu: str
    code: int | None
    fatal: bool | None = None
    site: XidSite | None = None


@dataclass(frozen=True, slots=True)
class CardFound:
    """The kernel found a GPU on the bus: what it logged of this address before may be another card's.

    Attributes:
        gpu: PCI bus id as sysfs writes it.
        at: monotonic second.
    """

    gpu: str
    at: float


@dataclass(frozen=True, slots=True)
class DriverLoaded:
    """The NVIDIA kernel module was loaded: every GPU is initialised anew.

    Attributes:
        at: monotonic second.
    """

    at: float


KernelNews = XidReport | CardFound | DriverLoaded | SwitchError
"""What the kernel log tells of Xids, and of what ends them."""


def parse_found(text: str) -> str | None:
    """Bus id, as sysfs writes it, of the NVIDIA GPU that the PCI core says it found; None for any other message."""
    match = _FOUND.match(text)
    return None if match is None else normalise_bus_id(match[1])


def parse_xid(text: str) -> LoggedXid | None:
    """The Xid in a message of the driver; None for any other message."""
    match = _XID.match(text)
    if match is not None:
        code = int(match[3])
        site = parse_site(text) if code in _WITH_SITE else None
        return LoggedXid(_bus_id(match), code, _fatal(code, text, match.end()), site)
    match = _OFF_THE_BUS.match(text)
    return None if match is None else LoggedXid(_bus_id(match), None)


def is_driver_loaded(text: str) -> bool:
    """Whether this is what the NVIDIA kernel module prints when it is loaded."""
    return text.startswith(_DRIVER_LOADED)


def _fatal(code: int, text: str, after_code: int) -> bool | None:
    known = XID_CODES.get(code)
    if known is None or not known.fatal_in_text:
        return None
    word = _FATAL.match(text, after_code)
    return None if word is None else (word[1] or word[2]) == "Fatal"


def _bus_id(match: re.Match[str]) -> str:
    # An Xid concerns the GPU, which is function 0; its sound is function 1.
    return normalise_bus_id(match[1] + (match[2] or ".0"))
