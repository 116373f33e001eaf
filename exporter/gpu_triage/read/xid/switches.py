"""SXids: NVSwitch errors, which the switch driver only reports in the kernel log.

``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up``; details follow on separate lines
with the same number (``Severity 1 Engine instance 30 …``, ``Data {0x…}``) and are not counted. NVLink 5 switches have
no driver on the host: their errors are Xids 144 to 150 of the GPUs.
Source: NVIDIA's Fabric Manager User Guide, "NVSwitch SXid Errors".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id

MARKER: Final = b"nvidia-nvswitch"
"""Prefix of the switch driver's messages."""

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


class LoggedSxid(NamedTuple):
    """An SXid parsed from a message."""

    switch: str
    code: int
    fatal: bool


def parse_sxid(text: str) -> LoggedSxid | None:
    """Parse the SXid in a switch driver's message; None for its detail lines, and for any other message."""
    match = _SXID.match(text)
    if match is None:
        return None
    return LoggedSxid(normalize_bus_id(match[1]), int(match[2]), match[3] == "Fatal")
