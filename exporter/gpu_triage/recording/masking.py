"""Takes out of a recording what names boards, hosts, people and addresses: the same name always for the same thing."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

_UUID: Final = re.compile(rb"\b(GPU-|MIG-)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
# Longer rows of numbers are versions.
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.\d|\w)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]+:){7})[0-9a-fA-F:]{3,39}(?![\w:.])")
_NFS_SERVER: Final = re.compile(r"(?<=device )([\w.-]+)(?=:/)")
_HOME: Final = re.compile(r"(?<=/home/)[^/\s]+")
_LOOPBACK: Final = "127."
_LEAST_NAME: Final = 3
"""Shorter names of people are words of the kernel as well."""


def _is_telling(name: str) -> bool:
    return len(name) >= _LEAST_NAME and name not in ("localhost", "root")


class Masker:
    """Replaces names by others of the same length or kind, which nobody without the key can turn back.

    Args:
        key: secret; a new one for every recording.
        hosts: names of this host.
        users: names of its people.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = key
        self._names = [
            (re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, told))})(?![\w-])"), kind)
            for kind, names in (("host", hosts), ("user", users))
            if (told := sorted({name for name in names if _is_telling(name)}, key=len, reverse=True))
        ]

    def data(self, raw: bytes) -> bytes:
        """Bytes in which every UUID is another one of the same length."""
        return _UUID.sub(lambda match: match[1] + self._uuid(match[2]), raw)

    def digits(self, raw: bytes) -> bytes:
        """As many decimal digits, for a serial number."""
        number = int.from_bytes(self._hash(b"serial", raw), "big")
        return str(number).zfill(len(raw))[-len(raw) :].encode() if raw else b""

    def noise(self, raw: bytes) -> bytes:
        """As many bytes, for an identity that is no text; all zeros stay."""
        if not any(raw):
            return raw
        return (self._hash(b"noise", raw) * (len(raw) // 32 + 1))[: len(raw)]

    def text(self, text: str) -> str:
        """Text without UUIDs, addresses, and names of hosts and people."""
        text = self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
        text = _NFS_SERVER.sub(lambda match: f"host-{self._word(match[0])}", text)
        text = _HOME.sub(lambda match: f"user-{self._word(match[0])}", text)
        for pattern, kind in self._names:
            text = pattern.sub(lambda match, kind=kind: f"{kind}-{self._word(match[0])}", text)  # type: ignore[misc]
        text = _IPV4.sub(self._ipv4, text)
        return _IPV6.sub(lambda match: f"fd00::{self._word(match[0])[:4]}", text)

    def _ipv4(self, match: re.Match[str]) -> str:
        address = match[0]
        if address.startswith(_LOOPBACK) or address == "0.0.0.0":  # noqa: S104 - nothing is bound
            return address
        a, b, c = self._hash(b"address", address.encode())[:3]
        return f"10.{a}.{b}.{c}"

    def _uuid(self, raw: bytes) -> bytes:
        made = self._hash(b"uuid", raw).hex()
        return f"{made[:8]}-{made[8:12]}-{made[12:16]}-{made[16:20]}-{made[20:32]}".encode()

    def _word(self, name: str) -> str:
        return self._hash(b"name", name.encode()).hex()[:8]

    def _hash(self, kind: bytes, raw: bytes) -> bytes:
        return hmac.new(self._key, kind + b"\0" + raw, hashlib.sha256).digest()
