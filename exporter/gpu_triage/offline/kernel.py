"""What the kernel log says: Xids, SXids, GPUs that cannot be initialised, PCIe errors, and trouble of the host.

Only the kernel's own words count: of a line that names who wrote it, that must be the kernel.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from gpu_triage.host import kernel_messages
from gpu_triage.host.kernel_messages import Trouble, parse_host_message, parse_trouble_over
from gpu_triage.kernel.pci_bus import normalise_bus_id
from gpu_triage.offline.times import NO_TIME, LogTime, log_time, written
from gpu_triage.xid.events import is_driver_loaded, parse_found, parse_xid

_KEPT: Final = 256  # events of one kind, GPU and code that are kept; further ones are counted
_MOST_TALLIES: Final = 4096
_TAIL: Final = 40  # lines looked through for the last one with a time
_LONGEST_TEXT: Final = 400

_ADDRESS: Final = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
MARKERS: Final = (
    *("NVRM:", "SXid", "PCIe Bus Error", "AER:", "nouveau", ": [10de:"),
    *kernel_messages.MARKERS,
    *kernel_messages.OVER_MARKERS,
)
_MESSAGE: Final = re.compile(
    rf"NVRM: |nvidia-nvswitch\d*: |nouveau {_ADDRESS}|pci {_ADDRESS}: \[10de:|(?:pcieport|nvidia) {_ADDRESS}: |"
    rf"{kernel_messages.BEGINNINGS}"
)
_CLOCKS: Final = re.compile(r"(?:\[ *[\d.+TC]{1,24}\]\s*)+$")
_SECONDS_ALONE: Final = re.compile(r"\[ *\d{1,12}\.\d{1,9}\] ")
_LATEST: Final = 1e10  # Unix seconds
_RECORD: Final = re.compile(r"(\d{1,4}),\d{1,19},\d{1,19},[^;]{0,80};$")
_WRITER: Final = re.compile(r"([\w./@-]{1,64})(?:\[\d+\])?:$")
_DECODED: Final = re.compile(r"(?:^|\s)kern\s*:\s*[a-z]+\s*:$")
_STAMP: Final = re.compile(r"\d:\d{2}[\d:.,+Z-]*$")
_KERNEL_LINE: Final = re.compile(
    r"(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{6}\](?!\s*\((?:II|WW|EE|--|==|\*\*|\+\+)\))"
    r"|\[\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4}\] |.{0,80} kernel: |\d{1,3},\d+,\d+,[^;]{0,80};"
)
"""A line of the kernel's log, in its usual forms; that of X has three digits after the point."""
_ENOUGH_LINES: Final = 3
_KERNELS: Final = frozenset({"kernel", "kern", "messages", "syslog", "dmesg"})
_INIT_FAILED: Final = re.compile(rf"NVRM: (?:GPU {_ADDRESS}: )?RmInitAdapter failed! \(([0-9a-fx:]{{1,40}})\)")
_GSP: Final = re.compile(r"NVRM: .*(?:Cannot initialize GSP|GSP-RM.*fail|fail.*GSP|kgspInitRm|kgspBoot)", re.IGNORECASE)
_BAR: Final = re.compile(rf"NVRM: BAR(\d) is (\w{{1,12}}) @ 0x([0-9a-fA-F]{{1,16}}) \(PCI:{_ADDRESS}\)")
_CLIENT: Final = re.compile(r"NVRM: API mismatch: the client .{0,80}?(?:has the version|version) ([0-9.]{3,20})")
_MODULE: Final = re.compile(r"NVRM: (?:but )?this kernel module (?:has the version|version) ([0-9.]{3,20})")
_SXID: Final = re.compile(
    rf"nvidia-nvswitch\d*: SXid \(PCI:{_ADDRESS}\): (\d{{1,6}})(?:, (Fatal|Non-fatal))?", re.IGNORECASE
)
_AER: Final = re.compile(
    rf"(\w+) {_ADDRESS}: (?:AER: )?PCIe Bus Error: severity=(Corrected|Uncorrected)(?: \((\S+?)\))?"
)
_RECEIVED: Final = re.compile(rf"pcieport {_ADDRESS}: AER: .{{0,60}}(?:received|message from): {_ADDRESS}")
_NOUVEAU: Final = re.compile(rf"nouveau {_ADDRESS}: ")
_SEVERITIES: Final[Mapping[str, str]] = MappingProxyType({"Non-Fatal": "nonfatal", "Fatal": "fatal"})


class Kind(Enum):
    """What happened."""

    XID = "xid"
    SXID = "sxid"
    INIT_FAILED = "init_failed"
    GSP_FAILED = "gsp_failed"
    BAR = "bar"
    MISMATCH = "mismatch"
    NOUVEAU = "nouveau"
    NOT_PROBED = "not_probed"
    AER = "aer"
    OUT_OF_MEMORY = "out_of_memory"
    HOST = "host"
    HOST_OVER = "host_over"
    OFF_THE_BUS = "off_the_bus"
    LOADED = "loaded"
    FOUND = "found"


class What(NamedTuple):
    """What events have in common that are told as one.

    Attributes:
        kind: what happened.
        address: of the GPU, or of whoever reported it; of trouble of the host, its subject; "" where it is not said.
        code: the kind of trouble of the host, the Xid or SXid as text ("" for a GPU that fell off the bus without one),
            a severity, or "".
        fatal: as XidReport; None for all others.
    """

    kind: Kind
    address: str = ""
    code: str = ""
    fatal: bool | None = None


@dataclass(slots=True)
class Tally:
    """Events of one sort in one log.

    Attributes:
        count: how many there were.
        kept: the last of them: what stands before the message, with its time, and the message.
    """

    count: int = 0
    kept: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_KEPT))


class LogSection:
    """One log, line by line: a file, or a part of a bug report.

    Attributes:
        name: what it is, for people.
        tallies: what was found.
        ports: the port above a GPU, as PCIe errors name them.
        loads: when the driver was loaded, by its message: it finds the same moment in a log with the other clock.
        lines: how many of its lines were the kernel's and about a GPU.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.tallies: dict[What, Tally] = {}
        self.ports: dict[str, str] = {}
        self.loads: dict[str, LogTime] = {}
        self.lines = 0
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._minute = ""

    def pass_by(self, line: str) -> None:
        """Note a line that says nothing of GPUs: it may be the last one with a time."""
        self._tail.append(line)
        if line[0] == "[" and line[1:2].isalpha():
            self._minute = line[:20]

    def feed(self, line: str) -> bool:
        """Take in a line that has one of the MARKERS; returns whether it is one of the kernel's log."""
        self._tail.append(line)
        said = _message(line)
        if said is None:
            return False
        prefix, text = said
        self.lines += 1
        if prefix.startswith("[") and prefix[1:2].isalpha():
            self._minute = prefix
        elif "[  +" in prefix[:8] or "[ +" in prefix[:8]:
            # dmesg --human tells the minute once, and then how long after the line before.
            prefix = self._minute + prefix
        if text.startswith("NVRM: loading ") and len(self.loads) < _MOST_TALLIES:
            self.loads[text] = log_time(prefix)
        elif text.startswith("pcieport"):
            received = _RECEIVED.match(text)
            if received is not None and len(self.ports) < _MOST_TALLIES:
                self.ports[_address(received[2])] = _address(received[1])
        for what in _read(text):
            tally = self.tallies.get(what)
            if tally is None:
                if len(self.tallies) >= _MOST_TALLIES:
                    continue
                tally = self.tallies[what] = Tally()
            tally.count += 1
            # Of a flood most times are never asked for: they are read when they are.
            tally.kept.append((prefix, text))
        return True

    def clocks(self) -> LogTime | None:
        """Seconds since boot and the wall time of one line that tells both; None without one."""
        for tally in self.tallies.values():
            time = log_time(tally.kept[-1][0])
            if time.seconds is not None and time.wall is not None:
                return time
        return None

    def is_kernels(self) -> bool:
        """Whether this is a kernel log, be there a word of GPUs in it or not."""
        if self.lines:
            return True
        found = sum(1 for line in self._tail if _KERNEL_LINE.match(line) is not None)
        return found >= _ENOUGH_LINES and 2 * found > len(self._tail)

    def last_time(self) -> LogTime:
        """Of its last line that tells one."""
        for line in reversed(self._tail):
            time = log_time(line[:200])
            if time != NO_TIME:
                return time
        return NO_TIME


def _message(line: str) -> tuple[str, str] | None:
    """What stands before a message of the kernel, and the message; None where it was not the kernel that wrote it."""
    if line.startswith("{") and '"MESSAGE"' in line:
        return _of_json(line)
    found = _MESSAGE.search(line)
    if found is None:
        return None
    prefix = line[max(0, found.start() - 240) : found.start()]
    if not _is_kernels(prefix):
        return None
    return prefix, line[found.start() : found.start() + _LONGEST_TEXT]


def _is_kernels(prefix: str) -> bool:
    """Whether what stands before a message names the kernel as its writer, or nobody."""
    if _SECONDS_ALONE.fullmatch(prefix) is not None:
        return True
    bare = _CLOCKS.sub("", prefix).strip()
    if bare.endswith(";"):
        record = _RECORD.search(bare)
        return record is None or int(record[1]) >> 3 == 0
    if bare.endswith(":"):
        writer = _WRITER.search(bare)
        name = "" if writer is None else writer[1].rpartition("/")[2]
        # grep puts the file's name or the line's number there, and dmesg --decode the facility and the level.
        return name in _KERNELS or name.isdigit() or ".log" in name or _DECODED.search(bare) is not None
    return not bare or bare.endswith(("]", ">", "MESSAGE=")) or _STAMP.search(bare) is not None


def _of_json(line: str) -> tuple[str, str] | None:
    try:
        record = json.loads(line)
        if record.get("SYSLOG_IDENTIFIER", "kernel") != "kernel" or not isinstance(record["MESSAGE"], str):
            return None
        stamp = int(record.get("__REALTIME_TIMESTAMP", 0)) / 1e6
        prefix = f"{written(stamp)} " if 0 < stamp < _LATEST else ""
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError):
        return None
    text = record["MESSAGE"]
    return (prefix, text[:_LONGEST_TEXT]) if _MESSAGE.match(text) else None


@lru_cache(maxsize=1024)
def _address(text: str) -> str:
    return normalise_bus_id(text if "." in text else f"{text}.0")


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[What, ...]:
    """What a message of the kernel says happened. The same ones come in floods."""
    return tuple(_found_in(text))


def _found_in(text: str) -> Iterator[What]:
    if text.startswith("NVRM: "):
        yield from _read_driver(text)
    elif (sxid := _SXID.match(text)) is not None:
        yield What(Kind.SXID, _address(sxid[1]), sxid[2], None if sxid[3] is None else sxid[3].lower() == "fatal")
    elif (nouveau := _NOUVEAU.match(text)) is not None:
        yield What(Kind.NOUVEAU, _address(nouveau[1]))
    elif (address := parse_found(text)) is not None:
        yield What(Kind.FOUND, address)
    elif (error := _AER.match(text)) is not None:
        severity = "correctable" if error[3] == "Corrected" else _SEVERITIES.get(error[4] or "", "nonfatal")
        yield What(Kind.AER, _address(error[2]), severity)
    elif (said := parse_host_message(text)) is not None:
        if said.trouble is Trouble.OOM_KILL:
            yield What(Kind.OUT_OF_MEMORY, "", said.subject)
        else:
            yield What(Kind.HOST, said.subject, said.trouble.value)
    elif (over := parse_trouble_over(text)) is not None:
        yield What(Kind.HOST_OVER, over.subject, over.trouble.value)


def _read_driver(text: str) -> Iterator[What]:
    if (xid := parse_xid(text)) is not None:
        yield What(Kind.XID, xid.gpu, "" if xid.code is None else str(xid.code), xid.fatal)
    elif (failed := _INIT_FAILED.match(text)) is not None:
        yield What(Kind.INIT_FAILED, "" if failed[1] is None else _address(failed[1]), failed[2])
    elif (bar := _BAR.match(text)) is not None:
        yield What(Kind.BAR, _address(bar[4]), f"BAR{bar[1]} is {bar[2]} at 0x{bar[3]}")
    elif (client := _CLIENT.match(text)) is not None:
        yield What(Kind.MISMATCH, "", f"client {client[1].rstrip('.')}")
    elif (module := _MODULE.match(text)) is not None:
        yield What(Kind.MISMATCH, "", f"kernel module {module[1].rstrip('.')}")
    elif (kind := _plain(text)) is not None:
        yield What(kind)


def _plain(text: str) -> Kind | None:
    """What a message of the driver says of no GPU in particular."""
    if "NVIDIA probe routine was not called" in text:
        return Kind.NOT_PROBED
    if is_driver_loaded(text):
        return Kind.LOADED
    if text.startswith("NVRM: GPU has fallen off the bus"):
        return Kind.OFF_THE_BUS
    return Kind.GSP_FAILED if "gsp" in text.lower() and _GSP.match(text) is not None else None
