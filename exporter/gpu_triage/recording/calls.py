"""One call of an NVML function as pynvml makes it: what identifies it, and where its answers go.

The level is that of ctypes: names, numbers, handles, and memory that the library writes to.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from typing import Any, Final, NamedTuple

EVENTS: Final = frozenset({"nvmlEventSetWait_v2", "nvmlEventSetWait"})
"""Functions that tell a thing once."""

GPM_GET: Final = "nvmlGpmMetricsGet"
GPM_SAMPLES: Final = {"nvmlGpmSampleGet": (0,), "nvmlGpmMigSampleGet": (0, 1)}
"""Functions that fill a sample, their last argument; and which arguments say whose."""

_DIGEST: Final = re.compile("#[0-9a-f]{16}")
_LEAST_TIMESTAMP: Final = 10**12
"""NVML tells times in microseconds since 1970; no count or size is as large."""

GPM_ALLOC: Final = "nvmlGpmSampleAlloc"


class Call(NamedTuple):
    """A call.

    Attributes:
        key: the function, its numbers and handles, and what was in the memory it writes to, as text.
        outs: the memory it writes to: ctypes objects.
    """

    key: str
    outs: tuple[Any, ...]


class CallKeys:
    """Describes calls. Remembers of which GPU a GPM sample is: its address is another one in every process."""

    def __init__(self) -> None:
        self._samples: dict[int, str] = {}

    def describe(self, function: str, arguments: tuple[Any, ...]) -> Call:
        """What identifies a call, before it is made."""
        plain: list[object] = []
        outs = []
        for argument in arguments:
            out = _memory_of(argument)
            if out is None:
                plain.append(_plain(argument))
            else:
                plain.append(ctypes.sizeof(out))
                outs.append(out)
        if function == GPM_GET and outs:
            return Call(json.dumps([function, *self._gpm(outs[0])]), tuple(outs))
        if function in GPM_SAMPLES:
            whose = json.dumps([plain[i] for i in GPM_SAMPLES[function] if i < len(plain)])
            address = _address(arguments[-1])
            if address is not None:
                self._samples[address] = whose
            return Call(json.dumps([function, whose]), ())
        if function == "nvmlGpmSampleFree":
            self._samples.pop(_address(arguments[0]) or 0, None)
            return Call(json.dumps([function]), ())
        if outs:
            plain.append(f"#{hashlib.sha256(b''.join(map(content, outs))).hexdigest()[:16]}")
        return Call(json.dumps([function, *plain]), tuple(outs))

    def _gpm(self, request: Any) -> tuple[object, ...]:
        newer = _address(request.sample2)
        metrics = [request.metrics[i].metricId for i in range(min(request.numMetrics, len(request.metrics)))]
        return self._samples.get(newer or 0), metrics


def function_of(key: str) -> str:
    """The function of a call's key."""
    return str(json.loads(key)[0])


def loose(key: str) -> str:
    """A key without timestamps and without what was in memory: enough where nothing fits exactly."""
    parts = json.loads(key)
    if isinstance(parts[-1], str) and _DIGEST.fullmatch(parts[-1]):
        parts.pop()
    return json.dumps([0 if isinstance(part, int) and part > _LEAST_TIMESTAMP else part for part in parts])


def content(out: Any) -> bytes:
    """What is in a ctypes object."""
    return ctypes.string_at(ctypes.addressof(out), ctypes.sizeof(out))


def fill(out: Any, raw: bytes) -> bool:
    """Write into a ctypes object; False where there is not enough room for it."""
    if len(raw) > ctypes.sizeof(out):
        return False
    ctypes.memmove(ctypes.addressof(out), raw, len(raw))
    return True


def _memory_of(argument: Any) -> Any | None:
    """The object behind an argument that the library can write to; None for a number or handle."""
    referred = getattr(argument, "_obj", None)  # what byref() makes
    if referred is not None:
        return referred
    return argument if isinstance(argument, (ctypes.Array, ctypes.Structure)) else None


def _plain(argument: Any) -> object:
    if argument is None or isinstance(argument, (int, float, str)):
        return argument
    if isinstance(argument, bytes):
        return argument.decode("utf-8", "replace")
    address = _address(argument)
    if address is not None:
        return f"@{address:x}"
    value = getattr(argument, "value", None)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _address(argument: Any) -> int | None:
    """Where a handle points; None for what is no pointer."""
    if isinstance(argument, ctypes.c_void_p):
        return argument.value
    if isinstance(argument, ctypes._Pointer):  # noqa: SLF001 - the base of all pointer types has no other name
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None
