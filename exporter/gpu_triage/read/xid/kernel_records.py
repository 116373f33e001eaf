r"""Read the kernel log without blocking.

A record of ``/dev/kmsg`` is ``priority,sequence,microseconds since boot,flags[,…];text``, with control and non-ASCII
bytes of the text as ``\xNN``, followed by lines that start with a space
(https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg). After open, reading starts at the oldest record that
the kernel still holds, so messages from before this process started are included.
"""

import os
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.files import failure

ROUND_BYTES: Final = 1 << 20
"""Maximum bytes read per round; if the kernel logs more than this, the rest waits for later rounds."""

_CHUNK_BYTES: Final = 1 << 16
_LONGEST_RECORD_BYTES: Final = 1 << 13
"""At least the kernel's own limit (PRINTK_MESSAGE_MAX)."""

_RECORD: Final = re.compile(rb"([0-9]{1,4}),([0-9]{1,19}),([0-9]{1,19}),[^;]*;(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\x([0-9a-f]{2})")


class KernelRecord(NamedTuple):
    """A record of the kernel log, at a second of the monotonic clock; its first line is still escaped."""

    sequence: int
    at: float
    from_kernel: bool  # whether the kernel itself logged it: privileged processes can write to the log, too
    text: str

    @property
    def message(self) -> str:
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), self.text)


class KernelLog:
    """Reads ``/dev/kmsg``, or a file in its format, from the start; `drained` if the last round reached the end.

    `lost` is the number of records that were overwritten before they could be read, since the first one read.

    printk's clock and the monotonic clock both start at boot and stop during suspend, but printk's is not
    NTP-disciplined: over months it drifts by minutes. A record that appeared since the log was last drained must be
    newer than that, and no record is in the future: this bounds the offset. Until then, including for all records found
    at startup, the offset is taken as 0.
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
        self._ahead_seconds = 0.0
        self._drained_at: float | None = None

    def read(self, now: float) -> list[KernelRecord]:
        """Return the kernel's own records since the last call, as of monotonic second `now`; never blocks.

        What processes wrote into the log is left out. After ROUND_BYTES, the rest is left to the next call.
        After HostReadFailed (``missing``, ``no_permission``, ``io_error``), the next call reopens the log and goes on.
        """
        self.drained = False
        before = self._last_sequence, self.lost
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._close = weakref.finalize(self, os.close, self._file)
            records = [
                record
                for chunk in self._chunks(self._file)
                for line in self._lines(chunk)
                if (record := _record(line)) is not None and self._is_next(record)
            ]
        except OSError as error:
            self._last_sequence, self.lost = before
            self.close()
            raise failure(self._path, error) from error
        if records and self._drained_at is not None:
            self._ahead_seconds = max(self._ahead_seconds, self._drained_at - records[0].at)
        if records:
            self._ahead_seconds = min(self._ahead_seconds, now - records[-1].at)
        self._drained_at = now if self.drained else None
        ahead = self._ahead_seconds
        return [record._replace(at=min(record.at + ahead, now)) for record in records if record.from_kernel]

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

    def _chunks(self, file: int) -> Iterator[bytes]:
        """Yield the result of each read; reads of the device return one whole record."""
        size = 0
        while size < ROUND_BYTES:
            try:
                chunk = self._read(file, _CHUNK_BYTES)
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


def _record(line: bytes) -> KernelRecord | None:
    match = _RECORD.match(line[:_LONGEST_RECORD_BYTES])
    if match is None:
        return None
    priority, sequence, microseconds = map(int, match.groups()[:3])
    return KernelRecord(sequence, microseconds / 1e6, priority >> 3 == 0, match[4].decode("ascii", "replace"))
