"""Child processes that run inside a ``with`` block, and can be restarted."""

from __future__ import annotations

import atexit
import http.client
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_READY_WITHIN_SECONDS = 60.0
_END_WITHIN_SECONDS = 10.0
_LAST_CHARACTERS = 2000
# Below the kernel's ephemeral port range.
_PORTS = range(20_000, 32_000)
_claims: list[socket.socket] = []


class StackError(Exception):
    """A part of the stack is missing or doesn't start; the message names it and the remedy."""


class Server:
    """A program that serves HTTP; it is ready once the URL `ready` responds. Its log is in `directory`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        ready: str,
        starting: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._name = name
        self._starting = starting
        self._command = command
        self._log = directory / f"{name}.log"
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Run the program inside a ``with`` block; raises StackError if it does not start."""
        self.start()
        try:
            yield self
        finally:
            self.end()

    def start(self) -> None:
        """Start the program and wait until it responds; raises StackError with the end of its log."""
        self._starting(self._name)
        with self._log.open("ab") as output:
            # In its own session, so that Ctrl-C reaches only the main program, which stops its children in order.
            process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._process = process
        wait(lambda: answers(self._ready) or process.poll() is not None)
        if not answers(self._ready):
            self.end()
            log = self._log.read_text(errors="replace")[-_LAST_CHARACTERS:]
            raise StackError(f"{self._name} does not start; the end of its log:\n{log}")

    def restart(self) -> None:
        self.end()
        self.start()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, at most a minute."""
    limit = time.monotonic() + _READY_WITHIN_SECONDS
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, http.client.HTTPException):
        return False


def free_port() -> int:
    """A port without a listener, reserved among programs like this one while this process runs.

    A port chosen by the kernel would not be safe: it may become a client's ephemeral port before the server listens.

    Raises:
        StackError: all ports are taken.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            # Other instances that look for a port see this claim; it ends with this process.
            claim.bind(f"\0gpu-triage-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
        else:
            if not _claims:
                atexit.register(_end_claims)
            _claims.append(claim)
            return port
    raise StackError(f"no port between {_PORTS[0]} and {_PORTS[-1]} is free on 127.0.0.1")


def _end_claims() -> None:
    while _claims:
        _claims.pop().close()
