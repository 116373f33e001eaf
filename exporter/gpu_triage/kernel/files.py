"""The one way to read a file of procfs or sysfs, and the notations such files share."""

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
"""Far above any file read here; a host of 512 CPUs has a /proc/stat of some 60 KiB."""

_CHUNK_BYTES = 1 << 16
"""The buffer of one call: larger ones Python gets from the kernel and gives back each time."""

MAX_CPUS = 8192
"""The kernel's own upper bound (NR_CPUS of CONFIG_MAXSMP)."""

_ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ESRCH,  # the process ended between open and read
        errno.ENODEV,  # the device left between open and read
        errno.ENXIO,
        errno.EOPNOTSUPP,  # PSI that is built in and switched off
        errno.EINVAL,  # an attribute that does not apply now, such as the speed of a link that is down
    }
)
_NOT_A_FILE = "not_a_file"
_REASONS = {
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.EAGAIN: _NOT_A_FILE,  # a pipe or a device that has nothing to read now: a file always answers
}

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_COUNT_DIGITS = 20


REJECTED = "rejected"
"""The reason for which a device answers EINVAL, where that is told apart from an attribute that does not apply."""


def read_text(path: Path | str, limit: int = DEFAULT_LIMIT_BYTES, *, may_reject: bool = False) -> str | None:
    """Content of a kernel file; bytes that are not UTF-8 become U+FFFD.

    None when there is no such file, or the kernel answers that it has nothing to say through it.

    Args:
        path: of the file.
        limit: of its size.
        may_reject: whether to raise ``rejected`` where the kernel answers EINVAL.

    Raises:
        HostReadFailed: ``no_permission``, ``too_large`` (over `limit` bytes), ``not_a_file`` (a pipe or a device stands
            in its place) or ``io_error``.
    """
    try:
        # Without Path.open and a file object, which take longer than the kernel does. Where a pipe stands in place of
        # the file, opening it would otherwise wait for a writer, and hold up all that is read after it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            content = os.read(descriptor, min(limit + 1, _CHUNK_BYTES))
            # procfs hands out a page or so a call, so one read is not the whole file.
            more = content
            while more and len(content) <= limit:
                more = os.read(descriptor, min(limit + 1 - len(content), _CHUNK_BYTES))
                content += more
            # Looked at only now: what has content is a file, and most have.
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
    """Content of a kernel file; "" where it cannot be read."""
    try:
        return read_text(path) or ""
    except HostReadFailed:
        return ""


def read_int(path: Path) -> int | None:
    """The one integer in a kernel file; None when there is no such file.

    Raises:
        HostReadFailed: ``malformed`` when it holds anything else, or as `read_text`.
    """
    text = read_text(path, limit=4096)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text.strip(" \n")):
        raise HostReadFailed("malformed", path, f"{text[:40]!r} is no integer")
    return int(text)


def read_names(directory: Path | str) -> list[str] | None:
    """Names in a directory, sorted; None when there is no such directory.

    Raises:
        HostReadFailed: ``no_permission`` or ``io_error``.
    """
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names only, not a Path of each
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _failure(directory, error) from error


def names_in(directory: Path | str) -> list[str]:
    """Names in a directory of the kernel, sorted; none where it cannot be read."""
    try:
        return read_names(directory) or []
    except HostReadFailed:
        return []


def read_link(path: Path | str) -> str | None:
    """Target of a symbolic link as written; None when there is no such link.

    Raises:
        HostReadFailed: ``no_permission`` or ``io_error``.
    """
    try:
        return os.readlink(path)  # noqa: PTH115 - text is wanted, not a Path of it
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _failure(path, error) from error


def is_present(path: Path) -> bool:
    """Whether the path exists; a link counts even if its target does not exist or may not be seen."""
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def parse_count(text: str) -> int:
    """A counter as the kernel prints it: decimal digits, nothing else.

    Raises:
        ValueError: anything else, also what `int` lets through (``1_000``, ``+1``, other scripts' digits).
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS):
        raise ValueError(f"{text[:40]!r} is no count")
    return int(text)


def parse_cpu_list(text: str) -> frozenset[int]:
    """CPU numbers of the kernel's list notation: ``0-31,64`` gives 0 to 31 and 64; an empty list gives none.

    Raises:
        ValueError: the text is no such list, a range runs backwards, or a CPU is MAX_CPUS or above.
    """
    cpus: set[int] = set()
    stripped = text.strip()
    for part in stripped.split(",") if stripped else ():
        first_text, dash, last_text = part.partition("-")
        first = parse_count(first_text)
        last = parse_count(last_text) if dash else first
        if not first <= last < MAX_CPUS:
            raise ValueError(f"{part[:40]!r} is no range of CPUs")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def _failure(path: Path | str, error: OSError) -> HostReadFailed:
    return HostReadFailed(_REASONS.get(error.errno or 0, "io_error"), path, error.strerror or str(error))
