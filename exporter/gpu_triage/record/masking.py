"""Makes recordings of what was captured, without the identifiers of boards, hosts, users and networks."""

import hashlib
import hmac
import math
import os
import platform
import pwd
import re
import socket
from collections.abc import Iterable
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Final
from uuid import UUID

from gpu_triage import __version__
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.driver_messages import parse_driver_message
from gpu_triage.read.host.kernel_messages import parse_host_message, parse_kill_order, parse_trouble_over
from gpu_triage.read.xid.kernel_records import KernelLog
from gpu_triage.read.xid.xid_events import parse_sxid
from gpu_triage.record.calls import Spans, function_of
from gpu_triage.record.capture import Captured
from gpu_triage.record.recording import FAILED, Recording, TimedAnswer
from gpu_triage.record.ring import unrolled

_UUID: Final = re.compile(rb"\b(GPU-|MIG-)([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
# Longer dotted numbers are versions; loopback and unspecified addresses are the same on every host.
_IPV4: Final = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0(?!\d))(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\.\d|\w)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]+:){7})[0-9a-fA-F:]{3,39}(?![\w:.])")
_NFS_SERVER: Final = re.compile(r"(?<=device )([\w.-]+)(?=:/)")
_NFS_SERVER_IN_LOG: Final = re.compile(r"(?<=nfs: server )\S+")
_HOME: Final = re.compile(r"(?<=/home/)[^/\s]+")
_LEAST_NAME: Final = 3  # shorter user names also occur as words in kernel messages
_NO_NAMES: Final = {"localhost", "root"}
_FIRST_UID_OF_PEOPLE: Final = 1000
_SERIAL: Final = "nvmlDeviceGetSerial"


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


def local_masker(key: bytes = b"") -> Masker:
    """Create a masker for this host's name and users, with a new key if none is given."""
    name = socket.gethostname()
    people = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_UID_OF_PEOPLE]
    return Masker(key or os.urandom(32), hosts=(name, name.split(".")[0]), users=people)


def masked(captured: Captured, masker: Masker, verdict: str | None = None) -> Recording:
    """The recording of what was captured; `verdict` is the judgment that triggered it, as JSON."""
    answers: list[TimedAnswer] = []
    states: list[TimedAnswer] = []
    serials: set[str] = set()
    key_of = cache(lambda key: masker.data(key.encode()).decode())
    path_of = cache(masker.text)
    for each in unrolled(captured.blocks):
        if not each.key.startswith("["):
            question, _, path = each.key.partition(" ")
            texts = (raw and masker.text(os.fsdecode(raw)).encode() for raw in each.outs)
            outs = each.outs if each.code == FAILED else tuple(texts)
            states.append(each._replace(key=f"{question} {path_of(path)}", outs=outs))
            continue
        function = function_of(each.key)
        if function == _SERIAL and each.outs and each.outs[0]:
            serials.add(each.outs[0].partition(b"\0")[0].decode("ascii", "replace"))
        private = zip(each.outs, chain(captured.private.get(each.key, ()), repeat(())), strict=False)
        outs = tuple(raw and _masked_out(masker, function, raw, spans) for raw, spans in private)
        answers.append(each._replace(key=key_of(each.key), outs=outs))
    for serial in serials - {""}:
        verdict = verdict and verdict.replace(serial, masker.digits(serial.encode()).decode())
    return Recording(
        versions={"gpu_triage": __version__, "python": platform.python_version(), "kernel": platform.release()},
        monotonic=captured.began.monotonic,
        wall=captured.began.wall,
        seconds=captured.seconds,
        answers=tuple(answers),
        files=tuple(states),
        kmsg=None if captured.kmsg is None else kernel_records(captured.kmsg, masker),
        verdict=verdict and masker.text(verdict),
    )


def _masked_out(masker: Masker, function: str, raw: bytes, private: Spans) -> bytes:
    if function == _SERIAL:
        text, _, rest = raw.partition(b"\0")
        return masker.digits(text) + raw[len(text) :] if rest or text else raw
    for offset, end in private:
        raw = raw[:offset] + masker.noise(raw[offset:end]) + raw[end:]
    return masker.data(raw)


def kernel_records(kmsg: Path, masker: Masker) -> str | None:
    """Kernel log records about GPUs, NVSwitches and host problems, masked, and no others; None if it is unreadable."""
    log = KernelLog(kmsg)
    try:
        judged = [record for record in log.read(math.inf) if _is_judged(record.text)]
    except HostReadFailed:
        return None
    finally:
        log.close()
    return "".join(f"4,{each.sequence},{round(each.at * 1e6)},-;{masker.text(each.text)}\n" for each in judged)


def _is_judged(text: str) -> bool:
    parsers = (parse_sxid, parse_driver_message, parse_host_message, parse_trouble_over, parse_kill_order)
    return text.startswith("NVRM:") or any(parse(text) is not None for parse in parsers)
