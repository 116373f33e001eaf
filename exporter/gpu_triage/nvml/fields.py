"""Fields of nvmlDeviceGetFieldValues, asked in one call; what differs from pynvml's wrapper is the time it takes."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32
from functools import lru_cache
from typing import Any, Final

import pynvml

from gpu_triage.nvml.plain import plain

FieldId = int | tuple[int, int]
"""A field id of nvmlDeviceGetFieldValues, or a pair with its scope id (link, GPU or module)."""

_FieldValue: Final = plain(pynvml.c_nvmlFieldValue_t)
_KEPT_REQUESTS: Final = 256


def read_fields(handle: Any, wanted: Sequence[FieldId]) -> Sequence[Any]:
    """The answers in the order of the fields, as the driver wrote them.

    Raises:
        pynvml.NVMLError: as the function answers.
    """
    try:
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")  # noqa: SLF001 - as in nvml/lists.py
    except pynvml.NVMLError_Uninitialized:
        # With no library below it, somebody may have put theirs in pynvml's place.
        return list(pynvml.nvmlDeviceGetFieldValues(handle, wanted))
    kind, content = _request(tuple(wanted))
    answers = kind.from_buffer_copy(content)
    code = call(handle, c_int32(len(wanted)), byref(answers))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return list(answers)


@lru_cache(_KEPT_REQUESTS)
def _request(wanted: tuple[FieldId, ...]) -> tuple[Any, bytes]:
    """Type and content of the array that asks for these fields: the same few are asked for again and again."""
    kind = _FieldValue * len(wanted)
    request = kind()
    for entry, field in zip(request, wanted, strict=True):
        entry.fieldId, entry.scopeId = field if isinstance(field, tuple) else (field, 0)
    return kind, bytes(request)
