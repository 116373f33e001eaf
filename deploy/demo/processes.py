"""Programs that run for the length of a ``with`` block, and may be restarted in between."""

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
# Below those that the kernel gives to clients' connections.
_PORTS = range(20_000, 32_000)
_claims: list[socket.socket] = []


class StackError(Exception):
    """A part of the stack is missing or does not start; the message names it and what to do."""


class Server:
    """A program that serves HTTP.

    Args:
        name: for messages.
        command: the program and its arguments.
        directory: where its log goes.
        ready: URL that it answers once it works.
        starting: told the name before it is waited for.
    """

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
        """Its process; None while it does not run."""
        return None if self._process is None else self._process.pid

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Start it, and end it with the ``with`` block.

        Raises:
            StackError: it does not start.
        """
        self.start()
        try:
            yield self
        finally:
            self.end()

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            StackError: it does not; the message shows the end of its log.
        """
        self._starting(self._name)
        with self._log.open("ab") as output:
            # Ctrl-C is for the person's program, which ends its parts in order.
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
        """End it and start it again.

        Raises:
            StackError: it does not start again.
        """
        self.end()
        self.start()

    def end(self) -> None:
        """End it, in order if it can."""
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
    """Wait until the condition holds, or for a minute."""
    limit = time.monotonic() + _READY_WITHIN_SECONDS
    while not condition() and time.monotonic() < limit:
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Whether a GET succeeds."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, http.client.HTTPException):
        return False


def free_port() -> int:
    """A port that nobody listens on now, and that nobody else is given while this program runs.

    The kernel's own choice would not do: before the server listens, a client's connection may be given the same port.

    Raises:
        StackError: all are taken.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            # Other programs that ask for a port see the claim; it ends with this process.
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
