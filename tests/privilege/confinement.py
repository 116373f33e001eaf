"""Ways to take rights from a process: each is the words before its command."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

USER = "65534"
_READ_ONLY = 'mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && chmod 1777 "$1" && mount -o remount,bind,ro / && '


def unprivileged(*, starts_again: bool = False) -> list[str]:
    """Another user without any capability, nor a way to gain one.

    Args:
        starts_again: whether the command starts this interpreter once more, which takes the right to reach it.
    """
    flags = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if os.geteuid() != 0:
        return ["setpriv", "--no-new-privs"]
    return ["setpriv", *(_other_user() if _others_can_run_this(starts_again=starts_again) else []), *flags]


def read_only_root(scratch: Path) -> list[str]:
    """As unprivileged, and every file system read-only below / but a small one at `scratch`."""
    script = f'{_READ_ONLY} export TMPDIR="$1" && shift && exec {" ".join(unprivileged())} "$@"'
    return [*_namespaces("--mount"), "sh", "-c", script, "sh", str(scratch)]


def system_calls_of_the_unit(unit: Path) -> list[str]:
    """As unprivileged, and with the unit's filter of system calls and its ban on memory both written and executed."""
    return [*unprivileged(starts_again=True), sys.executable, "-m", "tests.privilege.seccomp", str(unit)]


def own_pid_namespace(*, own_procfs: bool) -> list[str]:
    """As unprivileged, and as in a container: a PID namespace of its own, with its own /proc or the host's."""
    flags = ["--pid", "--fork", *(["--mount-proc"] if own_procfs else [])]
    return [*_namespaces(*flags), *unprivileged()]


def _namespaces(*flags: str) -> list[str]:
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *mapped, *flags]


def _other_user() -> list[str]:
    return [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


@cache
def _others_can_run_this(*, starts_again: bool) -> bool:
    """Whether another user can reach this interpreter and this working tree; root's own home is closed to others.

    The first start still has root's right to pass closed folders; only a second one shows whether they are open.
    """
    again = ["sh", "-c", 'exec "$@"', "sh"] if starts_again else []
    command = [shutil.which("setpriv") or "setpriv", *_other_user(), *again, sys.executable, "-c", "import gpu_triage"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
