"""A module of ours in a process of its own, which may hang without holding up whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

_END_SECONDS: Final = 1.0


class ChildNotStarted(Exception):
    """The process could not be started; the message says why."""


class ChildProcess:
    """Runs ``python -m MODULE``, one process at a time. One thread at a time calls it."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def hangs(self) -> bool:
        """Whether the process of an earlier run could not be ended: it is stuck in the kernel."""
        return self._child is not None and self._child.poll() is None

    def run(self, deadline_seconds: float, told: bytes | None = None) -> tuple[bytes, int]:
        """What the process wrote to standard output, and its exit code.

        Args:
            deadline_seconds: for which it is waited.
            told: what it reads from standard input; None for nothing.

        Raises:
            ChildNotStarted: no process could be started.
            subprocess.TimeoutExpired: it did not end by itself, and was killed.
        """
        try:
            child = self._child = subprocess.Popen(  # noqa: S603 - our own module, and no argument
                [sys.executable, "-m", self._module],
                stdin=subprocess.DEVNULL if told is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Nothing of the directory that this program happens to run in is imported.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        except (OSError, ValueError) as error:
            raise ChildNotStarted(str(error)) from error
        try:
            written, _ = child.communicate(told, timeout=deadline_seconds)
        except subprocess.TimeoutExpired:
            _end(child)
            raise
        return written, child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    try:
        child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        # Stuck in the kernel: it ends with the call that it waits in.
        return
    finally:
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
