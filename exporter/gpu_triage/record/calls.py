"""Describes NVML calls made through pynvml: what identifies a call, and which buffers it writes to.

Works at the level of ctypes: names, numbers, handles, and output buffers.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from typing import Any, Final

EVENTS: Final = frozenset({"nvmlEventSetWait_v2", "nvmlEventSetWait"})  # these return each event only once
GPM_ALLOC: Final = "nvmlGpmSampleAlloc"
GPM_FREE: Final = "nvmlGpmSampleFree"
_GPM_GET: Final = "nvmlGpmMetricsGet"
_GPM_SAMPLES: Final = {"nvmlGpmSampleGet": 1, "nvmlGpmMigSampleGet": 2}
"""Functions that fill a GPM sample, their last argument; and how many leading arguments identify its GPU."""

_DIGEST: Final = re.compile("#[0-9a-f]{16}")
_LEAST_TIMESTAMP: Final = 10**12  # NVML timestamps are microseconds since 1970; no count or size is that large


class CallKeys:
    """Describes calls. Tracks which GPU a GPM sample belongs to, because its address differs between processes."""

    def __init__(self) -> None:
        self._samples: dict[int | None, str] = {}

    def describe(self, function: str, arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The key of a call, computed before making it, and its output buffers.

        The key is JSON: the function, its numbers and handles, and a digest of the buffers' content.
        """
        memory = [memory_of(argument) for argument in arguments]
        outs = tuple(out for out in memory if out is not None)
        values = [
            plain(argument) if out is None else ctypes.sizeof(out)
            for argument, out in zip(arguments, memory, strict=True)
        ]
        if function in _GPM_SAMPLES:
            sample_key = json.dumps(values[: _GPM_SAMPLES[function]])
            if (address := _address(arguments[-1])) is not None:
                self._samples[address] = sample_key
            return json.dumps([function, sample_key]), ()
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
    """The function in a call key."""
    return str(json.loads(key)[0])


def loose(key: str) -> str:
    """A key without timestamps and buffer digest, as a fallback if there is no exact match."""
    parts = json.loads(key)
    if isinstance(parts[-1], str) and _DIGEST.fullmatch(parts[-1]):
        parts.pop()
    return json.dumps([0 if isinstance(part, int) and part > _LEAST_TIMESTAMP else part for part in parts])


def content(out: Any) -> bytes:
    """The bytes of a ctypes object."""
    return ctypes.string_at(ctypes.addressof(out), ctypes.sizeof(out))


def fill(out: Any, raw: bytes) -> bool:
    """Copy bytes into a ctypes object; False if it is too small."""
    if len(raw) > ctypes.sizeof(out):
        return False
    ctypes.memmove(ctypes.addressof(out), raw, len(raw))
    return True


def memory_of(argument: Any) -> Any | None:
    """The output buffer behind an argument; None for a number or handle."""
    referred = getattr(argument, "_obj", None)  # set by byref()
    if referred is not None:
        return referred
    return argument if isinstance(argument, (ctypes.Array, ctypes.Structure)) else None


def plain(argument: Any) -> object:
    if argument is None or isinstance(argument, (int, float, str)):
        return argument
    if (address := _address(argument)) is not None:
        return f"@{address:x}"
    value = argument if isinstance(argument, bytes) else getattr(argument, "value", None)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _address(argument: Any) -> int | None:
    """The address in a handle; None if it isn't a pointer."""
    if isinstance(argument, ctypes.c_void_p):
        return argument.value
    if isinstance(argument, ctypes._Pointer):  # noqa: SLF001 - the base class of pointer types has no public name
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None
