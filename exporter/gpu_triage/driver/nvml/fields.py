"""nvmlDeviceGetFieldValues in one call, like pynvml's wrapper but faster."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32
from functools import lru_cache
from typing import Any, Final

import pynvml

from gpu_triage.driver.nvml.lists import plain

FieldId = int | tuple[int, int]
"""A field ID of nvmlDeviceGetFieldValues, or a pair of field ID and scope ID (link, GPU or module)."""

_FieldValue: Final = plain(pynvml.c_nvmlFieldValue_t)
_KEPT_REQUESTS: Final = 256


def read_fields(handle: Any, wanted: Sequence[FieldId]) -> Sequence[Any]:
    """Read field values, in the order of `wanted`, as raw driver structs.

    Raises:
        pynvml.NVMLError: the call as a whole failed.
    """
    try:
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")  # noqa: SLF001 - as in driver/nvml/lists.py
    except pynvml.NVMLError_Uninitialized:
        # No library is loaded; pynvml's functions may have been replaced, so call those.
        return list(pynvml.nvmlDeviceGetFieldValues(handle, wanted))
    kind, content = _request(tuple(wanted))
    answers = kind.from_buffer_copy(content)
    code = call(handle, c_int32(len(wanted)), byref(answers))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return list(answers)


@lru_cache(_KEPT_REQUESTS)
def _request(wanted: tuple[FieldId, ...]) -> tuple[Any, bytes]:
    """Type and initial content of the request array; cached because the same few requests repeat."""
    kind = _FieldValue * len(wanted)
    request = kind()
    for entry, field in zip(request, wanted, strict=True):
        entry.fieldId, entry.scopeId = field if isinstance(field, tuple) else (field, 0)
    return kind, bytes(request)
