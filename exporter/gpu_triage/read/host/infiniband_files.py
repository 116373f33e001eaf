"""Read sysfs attributes of InfiniBand and RoCE ports, one per file.

Sources: https://docs.kernel.org/admin-guide/abi-stable.html (``state``, ``rate``, ``phys_state``, ``counters``) and
drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from gpu_triage.driver.kernel.files import REJECTED, parse_count, parsing, read_text
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.errors import HostReadFailed

T = TypeVar("T")

_NO_ANSWER: Final = (1 << 64) - 1
"""Value read from a device that fell off the bus."""

_LONGEST_BYTES: Final = 4096
_REST_SECONDS: Final = 3600.0
_BYTES_PER_SECOND_PER_GIGABIT: Final = 1_000_000_000 / 8
_STATE: Final = re.compile(r"([0-9])(?::.*)?")
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")


class PortFiles:
    """Reads port attributes; a file rejected by the device is not read again for an hour.

    For most of these files the kernel sends a command to the adapter's firmware. If the firmware rejects it (the
    ConnectX-7 of a B200 or B300 baseboard, managed by the fabric manager), the read fails with EINVAL, and the driver
    logs an error each time. `now` is the monotonic second of the round.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._rest_until: dict[Path, float] = {}

    def attribute(
        self, inquiry: HostInquiry, path: Path, parser: Callable[[str], T], *, decides: bool = False
    ) -> T | None:
        """Parse an attribute; None if it is absent, suspended after a rejection, or unreadable.

        The kernel returns an attribute in one read, so text without a final newline is complete; some have none. If the
        file `decides`, a rejection also suspends all files in the same folder.
        """
        if self._rests(path):
            return None

        def read() -> T | None:
            try:
                text = read_text(path, limit=_LONGEST_BYTES, may_reject=True)
            except HostReadFailed as failed:
                if failed.reason != REJECTED:
                    raise
                self._rest_until[path.parent if decides else path] = self.now + _REST_SECONDS
                return None
            if text is None:
                return None
            with parsing(path):
                return parser(text)

        return inquiry.ask(read)

    def _rests(self, path: Path) -> bool:
        for each in (path, path.parent):
            until = self._rest_until.get(each)
            if until is not None and self.now < until:
                return True
            self._rest_until.pop(each, None)
        return False


def parse_state(text: str) -> int:
    """Parse the number of a port's state.

    >>> parse_state("4: ACTIVE")
    4

    Raises:
            ValueError: not a port state.
    """
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no state of a port")
    return int(match[1])


def parse_rate(text: str) -> float | None:
    """Parse a rate into bytes per second; None for ``N/A``.

    >>> parse_rate("400 Gb/sec (4X NDR)")
    50000000000.0

    Raises:
            ValueError: not a rate.
    """
    if text.strip() == "" or text.startswith("N/A"):
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no rate of a port")
    return float(match[1]) * _BYTES_PER_SECOND_PER_GIGABIT


def parse_words(text: str) -> int | None:
    """Parse a counter; None for ``N/A (no PMA)``, from an adapter without this counter.

    Raises:
        ValueError: not a count, or all bits set: the adapter does not answer.
    """
    words = None if text.startswith("N/A") else parse_count(text.strip())
    if words == _NO_ANSWER:
        raise ValueError("all bits are set: the adapter does not answer")
    return words
