"""Checks passwords against bcrypt hashes, so that a flood of wrong ones costs little and doesn't delay others."""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import os
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import bcrypt

from gpu_triage.serve.messages import Headers

LONGEST_PASSWORD = 72
"""In bytes; bcrypt ignores the rest. htpasswd and Go truncate longer passwords, and so do we."""

_DECOY_TAIL = b"." * 31
_NICENESS = 10
_MOST_PER_ADDRESS = 4
"""Most waiting checks per address; IPv6 addresses are grouped by /64."""
_MOST_WAITING = 128
"""Most waiting clients, including those that wait for the same check."""
_MOST_REMEMBERED = 256


class TooManyChecks(Exception):
    """The password was not checked because too many are waiting."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password sent by a client, not yet verified."""

    user: bytes
    password: bytes


def read_credentials(headers: Headers) -> Credentials | None:
    """Parse a request's Authorization header (RFC 7617); None unless there is exactly one valid header."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
    except binascii.Error:
        return None
    return Credentials(user, password) if colon else None


@dataclass(frozen=True, slots=True)
class _Check:
    key: bytes
    password: bytes
    hashed: bytes
    genuine: bool
    verdict: asyncio.Future[bool]


class PasswordChecks:
    """Checks passwords one at a time on a low-priority thread; for one event loop.

    Correct passwords are cached under a keyed hash that is useless outside this process, so that a scraper waits only
    once. Waiting clients are served round-robin by network address: a flood from one delays another by one check.
    """

    def __init__(self, compare: Callable[[bytes, bytes], bool] = bcrypt.checkpw) -> None:
        self._compare = compare
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._asked: dict[bytes, asyncio.Future[bool]] = {}
        self._queues: OrderedDict[str, deque[_Check]] = OrderedDict()
        self._checking = False
        self._waiting = 0

    async def right(self, users: Mapping[bytes, bytes], given: Credentials, address: str) -> bool:
        """Whether the user exists and has this password; an unknown user takes as long as a wrong password.

        `users` has bcrypt hashes by name, at least one; the address may be "". Raises TooManyChecks if too many wait.
        """
        hashed = users.get(given.user)
        key = self._key(given, hashed or b"")
        if hashed is not None and key in self._right:
            self._right.move_to_end(key)
            return True
        if self._waiting >= _MOST_WAITING:
            raise TooManyChecks
        verdict = self._asked.get(key)
        if verdict is None:
            check = _Check(
                key,
                given.password[:LONGEST_PASSWORD],
                hashed or _decoy(users),
                hashed is not None,
                asyncio.get_running_loop().create_future(),
            )
            self._enqueue(check, _network(address))
            verdict = check.verdict
        self._waiting += 1
        try:
            # Shielded, because other clients may wait for the same result.
            return await asyncio.shield(verdict)
        finally:
            self._waiting -= 1

    def _key(self, given: Credentials, hashed: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (given.user, hashed, given.password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def _enqueue(self, check: _Check, network: str) -> None:
        if len(self._queues.get(network, ())) >= _MOST_PER_ADDRESS:
            raise TooManyChecks
        self._asked[check.key] = check.verdict
        self._queues.setdefault(network, deque()).append(check)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._queues and not self._checking:
            network, queue = self._queues.popitem(last=False)
            check = queue.popleft()
            if queue:
                self._queues[network] = queue  # moved to the end
            loop = asyncio.get_running_loop()
            # A daemon thread, so that a running check doesn't delay exit; one per check, so that none stays idle.
            thread = threading.Thread(target=self._run, args=(check, loop), name="password", daemon=True)
            try:
                thread.start()
                self._checking = True
            except (RuntimeError, MemoryError):  # no thread can be started now
                del self._asked[check.key]
                check.verdict.set_exception(TooManyChecks())

    def _run(self, check: _Check, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError):
            # On Linux this affects only this thread: wrong passwords must not take CPU time from the sampler or jobs.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        matches = False
        try:
            with suppress(ValueError):  # bytes that bcrypt rejects
                matches = self._compare(check.password, check.hashed)
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finish, check, matches)

    def _finish(self, check: _Check, matches: bool) -> None:  # noqa: FBT001 - call_soon passes no keyword arguments
        right = matches and check.genuine
        if right:
            self._right[check.key] = None
            if len(self._right) > _MOST_REMEMBERED:
                self._right.popitem(last=False)
        del self._asked[check.key]
        if not check.verdict.done():
            check.verdict.set_result(right)
        self._checking = False
        self._begin_next()


def _decoy(users: Mapping[bytes, bytes]) -> bytes:
    """A hash that matches no password, with the highest cost among the users' hashes."""
    cost = max(int(hashed[4:6]) for hashed in users.values())
    return bcrypt.gensalt(cost) + _DECOY_TAIL


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def hashed(password: bytes, cost: int) -> str:
    """The bcrypt hash of a password of at most `LONGEST_PASSWORD` bytes; the cost is log2 of the number of rounds."""
    return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode("ascii")
