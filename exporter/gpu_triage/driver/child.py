"""Runs one of our modules in a child process, which may hang without blocking its parent."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

from gpu_triage.driver.own_code import kept_code

_END_SECONDS: Final = 1.0


class ChildNotStarted(Exception):
    """The process could not be started; the message has the reason."""


class ChildProcess:
    """Runs ``python -m MODULE ARGUMENTS``, one process at a time. Not thread-safe."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = (module, *arguments)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def hangs(self) -> bool:
        """Whether a process of an earlier run could not be killed, because it is stuck in the kernel."""
        return self._child is not None and self._child.poll() is None

    def run(self, deadline_seconds: float, stdin: bytes | None = None) -> tuple[bytes, int]:
        """Return stdout and exit code; raises ChildNotStarted, or TimeoutExpired once it has killed the process."""
        program, environment = sys.executable, dict(os.environ)
        if (code := kept_code()) is not None:
            # The interpreter's path may be in a virtual environment that has been removed.
            program, environment["PYTHONPATH"] = "/proc/self/exe", f"/proc/self/fd/{code}"
        try:
            child = self._child = subprocess.Popen(  # noqa: S603 - our own module, with constant arguments
                [program, "-m", *self._command],
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Don't import anything from the current directory.
                env={**environment, "PYTHONSAFEPATH": "1"},
                pass_fds=() if code is None else (code,),
            )
        except (OSError, ValueError) as error:
            raise ChildNotStarted(str(error)) from error
        try:
            written, _ = child.communicate(stdin, timeout=deadline_seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            raise
        return written, child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    # One that is stuck in the kernel dies when its system call returns.
    with suppress(subprocess.TimeoutExpired):
        child.wait(_END_SECONDS)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
