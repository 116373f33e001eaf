"""A lock held by one process at a time: flock on a file, released by the kernel when the process exits."""

import errno
import fcntl
import logging
import os
import platform
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpu_triage.errors import LockTaken

log = logging.getLogger(__name__)

_HOLDER: Final = re.compile(r"([0-9]{1,10}) ([A-Za-z0-9_.:-]{1,80})\n")
_MOST_BYTES: Final = 100
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors from a filesystem without locks, such as an NFS mount without a lock manager on its server."""


class ProcessLock:
    """A thread-safe lock on a file. NFS may block calls; a filesystem without locks gives it to all, with a warning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """Acquire the lock; returns False if this process holds it already.

        If the file was deleted or replaced since, alone or with its directory, the lock is acquired again. Raises
        LockTaken if another process holds it, unless it is to `wait`; OSError if the file can't be opened or is a link.
        """
        with self._mutex:
            if self._descriptor is not None:
                if self._is_in_place(self._descriptor):
                    return False
                self._close()
            descriptor = self._open()
            try:
                self._lock(descriptor, wait=wait)
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
            return True

    def release(self) -> None:
        with self._mutex:
            self._close()

    def _open(self) -> int:
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(self._path, flags | os.O_RDWR | os.O_CREAT, 0o644)
        except PermissionError:
            # Created by an exporter running as another user. Read access is enough for a lock.
            return os.open(self._path, flags | os.O_RDONLY)

    def _lock(self, descriptor: int, *, wait: bool) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockTaken(_holder(descriptor)) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            fields = {"file": str(self._path), "cause": error.strerror}
            log.warning("no locks on this file system: use it for one exporter only", extra={"fields": fields})
        if not self._is_in_place(descriptor):
            raise LockTaken("another process has just replaced the lock file")
        # The holder is informational, for error messages and users; on a full disk it is just missing.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {platform.node()}\n".encode("ascii", "replace"), 0)

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.lstat())
        except OSError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> str:
    """The process named in the lock file; its content is untrusted."""
    found: re.Match[str] | None = None
    with suppress(OSError):
        found = _HOLDER.fullmatch(os.pread(descriptor, _MOST_BYTES, 0).decode("ascii", "replace"))
    return "another process has the lock" if found is None else f"its lock file names process {found[1]} on {found[2]}"
