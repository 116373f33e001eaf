"""NVML functions that fill buffers: lists, and field values, faster than with pynvml's wrappers.

For a list, the driver fills a buffer, or returns the count if the buffer is too small. Process lists are requested with
a buffer sized by the previous call: the driver walks all its clients under its own lock, and asking for the count first
would make it do so twice. pynvml's wrappers allocate whatever the driver returns: a garbage count costs gigabytes.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from ctypes import Structure, byref, c_int32, c_uint, c_ulonglong
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pynvml


def plain(kind: Any) -> Any:
    """Create a struct type with the same members as one of pynvml's."""
    return type(kind.__name__, (Structure,), {"_fields_": kind._fields_})


MOST_ENTRIES: Final = 1 << 16
"""More than any real list: a GPU keeps a few hundred samples and runs a few thousand processes. Beyond is garbage."""


MOST_LISTED: Final = 950
"""Number of processes at which the driver truncates a list without an error (NV2080_CTRL_GPU_GET_PIDS_MAX_COUNT)."""

_CALLS: Final = 6  # calls at most for a list that outgrows its buffer
_FIRST_ROOM: Final = 64  # initial buffer size of a process list, in entries


_Process: Final = plain(pynvml.c_nvmlProcessInfo_v3_t)  # entry of the second and third version of the process lists


class _WideProcess(Structure):
    """Process list entry of drivers 535.43 to 535.86: c_nvmlProcessInfo_v3_t plus one member."""

    _fields_ = (*pynvml.c_nvmlProcessInfo_v3_t._fields_, ("usedGpuCcProtectedMemory", c_ulonglong))


class _Shape(NamedTuple):
    """Calling convention of a list function."""

    entry: Any
    # Builds the arguments after the handle from the count's address, the buffer and the caller's args.
    arguments: Callable[..., tuple[Any, ...]]
    grows: bool = True  # whether the list may grow between two calls; sample buffers have a fixed size
    first_room: int = 0  # initial buffer size in entries; 0 to request the count before the entries


_SHAPES: Final[Mapping[str, _Shape]] = {
    "nvmlDeviceGetProcessUtilization": _Shape(
        plain(pynvml.c_nvmlProcessUtilizationSample_t),
        lambda count, buffer, since_us: (buffer, count, c_ulonglong(since_us)),
        grows=False,
    ),
    "nvmlDeviceGetRetiredPages": _Shape(c_ulonglong, lambda count, buffer, cause: (c_uint(cause), count, buffer)),
    "nvmlDeviceGetSamples": _Shape(
        plain(pynvml.c_nvmlSample_t),
        lambda count, buffer, kind, since_us, value_type: (
            c_uint(kind),
            c_ulonglong(since_us),
            byref(value_type),
            count,
            buffer,
        ),
        grows=False,
    ),
    **{
        f"nvmlDeviceGet{kind}RunningProcesses_v{version}": _Shape(
            _Process, lambda count, buffer: (count, buffer), first_room=_FIRST_ROOM
        )
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in (2, 3)
    },
}


def read_list(function: str, handle: Any, *args: Any, rooms: MutableMapping[str, int] | None = None) -> Sequence[Any]:
    """Read a list of one GPU as a ctypes array of raw driver entries, which may be empty.

    Arguments are those of nvmlDeviceGetProcessUtilization (since, in µs), …RetiredPages (cause), …Samples (type,
    since, and a c_uint that receives the value type); a process list has none. `rooms` keeps this GPU's buffer sizes.
    """
    call = pynvml._nvmlGetFunctionPointer(function)  # noqa: SLF001 - pynvml has no public access to raw functions
    shape, rooms = _SHAPES[function], {} if rooms is None else rooms
    if function.endswith("_v3") and _processes_are_wide():
        shape = shape._replace(entry=_WideProcess)
    room = rooms.get(function, shape.first_room)
    for _ in range(_CALLS):
        count, buffer = c_uint(room), (shape.entry * room)() if room else None
        code = call(handle, *shape.arguments(byref(count), buffer, *args))
        if code == pynvml.NVML_SUCCESS and (room or not count.value):
            return [] if buffer is None else _written(function, shape, buffer, count.value)
        if code not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
            break
        if count.value > MOST_ENTRIES:
            raise ValueError(f"{function} counts {count.value} entries")
        room = 2 * max(room, count.value) + 5 if shape.grows else count.value
        if shape.first_room:
            rooms[function] = room
    raise pynvml.NVMLError(code)


def _written(function: str, shape: _Shape, buffer: Any, count: int) -> Sequence[Any]:
    room = len(buffer)
    if count > room:
        raise ValueError(f"{function} wrote {count} entries where there was room for {room}")
    entries: Sequence[Any] = (shape.entry * count).from_buffer(buffer)
    return entries


def _processes_are_wide() -> bool:
    """Whether version 3 of this library's process lists has the wide entries, which it does not report.

    Drivers 535.43 to 535.86 changed the entry without changing the version; 535.98 reverted this, and moved the new
    member to nvmlDeviceGetRunningProcessDetailList (github.com/XuehaiPan/nvitop, pull requests 79, 89 and 94).
    """
    return _exported("nvmlDeviceGetConfComputeMemSizeInfo") and not _exported("nvmlDeviceGetRunningProcessDetailList")


def _exported(function: str) -> bool:
    try:
        pynvml._nvmlGetFunctionPointer(function)  # noqa: SLF001 - as above
    except pynvml.NVMLError:
        return False
    return True


FieldId = int | tuple[int, int]
"""A field ID of nvmlDeviceGetFieldValues, or a pair of field ID and scope ID (link, GPU or module)."""

_FieldValue: Final = plain(pynvml.c_nvmlFieldValue_t)
_KEPT_REQUESTS: Final = 256


def read_fields(handle: Any, wanted: Sequence[FieldId]) -> Sequence[Any]:
    """Read field values, in the order of `wanted`, as raw driver structs."""
    kind, content = _request(tuple(wanted))
    answers = kind.from_buffer_copy(content)
    fill("nvmlDeviceGetFieldValues", handle, c_int32(len(wanted)), byref(answers))
    return list(answers)


def fill(function: str, handle: Any, *arguments: Any) -> bool:
    """Call a function that writes to its arguments, without pynvml's own wrapper of it."""
    code = pynvml._nvmlGetFunctionPointer(function)(handle, *arguments)  # noqa: SLF001 - as above
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return True


@lru_cache(_KEPT_REQUESTS)
def _request(wanted: tuple[FieldId, ...]) -> tuple[Any, bytes]:
    """Type and initial content of the request array; cached because the same few requests repeat."""
    kind = _FieldValue * len(wanted)
    request = kind()
    for entry, field in zip(request, wanted, strict=True):
        entry.fieldId, entry.scopeId = field if isinstance(field, tuple) else (field, 0)
    return kind, bytes(request)
