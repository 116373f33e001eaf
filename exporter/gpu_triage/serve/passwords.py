"""Checks passwords against bcrypt hashes, so that a flood of wrong ones costs little and doesn't delay others."""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import bcrypt

from gpu_triage.serve.messages import RETRY, Answer, Headers, Request, text

LONGEST_PASSWORD = 72
"""In bytes; bcrypt ignores the rest. htpasswd and Go truncate longer passwords, and so do we."""

_CHALLENGE = (b"www-authenticate", b'Basic realm="gpu-triage", charset="UTF-8"')
_DECOY_TAIL = b"." * 31
_NICENESS = 10
_MOST_PER_ADDRESS = 5
"""Most checks per address that run or wait; IPv6 addresses are grouped by /64."""
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


@dataclass(slots=True)
class _Network:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    checks: int = 0  # running or waiting


class PasswordChecks:
    """Checks passwords one at a time on a low-priority thread; for one event loop.

    `users` has bcrypt hashes by name, at least one. Correct passwords are cached under a keyed hash that is useless
    outside this process, so that a scraper waits only once. Of each network, one check waits for its turn, in order: a
    flood from one delays another by one check.
    """

    def __init__(self, users: Mapping[bytes, bytes], compare: Callable[[bytes, bytes], bool] = bcrypt.checkpw) -> None:
        self._users = users
        self._decoy = _decoy(users)
        self._compare = compare
        self._secret = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._checks: dict[bytes, asyncio.Task[bool]] = {}
        self._networks: dict[str, _Network] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def refusal(self, request: Request) -> Answer | None:
        """The error response to a request without a user's name and password; None if it has them."""
        given = read_credentials(request.headers)
        try:
            if given and await self.right(given, request.address):
                return None
        except TooManyChecks:
            return text(503, "too many passwords to check", RETRY)
        return text(401, "unauthorized", _CHALLENGE)

    async def right(self, given: Credentials, address: str) -> bool:
        """Whether the user exists and has this password; an unknown user takes as long as a wrong password.

        The address may be "". Raises TooManyChecks if too many wait.
        """
        key = self._key(given)
        if key in self._right:
            self._right.move_to_end(key)
            return True
        if self._waiting >= _MOST_WAITING:
            raise TooManyChecks
        if key not in self._checks:
            name = _network(address)
            network = self._networks.setdefault(name, _Network())
            if network.checks >= _MOST_PER_ADDRESS:
                raise TooManyChecks
            network.checks += 1
            self._checks[key] = asyncio.create_task(self._check(key, given, name))
        self._waiting += 1
        try:
            # Shielded, because other clients may wait for the same result.
            return await asyncio.shield(self._checks[key])
        finally:
            self._waiting -= 1

    def _key(self, given: Credentials) -> bytes:
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (given.user, given.password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    async def _check(self, key: bytes, given: Credentials, name: str) -> bool:
        hashed, network = self._users.get(given.user), self._networks[name]
        try:
            async with network.turn, self._turn:
                matches = await self._compared(given.password[:LONGEST_PASSWORD], hashed or self._decoy)
        finally:
            del self._checks[key]
            network.checks -= 1
            if not network.checks:
                del self._networks[name]
        right = matches and hashed is not None
        if right:
            self._right[key] = None
            if len(self._right) > _MOST_REMEMBERED:
                self._right.popitem(last=False)
        return right

    def _compared(self, password: bytes, hashed: bytes) -> asyncio.Future[bool]:
        """Compare on a daemon thread, so that it doesn't delay exit; one per check, so that none stays idle."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[bool] = loop.create_future()

        def settle(matches: bool) -> None:  # noqa: FBT001 - call_soon passes no keyword arguments
            if not result.done():
                result.set_result(matches)

        def compare() -> None:
            with suppress(OSError):
                # On Linux this affects only this thread: wrong passwords must not take CPU from the sampler or jobs.
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
            matches = False
            try:
                with suppress(ValueError):  # bytes that bcrypt rejects
                    matches = self._compare(password, hashed)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(settle, matches)

        try:
            threading.Thread(target=compare, name="password", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # no thread can be started now
            raise TooManyChecks from error
        return result


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
