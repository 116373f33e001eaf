"""One source's word that a GPU had an Xid, and what the driver writes into the kernel log when one has.

The driver prints an Xid as ``NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, …``: older branches
without ``PCI:``, some with eight digits of domain or with the function, MIG with the instance after the address
(https://docs.nvidia.com/deploy/xid-errors/). Beside it, and sometimes instead of it, stands
``NVRM: GPU 0000:65:00.0: GPU has fallen off the bus.``

That another card may be in the slot from now on, the PCI core says, not the driver: whenever it finds a device, at
boot, after a hotplug or a rescan, it prints ``pci 0000:65:00.0: [10de:2330] type 00 class 0x030200 …``
(pci_setup_device, drivers/pci/probe.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage.hardware.pci_bus import normalise_bus_id

OFF_THE_BUS: Final = 79
"""The Xid of a GPU that fell off the bus."""

APPLICATION_XIDS: Final = (13, 31, 32, 43, 45, 68, 69)
"""Xids that a program causes. One is nothing; several within minutes are told, by their number."""

_ADDRESS: Final = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(\.[0-7])?"
_XID: Final = re.compile(rf"NVRM: Xid \({_ADDRESS}[^)]{{0,60}}\): ([0-9]{{1,5}})\b")
# The driver's probe breaks its sentence over several lines, each with the prefix again.
_OFF_THE_BUS: Final = re.compile(
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}:?\s.{{0,200}}?fallen off the bus", re.DOTALL
)
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
        code: the Xid; None where the source says only that the GPU fell off the bus.
        source: who says so.
        earliest: monotonic second before which it did not happen.
        latest: monotonic second by which it had happened.
        wall: when it happened, Unix seconds; for a source without a clock, when it was heard.
        uuid: whose it is, where the source knows the card and not only its address.
    """

    gpu: str
    code: int | None
    source: XidSource
    earliest: float
    latest: float
    wall: float
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class CardFound:
    """The kernel found a GPU on the bus: what it logged of this address before may be another card's.

    Attributes:
        gpu: PCI bus id as sysfs writes it.
        at: monotonic second.
    """

    gpu: str
    at: float


def parse_found(text: str) -> str | None:
    """Bus id, as sysfs writes it, of the NVIDIA GPU that the PCI core says it found; None for any other message."""
    match = _FOUND.match(text)
    return None if match is None else normalise_bus_id(match[1])


def parse_xid(text: str) -> tuple[str, int | None] | None:
    """Bus id as sysfs writes it and Xid of a message of the driver; None for any other message.

    The Xid is None for "has fallen off the bus" without a code.
    """
    match = _XID.match(text)
    if match is not None:
        return _bus_id(match), int(match[3])
    match = _OFF_THE_BUS.match(text)
    return None if match is None else (_bus_id(match), None)


def _bus_id(match: re.Match[str]) -> str:
    # An Xid concerns the GPU, which is function 0; its sound is function 1.
    return normalise_bus_id(match[1] + (match[2] or ".0"))
