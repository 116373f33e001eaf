"""Splits a kernel log line, in any common form, into its prefix and message.

Lines that name a sender other than the kernel are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gpu_triage.cli.offline.times import date_time, written
from gpu_triage.read.host import device_messages, driver_messages, kernel_messages

_LONGEST_TEXT: Final = 400
FORMS: Final = (
    "`dmesg` (also `-T`, `-H`, `-x`, `--time-format iso`, in any language), `journalctl -k` (also `-o json`, "
    "`-o short-iso`, `-o verbose`), `kern.log`, `messages`, `/dev/kmsg`, `talosctl dmesg`, RFC 5424, JSON of Vector "
    "and other shippers"
)
"""The log formats that `said_by_kernel` parses, for the documentation."""
MARKERS: Final = (
    *("SXid", "nouveau", '"MESSAGE":[', '"MESSAGE": ['),
    *driver_messages.MARKERS,
    *device_messages.MARKERS,
    *kernel_messages.MARKERS,
    *kernel_messages.OVER_MARKERS,
)
"""Substrings to search for; a line without any of them contains no known event."""

_MESSAGE: Final = re.compile(rf"{driver_messages.BEGINNINGS}|{device_messages.BEGINNINGS}|{kernel_messages.BEGINNINGS}")
_LONGEST_PREFIX: Final = 240
_CLOCKS: Final = re.compile(r"(?:\[ *[\d.+TC]{1,24}\]\s*)+$")
_SECONDS_ALONE: Final = re.compile(r"\[ *\d{1,12}\.\d{1,9}\] ")
_LATEST: Final = 1e10  # Unix seconds
_RECORD: Final = re.compile(r"(\d{1,4}),\d{1,19},\d{1,19},[^;]{0,80};$")
_WRITER: Final = re.compile(r"([\w./@-]{1,64})(?:\[\d+\])?:$")
_DECODED: Final = re.compile(r"(?:^|\s)kern\s*:\s*[a-z]+\s*:$")
_TALOS: Final = re.compile(r"(?:^|\s)kern:\s+[a-z]+:\s+\[[\d:.TZ+-]{20,40}\]:$")
_OF_PROCESS: Final = re.compile(r"(?:^|\s)(?!kern\b)[a-z]\w{1,9}:\s+[a-z]+:\s+\[[\d:.TZ+-]{20,40}\]: ")
"""Log prefix of Talos' own processes."""
_RFC_5424: Final = re.compile(
    r"(?:<(\d{1,3})>)?(?:1 )?\S{1,40} \S{1,255} kernel \S{1,128} \S{1,32} (?:-|\[.{1,160}\])(?: ?\ufeff)?$"
)
_JSON_KEY: Final = re.compile(r'^\s*"(?:MESSAGE|message)" ?: ?"$')
_STAMP: Final = re.compile(r"\d:\d{2}[\d:.,+Z-]*$")
_KERNELS: Final = frozenset({"kernel", "kern", "messages", "syslog", "dmesg"})
_NEWLINE: Final = "#012"
"""How rsyslog escapes a newline in a message."""

_JSON_TEXTS: Final = ("MESSAGE", "message")
_JSON_WRITERS: Final = ("SYSLOG_IDENTIFIER", "appname", "_TRANSPORT")
_JSON_SECONDS: Final = (("__REALTIME_TIMESTAMP", 1e6), ("_SOURCE_REALTIME_TIMESTAMP", 1e6))


class KernelMessage(NamedTuple):
    """A kernel message, and the text before it with its timestamp; escaped newlines are decoded."""

    prefix: str
    text: str


def said_by_kernel(line: str) -> KernelMessage | None:
    """The kernel message in a line; None if it contains no known one or has a different sender."""
    if line.startswith("{") and '"' in line:
        return _of_json(line)
    found = _MESSAGE.search(line)
    if found is None:
        return None
    prefix = line[max(0, found.start() - _LONGEST_PREFIX) : found.start()]
    if not _is_kernels(prefix):
        return None
    text = line[found.start() : found.start() + _LONGEST_TEXT]
    return KernelMessage(prefix, text.replace(_NEWLINE, "\n") if _NEWLINE in text else text)


def _is_kernels(prefix: str) -> bool:
    """Whether the text before a message names the kernel as the sender, or names no sender."""
    if _SECONDS_ALONE.fullmatch(prefix) is not None:
        return True
    bare = _CLOCKS.sub("", prefix).strip()
    if not bare:
        return True
    if bare.endswith(";"):
        record = _RECORD.search(bare)
        return record is None or int(record[1]) >> 3 == 0
    if bare.endswith(":"):
        writer = _WRITER.search(bare)
        name = "" if writer is None else writer[1].rpartition("/")[2]
        # grep prefixes the file name or line number; dmesg --decode prefixes the facility and level.
        is_file = name.isdigit() or ".log" in name
        return name in _KERNELS or is_file or any(form.search(bare) for form in (_DECODED, _TALOS))
    if (fields := _RFC_5424.match(bare)) is not None:
        return int(fields[1] or 0) >> 3 == 0
    is_end = bare.endswith(("]", ">", "MESSAGE=")) or _STAMP.search(bare) is not None or _JSON_KEY.match(prefix)
    return bool(is_end) and _OF_PROCESS.search(bare) is None


def _of_json(line: str) -> KernelMessage | None:
    """Parse a record of ``journalctl -o json`` or of a shipper such as Vector, which may wrap a whole syslog line."""
    try:
        record = json.loads(line)
        text = next((_text(record[key]) for key in _JSON_TEXTS if key in record), None)
        writers = {record[key] for key in _JSON_WRITERS if key in record} - {"syslog", "journal"}
        prefix = _json_time(record)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, OverflowError):
        return None
    if not text or not writers <= {"kernel"}:
        return None
    if _MESSAGE.match(text):
        return KernelMessage(prefix, text[:_LONGEST_TEXT])
    said = None if writers or text.startswith("{") else said_by_kernel(text)
    return None if said is None else KernelMessage(said.prefix or prefix, said.text)


def _text(value: object) -> str | None:
    """The text of a field; journalctl encodes unusual characters as an array of byte values."""
    if isinstance(value, list):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _json_time(record: Mapping[str, object]) -> str:
    for key, unit in _JSON_SECONDS:
        stamp = int(str(record.get(key, 0))) / unit
        if 0 < stamp < _LATEST:
            return f"{written(stamp)} "
    stamp_text = str(record.get("timestamp", ""))[:40]
    return "" if date_time(stamp_text) is None else f"{stamp_text} "
