"""NVML calls made through pynvml: what identifies a call, which buffers it writes to, and a library that records them.

Works at the level of ctypes: names, numbers, handles, and output buffers.
"""

import ctypes
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from gpu_triage.driver.nvml.library_file import NAME, refuse_cut_short
from gpu_triage.machine import NvmlLibrary
from gpu_triage.record.ring import Answer

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
            values.append(f"#{hashlib.sha256(b''.join(map(bytes, outs))).hexdigest()[:16]}")
        return json.dumps([function, *values]), outs


def function_of(key: str) -> str:
    return str(json.loads(key)[0])


def loose(key: str) -> str:
    """A key without buffer digest, as a fallback if there is no exact match."""
    parts = json.loads(key)
    if isinstance(parts[-1], str) and _DIGEST.fullmatch(parts[-1]):
        parts.pop()
    return json.dumps(parts)


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
    """A number, handle or text as JSON has it; 0 for a timestamp: calls for events since then would all differ."""
    if (address := _address(argument)) is not None:
        return f"@{address:x}"
    value = argument if isinstance(argument, (int, float, str, bytes)) else getattr(argument, "value", None)
    if isinstance(value, int) and value > _LEAST_TIMESTAMP:
        return 0
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _address(argument: Any) -> int | None:
    """The address in a handle; None if it isn't a pointer."""
    if isinstance(argument, ctypes.c_void_p):
        return argument.value
    if isinstance(argument, ctypes._Pointer):  # noqa: SLF001 - the base class of pointer types has no public name
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None


_UNRECORDED: Final = frozenset({"nvmlErrorString", GPM_ALLOC})
_GPM: Final = "nvmlGpm"
"""The arguments of these functions don't identify the GPU of a sample: `CallKeys` remembers it."""

_MOST_CALLS: Final = 4096
_PRIVATE_MEMBERS: Final = frozenset({"clusterUuid", "uuid", "serial", "ibGuid", "chassisSerialNumber"})

Spans = tuple[tuple[int, int], ...]
"""Start and end offset of each private member in one output buffer."""


def answer_of(code: int, outs: Sequence[tuple[bytes, bytes]]) -> Answer:
    """The answer of a call, from its output buffers before and after it."""
    changed = tuple(None if new == old else new.rstrip(b"\0") for old, new in outs)
    return Answer(code, changed, tuple(len(new) for _, new in outs))


class RecordingNvml:
    """NvmlLibrary for a machine being recorded, and the library object it loads.

    The flight recorder runs all the time, so each distinct call is described once, and recognized by its arguments.
    `base` is the machine's own library; `answered` is called with the key and answer of each call.
    """

    def __init__(self, base: NvmlLibrary, answered: Callable[[str, Answer], None]) -> None:
        self.private: dict[str, tuple[Spans, ...]] = {}  # position of identifying data in each output buffer, by key
        self._base = base
        self._answered = answered
        self._keys = CallKeys()
        self._known: dict[tuple[object, ...], str] = {}
        self._library: object | None = None

    def load(self) -> object | None:
        """See NvmlLibrary; None if there is no library, and then nothing is recorded."""
        if self._library is None:
            self._library = self._base.load()
        if self._library is None:
            refuse_cut_short()
            try:
                self._library = ctypes.CDLL(NAME)
            except OSError:
                return None
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(self._library, name)
        return function if name in _UNRECORDED else self._noting(name, function)

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                memory: list[Any] = [memory_of(argument) for argument in arguments]
                before = [None if out is None else bytes(out) for out in memory]
                key, records = self._key(name, arguments, before)
            except Exception:  # noqa: BLE001 - a recorder bug must not prevent the driver call
                return int(function(*arguments))
            code = int(function(*arguments))
            pairs = [(old, bytes(out)) for old, out in zip(before, memory, strict=True) if old is not None and records]
            self._answered(key, answer_of(code, pairs))
            return code

        return call

    def _key(self, name: str, arguments: tuple[Any, ...], before: list[bytes | None]) -> tuple[str, bool]:
        """The key of a call, and whether its output buffers are recorded: a call of GPM fills an opaque sample."""
        pairs = zip(arguments, before, strict=True)
        identity = (name, *(plain(argument) if raw is None else hash(raw) for argument, raw in pairs))
        known = self._known.get(identity)
        if known is not None:
            return known, True
        key, outs = self._keys.describe(name, arguments)
        if not name.startswith(_GPM):
            if len(self._known) >= _MOST_CALLS:
                self._known.clear()
            self._known[identity] = key
        if any(private := tuple(map(_private_spans, outs))):
            self.private[key] = private
        return key, bool(outs)


def _private_spans(out: Any) -> Spans:
    """Offset and end of the binary members of a ctypes object that identify a board or host."""
    if not isinstance(out, ctypes.Structure):
        return ()
    members = [getattr(type(out), name) for name, *_ in out._fields_ if name in _PRIVATE_MEMBERS]
    return tuple((member.offset, member.offset + member.size) for member in members)
