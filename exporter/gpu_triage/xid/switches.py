"""SXids: errors of NVSwitches, which the driver of the switches writes into the kernel log and nowhere else.

``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up``; details follow on lines of their
own with the same number (``Severity 1 Engine instance 30 …``, ``Data {0x…}``), which are no errors of their own. The
switches of NVLink 5 have no driver on the host: their errors are Xids 144 to 150 of the GPUs.

Source: NVIDIA's Fabric Manager User Guide, "NVSwitch SXid Errors".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpu_triage.kernel.pci_bus import normalise_bus_id

MARKER: Final = b"nvidia-nvswitch"
"""What a message of the switches' driver begins with."""

_SXID: Final = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\): (\d{1,6}), "
    r"(Fatal|Non-fatal)\b"
)


@dataclass(frozen=True, slots=True)
class SwitchError:
    """One SXid.

    Attributes:
        switch: PCI bus id of the switch, as sysfs writes it.
        code: the SXid.
        fatal: whether the switch has to be reset.
        at: monotonic second at which it happened.
    """

    switch: str
    code: int
    fatal: bool
    at: float


class LoggedSxid(NamedTuple):
    """What a message says; attributes as those of SwitchError."""

    switch: str
    code: int
    fatal: bool


def parse_sxid(text: str) -> LoggedSxid | None:
    """The SXid in a message of the switches' driver; None for its details, and for any other message."""
    match = _SXID.match(text)
    if match is None:
        return None
    return LoggedSxid(normalise_bus_id(match[1]), int(match[2]), match[3] == "Fatal")
