r"""Read the kernel log without blocking, and extract Xids.

A record of ``/dev/kmsg`` is ``priority,sequence,microseconds since boot,flags[,…];text``, with control and non-ASCII
bytes of the text as ``\xNN``, followed by lines that start with a space
(https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg). After open, reading starts at the oldest record that
the kernel still holds, so messages from before this process started are included.
"""

import errno
import os
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.xid.xid_events import (
    MARKER,
    NO_ACTION,
    CardFound,
    DriverLoaded,
    KernelNews,
    is_driver_loaded,
    parse_found,
    parse_sxid,
    parse_xid,
    recovery_action,
)

ROUND_BYTES: Final = 1 << 20
"""Maximum bytes read per round; if the kernel logs more than this, the rest waits for later rounds."""

_CHUNK_BYTES: Final = 1 << 16
_LONGEST_RECORD_BYTES: Final = 1 << 13
"""At least the kernel's own limit (PRINTK_MESSAGE_MAX)."""

_RECORD: Final = re.compile(rb"([0-9]{1,4}),([0-9]{1,19}),([0-9]{1,19}),[^;]*;(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\x([0-9a-f]{2})")
_REASONS: Final = {
    errno.ENOENT: "missing",
    errno.ENXIO: "missing",
    errno.ENODEV: "missing",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
}


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A record of the kernel log, in seconds since boot by printk's clock; its first line is still escaped."""

    sequence: int
    seconds: float
    from_kernel: bool
    text: bytes

    @property
    def message(self) -> str:
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), self.text.decode("ascii", "replace"))


class KernelLog:
    """Reads ``/dev/kmsg``, or a file in its format, from the start; `drained` if the last round reached the end.

    `lost` is the number of records that were overwritten before they could be read, since the first one read.
    """

    def __init__(self, path: Path, read: Callable[[int, int], bytes] = os.read) -> None:
        self.drained = False
        self.lost = 0
        self._path = path
        self._read = read
        self._file: int | None = None
        self._close: Callable[[], object] = lambda: None
        self._partial = b""
        self._skipping = False
        self._overrun = False
        self._last_sequence = -1
        self._skip_to = -1

    def read(self) -> list[KernelRecord]:
        """Return the records since the last call, up to ROUND_BYTES; never blocks.

        After HostReadFailed (``missing``, ``no_permission``, ``io_error``), the next call reopens the log and goes on.
        """
        self.drained = False
        before = self._last_sequence, self.lost
        try:
            if self._file is None:
                self._open()
            return [
                record
                for chunk in self._chunks()
                for line in self._lines(chunk)
                if (record := _record(line)) is not None and self._is_next(record)
            ]
        except OSError as error:
            self._last_sequence, self.lost = before
            self.close()
            raise HostReadFailed(
                _REASONS.get(error.errno or 0, "io_error"), self._path, error.strerror or str(error)
            ) from error

    def close(self) -> None:
        """Close the log; the next read reopens it and continues after the last record."""
        self._close()
        self._file, self._partial, self._skipping = None, b"", False
        self._skip_to = self._last_sequence
        # Records may be overwritten before it is reopened.
        self._overrun = True

    def _is_next(self, record: KernelRecord) -> bool:
        """Whether a record is new; counts the records lost before it."""
        if record.sequence <= self._skip_to:
            return False
        if self._overrun and self._last_sequence >= 0:
            self.lost += max(0, record.sequence - self._last_sequence - 1)
        self._overrun, self._last_sequence = False, record.sequence
        return True

    def _open(self) -> None:
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file = file
        self._close = weakref.finalize(self, os.close, file)

    def _chunks(self) -> Iterator[bytes]:
        """Yield the result of each read; reads of the device return one whole record."""
        assert self._file is not None  # noqa: S101 - read() opened it
        size = 0
        while size < ROUND_BYTES:
            try:
                chunk = self._read(self._file, _CHUNK_BYTES)
            except BlockingIOError:
                self.drained = True
                return
            except BrokenPipeError:
                # Unread records were overwritten; the next read returns the oldest one left.
                self._overrun = True
                size += _LONGEST_RECORD_BYTES
                continue
            if not chunk:
                self.drained = True
                return
            size += len(chunk)
            yield chunk

    def _lines(self, chunk: bytes) -> list[bytes]:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if self._skipping or len(self._partial) > _LONGEST_RECORD_BYTES:
            self._partial, self._skipping = b"", True
        return lines


class KernelClock:
    """Maps printk timestamps to the monotonic clock.

    Both start at boot and stop during suspend, but printk's clock is not NTP-disciplined: over months it drifts by
    minutes. A record that appeared since the log was last drained must be newer than that, and no record is in the
    future: this bounds the offset. Until then, including for all records found at startup, the offset is taken as 0.
    """

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        self._drained_at: float | None = None

    def learn(self, records: list[KernelRecord], now: float, *, drained: bool) -> None:
        """Update the offset from one round's records, read at monotonic second `now`."""
        if records and self._drained_at is not None:
            self._ahead_seconds = max(self._ahead_seconds, self._drained_at - records[0].seconds)
        if records:
            self._ahead_seconds = min(self._ahead_seconds, now - records[-1].seconds)
        self._drained_at = now if drained else None

    def monotonic(self, record: KernelRecord) -> float:
        return record.seconds + self._ahead_seconds


class KernelXids:
    """Xids and SXids in the kernel's own records of its log, GPUs found by the PCI core, and driver loads."""

    def __init__(self, log: KernelLog) -> None:
        self.log = log
        self._clock = KernelClock()

    def read(self, now: float) -> tuple[KernelNews, ...]:
        """Return the events since the last call, in order; `now` in monotonic seconds."""
        records = self.log.read()
        self._clock.learn(records, now, drained=self.log.drained)
        return tuple(news for record in records if record.from_kernel and (news := self._news(record, now)))

    def _news(self, record: KernelRecord, now: float) -> KernelNews | None:
        if not record.text.startswith((b"NVRM: ", b"pci ", MARKER)):
            return None
        text = record.message
        at = min(self._clock.monotonic(record), now)
        if (found := parse_sxid(text, at) or parse_xid(text, at)) is not None:
            # An Xid 154 with the action None ends one before it, and is not an error.
            return None if recovery_action(text) == NO_ACTION else found
        if is_driver_loaded(text):
            return DriverLoaded(at)
        address = parse_found(text)
        return None if address is None else CardFound(address, at)


def _record(line: bytes) -> KernelRecord | None:
    match = _RECORD.match(line[:_LONGEST_RECORD_BYTES])
    if match is None:
        return None
    priority, sequence, microseconds, text = match.groups()
    return KernelRecord(int(sequence), int(microseconds) / 1e6, int(priority) >> 3 == 0, text)
