"""Runs a command under a unit's filter of system calls, as systemd would, without systemd.

Usage: ``python -m tests.privilege.seccomp UNIT COMMAND…``
"""

import ctypes
import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_ALLOW = 0x7FFF0000
_FAIL_WITH_EPERM = 0x00050000 | errno.EPERM
_PR_SET_MDWE, _REFUSE_EXEC_GAIN = 65, 1
_UNKNOWN = -1


def members(name: str) -> set[str]:
    """The system calls of one of systemd's sets, such as ``@system-service``, or of a plain name."""
    if not name.startswith("@"):
        return {name}
    listing = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], check=True, capture_output=True, text=True
    ).stdout
    listed = [line.strip() for line in listing.splitlines()[1:] if line.startswith(" ")]
    return set().union(*(members(each) for each in listed if not each.startswith("#")))


def allowed(unit: str) -> set[str]:
    """The system calls that a unit's SystemCallFilter lines leave, taken in their order."""
    calls: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        named = set().union(*(members(word) for word in line.removeprefix("~").split()))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def confine(calls: Iterable[str]) -> None:
    """Let this process and its children make these system calls only; all others fail with EPERM.

    Raises:
        OSError: the kernel or libseccomp refuses.
    """
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(_FAIL_WITH_EPERM)
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        # Below it stand calls of other architectures, which libseccomp knows by numbers of its own.
        if number > _UNKNOWN and library.seccomp_rule_add(context, _ALLOW, number, 0) != 0:
            raise OSError(f"libseccomp refuses to allow {call}")
    if library.seccomp_load(context) != 0:
        raise OSError("the kernel refuses the filter")


def deny_write_execute() -> None:
    """Refuse memory that is or was written to be executed (MemoryDenyWriteExecute), where the kernel can (6.3).

    Raises:
        OSError: it can and does not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_MDWE, _REFUSE_EXEC_GAIN, 0, 0, 0) != 0 and ctypes.get_errno() != errno.EINVAL:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MDWE)")


def main() -> None:
    unit, *command = sys.argv[1:]
    calls = allowed(Path(unit).read_text(encoding="utf-8"))
    deny_write_execute()
    confine(calls)
    os.execvp(command[0], command)  # noqa: S606 - a test's own words


if __name__ == "__main__":
    main()
