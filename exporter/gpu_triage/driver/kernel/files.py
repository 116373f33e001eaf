"""Read procfs and sysfs files, and parse formats they share."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from gpu_triage.errors import HostReadFailed

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_LIMIT_BYTES = 1 << 20
"""Far above any file read here; /proc/stat of a 512-CPU host is about 60 KiB."""

_CHUNK_BYTES = 1 << 16
"""Buffer size per read; larger buffers make Python allocate and free memory through the kernel each time."""

MAX_CPUS = 8192
"""The kernel's own limit (NR_CPUS of CONFIG_MAXSMP)."""

_ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ESRCH,  # the process ended between open and read
        errno.ENODEV,  # the device left between open and read
        errno.ENXIO,
        errno.EOPNOTSUPP,  # PSI is built in but disabled
        errno.EINVAL,  # an attribute that does not apply now, such as the speed of a link that is down
    }
)
_NOT_A_FILE = "not_a_file"
_REASONS = {
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.EAGAIN: _NOT_A_FILE,  # a pipe or device without data; regular files never return this
}

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_COUNT_DIGITS = 20


REJECTED = "rejected"
"""Failure reason for EINVAL where it must be distinguished from an attribute that does not apply."""


def read_text(path: Path | str, limit: int = DEFAULT_LIMIT_BYTES, *, may_reject: bool = False) -> str | None:
    """Read a kernel file; bytes that are not UTF-8 become U+FFFD.

    None if the file does not exist, or the kernel returns an error that means "not applicable".

    Raises:
        HostReadFailed: ``no_permission``, ``too_large`` (over `limit` bytes), ``not_a_file`` (it is a pipe or device),
            ``io_error``, or ``rejected`` on EINVAL, if it `may_reject`.
    """
    try:
        # Path.open and file objects take longer than the kernel itself. O_NONBLOCK: if the path is a pipe, open would
        # otherwise block until there is a writer, and stall all further reads.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, min(limit + 1, _CHUNK_BYTES))
            # procfs returns about a page per call, so one read may not be the whole file.
            more = content
            while more and len(content) <= limit:
                more = os.read(descriptor, min(limit + 1 - len(content), _CHUNK_BYTES))
                content += more
            # Checked last: anything with content is a file, so most reads skip the fstat.
            if not content and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise HostReadFailed(_NOT_A_FILE, path, "is a pipe or a device, not a file")
        finally:
            os.close(descriptor)
    except OSError as error:
        if may_reject and error.errno == errno.EINVAL:
            raise HostReadFailed(REJECTED, path, error.strerror or str(error)) from error
        if error.errno in _ABSENT:
            return None
        raise _failure(path, error) from error
    if len(content) > limit:
        raise HostReadFailed("too_large", path, f"more than {limit} bytes")
    return content.decode("utf-8", errors="replace")


def text_of(path: Path | str) -> str:
    """Read a kernel file; "" if it cannot be read."""
    try:
        return read_text(path) or ""
    except HostReadFailed:
        return ""


def read_int(path: Path) -> int | None:
    """Read a kernel file that contains one integer; None if there is no such file.

    Raises:
        HostReadFailed: ``malformed`` if the content is not an integer, or as for `read_text`.
    """
    text = read_text(path, limit=4096)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text.strip(" \n")):
        raise HostReadFailed("malformed", path, f"{text[:40]!r} is no integer")
    return int(text)


def read_names(directory: Path | str) -> list[str] | None:
    """Sorted names in a directory; None if it does not exist.

    Raises:
        HostReadFailed: ``no_permission`` or ``io_error``.
    """
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - only names are needed, not Path objects
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _failure(directory, error) from error


def names_in(directory: Path | str) -> list[str]:
    """Sorted names in a kernel directory; empty if it cannot be read."""
    try:
        return read_names(directory) or []
    except HostReadFailed:
        return []


def read_link(path: Path | str) -> str | None:
    """Target of a symbolic link, unresolved; None if there is no such link.

    Raises:
        HostReadFailed: ``no_permission`` or ``io_error``.
    """
    try:
        return os.readlink(path)  # noqa: PTH115 - text is needed, not a Path
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _failure(path, error) from error


def is_present(path: Path) -> bool:
    """Whether the path exists; a symlink counts even if its target is missing or inaccessible."""
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def parse_count(text: str) -> int:
    """Parse a counter as printed by the kernel: decimal digits only.

    Raises:
        ValueError: anything else, including what `int` accepts (``1_000``, ``+1``, non-ASCII digits).
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS):
        raise ValueError(f"{text[:40]!r} is no count")
    return int(text)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse the kernel's CPU list format: ``0-31,64`` is CPUs 0 to 31 and 64; empty text is an empty set.

    Raises:
        ValueError: invalid syntax, a reversed range, or a CPU number of MAX_CPUS or more.
    """
    cpus: set[int] = set()
    stripped = text.strip()
    for part in stripped.split(",") if stripped else ():
        first_text, dash, last_text = part.partition("-")
        first = parse_count(first_text)
        last = parse_count(last_text) if dash else first
        if not first <= last < MAX_CPUS:
            raise ValueError(f"{part[:40]!r} is not a CPU range")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def _failure(path: Path | str, error: OSError) -> HostReadFailed:
    return HostReadFailed(_REASONS.get(error.errno or 0, "io_error"), path, error.strerror or str(error))
