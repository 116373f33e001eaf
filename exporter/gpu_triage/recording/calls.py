"""One call of an NVML function as pynvml makes it: what identifies it, and where its answers go.

The level is that of ctypes: names, numbers, handles, and memory that the library writes to.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from typing import Any, Final

EVENTS: Final = frozenset({"nvmlEventSetWait_v2", "nvmlEventSetWait"})  # functions that tell a thing once
GPM_ALLOC: Final = "nvmlGpmSampleAlloc"
GPM_FREE: Final = "nvmlGpmSampleFree"
_GPM_GET: Final = "nvmlGpmMetricsGet"
_GPM_SAMPLES: Final = {"nvmlGpmSampleGet": 1, "nvmlGpmMigSampleGet": 2}
"""Functions that fill a sample, their last argument; and how many arguments before it say whose."""

_DIGEST: Final = re.compile("#[0-9a-f]{16}")
_LEAST_TIMESTAMP: Final = 10**12  # NVML tells times in microseconds since 1970; no count or size is as large


class CallKeys:
    """Describes calls. Remembers of which GPU a GPM sample is: its address is another one in every process."""

    def __init__(self) -> None:
        self._samples: dict[int | None, str] = {}

    def describe(self, function: str, arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """What identifies a call, before it is made, and the memory that it writes to.

        The key is JSON: the function, its numbers and handles, and a digest of what was in that memory.
        """
        memory = [_memory_of(argument) for argument in arguments]
        outs = tuple(out for out in memory if out is not None)
        values = [
            _plain(argument) if out is None else ctypes.sizeof(out)
            for argument, out in zip(arguments, memory, strict=True)
        ]
        if function in _GPM_SAMPLES:
            whose = json.dumps(values[: _GPM_SAMPLES[function]])
            if (address := _address(arguments[-1])) is not None:
                self._samples[address] = whose
            return json.dumps([function, whose]), ()
        if function == GPM_FREE:
            self._samples.pop(_address(arguments[0]), None)
            return json.dumps([function]), ()
        if function == _GPM_GET and outs:
            request = outs[0]
            metrics = [request.metrics[i].metricId for i in range(min(request.numMetrics, len(request.metrics)))]
            values = [self._samples.get(_address(request.sample2)), metrics]
        elif outs:
            values.append(f"#{hashlib.sha256(b''.join(map(content, outs))).hexdigest()[:16]}")
        return json.dumps([function, *values]), outs


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
    if (address := _address(argument)) is not None:
        return f"@{address:x}"
    value = argument if isinstance(argument, bytes) else getattr(argument, "value", None)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _address(argument: Any) -> int | None:
    """Where a handle points; None for what is no pointer."""
    if isinstance(argument, ctypes.c_void_p):
        return argument.value
    if isinstance(argument, ctypes._Pointer):  # noqa: SLF001 - the base of all pointer types has no other name
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None
