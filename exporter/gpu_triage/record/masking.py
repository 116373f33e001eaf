"""Anonymizes recordings: replaces identifiers of boards, hosts, users and networks consistently."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

_UUID: Final = re.compile(rb"\b(GPU-|MIG-)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
# Longer dotted numbers are versions; loopback and unspecified addresses are the same on every host.
_IPV4: Final = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0(?!\d))(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.\d|\w)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]+:){7})[0-9a-fA-F:]{3,39}(?![\w:.])")
_NFS_SERVER: Final = re.compile(r"(?<=device )([\w.-]+)(?=:/)")
_NFS_SERVER_IN_LOG: Final = re.compile(r"(?<=nfs: server )\S+")
_HOME: Final = re.compile(r"(?<=/home/)[^/\s]+")
_LEAST_NAME: Final = 3  # shorter user names also occur as words in kernel messages
_NO_NAMES: Final = {"localhost", "root"}


class Masker:
    """Replaces names with others of the same length or kind, irreversibly without the key.

    The key is a secret, generated for each recording; `hosts` and `users` are the names of this host and its users.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._names = [(_NFS_SERVER, "host"), (_NFS_SERVER_IN_LOG, "host"), (_HOME, "user")]
        self._names += [
            (re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, masked))})(?![\w-])"), kind)
            for kind, names in (("host", hosts), ("user", users))
            if (masked := sorted({n for n in names if len(n) >= _LEAST_NAME} - _NO_NAMES, key=len, reverse=True))
        ]

    def data(self, raw: bytes) -> bytes:
        """Replace every UUID with another one of the same length."""
        return _UUID.sub(lambda match: match[1] + str(UUID(bytes=self._hash(b"uuid", match[2])[:16])).encode(), raw)

    def digits(self, raw: bytes) -> bytes:
        """Replace a serial number with as many other digits."""
        number = int.from_bytes(self._hash(b"serial", raw), "big")
        return str(number).zfill(len(raw))[-len(raw) :].encode() if raw else b""

    def noise(self, raw: bytes) -> bytes:
        """Replace a binary identifier with as many other bytes; all zeros are kept."""
        if not any(raw):
            return raw
        return (self._hash(b"noise", raw) * (len(raw) // 32 + 1))[: len(raw)]

    def text(self, text: str) -> str:
        """Replace UUIDs, IP addresses, host names and user names in text."""
        text = self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
        for pattern, kind in self._names:
            text = pattern.sub(lambda match, kind=kind: f"{kind}-{self._word(match[0])}", text)  # type: ignore[misc]
        text = _IPV4.sub(lambda match: "10.{}.{}.{}".format(*self._hash(b"address", match[0].encode())[:3]), text)
        return _IPV6.sub(lambda match: f"fd00::{self._word(match[0])[:4]}", text)

    def _word(self, name: str) -> str:
        return self._hash(b"name", name.encode()).hex()[:8]

    def _hash(self, kind: bytes, raw: bytes) -> bytes:
        return hmac.new(self._key, kind + b"\0" + raw, hashlib.sha256).digest()
