"""Events in kernel log messages: Xids, driver failures, PCIe errors, host problems."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.device_messages import (
    PcieError,
    parse_device_message,
    parse_device_over,
    parse_failing_gpu,
    parse_pcie_error,
)
from gpu_triage.read.host.driver_messages import parse_driver_message
from gpu_triage.read.host.kernel_messages import ProblemKind, parse_host_message, parse_trouble_over
from gpu_triage.read.xid.events import is_driver_loaded, parse_found, parse_xid

TOLD: Final = (
    "Xids with their cause, SXids, why the driver or a GPU could not be started (versions, another driver, GSP, BAR, "
    "lost before the start), GSP timeouts, PCIe errors (AER, DPC) of every Linux version, killed and hung processes, "
    "lockups, hardware and memory errors, NVMe and filesystems, file servers, mlx5 links, cables and power, "
    "nvidia-peermem"
)
"""The recognized events, for the documentation."""

_ADDRESS: Final = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_SXID: Final = re.compile(
    rf"nvidia-nvswitch\d*: SXid \(PCI:{_ADDRESS}\): (\d{{1,6}})(?:, (Fatal|Non-fatal))?", re.IGNORECASE
)
_NOUVEAU: Final = re.compile(rf"nouveau {_ADDRESS}: ")
_CAUSE: Final = re.compile(r" caused by previous Xid (\d{1,5})$")


class EventKind(Enum):
    """The type of an event."""

    XID = "xid"
    XID_CAUSE = "xid_cause"
    SXID = "sxid"
    DRIVER = "driver"
    NOUVEAU = "nouveau"
    AER = "aer"
    AER_RECEIVED = "aer_received"
    OUT_OF_MEMORY = "out_of_memory"
    HOST = "host"
    HOST_OVER = "host_over"
    OFF_THE_BUS = "off_the_bus"
    LOADED = "loaded"
    FOUND = "found"


class EventKey(NamedTuple):
    """The key under which events are grouped.

    Attributes:
        kind: type of the event.
        address: bus id of the GPU, or of the device that reported the error; for host problems, the affected process,
            device or server; "" if unknown.
        code: the kind of driver or host problem; the Xid or SXid as text ("" for a GPU that fell off the bus without
            one); the Xid named as the cause of another; a PCIe error severity; or "".
        fatal: as XidReport; None for everything else.
    """

    kind: EventKind
    address: str = ""
    code: str = ""
    fatal: bool | None = None


class ParsedEvent(NamedTuple):
    """An event parsed from a message; `port` as in LogSection.ports, `gpu` as in LogSection.gpus, "" if none."""

    what: EventKey
    port: str = ""
    gpu: str = ""


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    return normalize_bus_id(text if "." in text else f"{text}.0")


@lru_cache(maxsize=1024)
def read_message(text: str) -> tuple[ParsedEvent, ...]:
    """Parse the events in a kernel message. Cached, because the same messages come in floods."""
    return tuple(_found_in(text))


def _found_in(text: str) -> Iterator[ParsedEvent]:
    if (failure := parse_driver_message(text)) is not None:
        # Messages identify a GPU by its bus address or by its driver index, never by both.
        gpu = failure.address or (failure.subject if failure.number else "")
        yield ParsedEvent(EventKey(EventKind.DRIVER, gpu, failure.trouble.value), gpu=failure.address)
    elif text.startswith("NVRM: "):
        yield from _read_driver(text)
    elif (sxid := _SXID.match(text)) is not None:
        fatal = None if sxid[3] is None else sxid[3].lower() == "fatal"
        yield ParsedEvent(EventKey(EventKind.SXID, _address(sxid[1]), sxid[2], fatal))
    elif (nouveau := _NOUVEAU.match(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.NOUVEAU, _address(nouveau[1])), gpu=_address(nouveau[1]))
    elif (address := parse_found(text)) is not None or (address := parse_failing_gpu(text)) is not None:
        yield ParsedEvent(EventKey(EventKind.FOUND, address), gpu=address)
    elif (error := parse_pcie_error(text)) is not None:
        yield _of_pcie_error(error)
    else:
        yield from _of_host(text)


def _of_pcie_error(error: PcieError) -> ParsedEvent:
    kind = EventKind.AER_RECEIVED if error.port else EventKind.AER
    return ParsedEvent(
        EventKey(kind, error.address, error.severity), error.port, error.address if error.driver == "nvidia" else ""
    )


def _of_host(text: str) -> Iterator[ParsedEvent]:
    said = parse_host_message(text) or parse_device_message(text)
    over = parse_trouble_over(text) or parse_device_over(text)
    if said is not None and said.trouble is ProblemKind.OOM_KILL:
        yield ParsedEvent(EventKey(EventKind.OUT_OF_MEMORY, "", said.subject))
    elif said is not None:
        yield ParsedEvent(EventKey(EventKind.HOST, said.subject, said.trouble.value))
    elif over is not None:
        yield ParsedEvent(EventKey(EventKind.HOST_OVER, over.subject, over.trouble.value))


def _read_driver(text: str) -> Iterator[ParsedEvent]:
    if (xid := parse_xid(text)) is not None:
        yield ParsedEvent(
            EventKey(EventKind.XID, xid.gpu, "" if xid.code is None else str(xid.code), xid.fatal), gpu=xid.gpu
        )
        if cause := cause_of(text):
            yield ParsedEvent(EventKey(EventKind.XID_CAUSE, xid.gpu, cause))
    elif is_driver_loaded(text):
        yield ParsedEvent(EventKey(EventKind.LOADED))
    elif text.startswith("NVRM: GPU has fallen off the bus"):
        yield ParsedEvent(EventKey(EventKind.OFF_THE_BUS))


def cause_of(text: str) -> str:
    """The Xid that another Xid's message names as its cause; "" if none."""
    cause = _CAUSE.search(text)
    return "" if cause is None else cause[1]
