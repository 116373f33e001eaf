"""NVML's return codes as names and kinds: what is absent, what failed, and what ends a GPU or the driver."""

from __future__ import annotations

import ctypes
from typing import Final

import pynvml

from gpu_triage.errors import DriverReplaced, DriverUnavailable

NAMES: Final = {
    pynvml.NVML_ERROR_UNINITIALIZED: "uninitialized",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "invalid_argument",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no_permission",
    pynvml.NVML_ERROR_ALREADY_INITIALIZED: "already_initialized",
    pynvml.NVML_ERROR_NOT_FOUND: "not_found",
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: "insufficient_size",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "insufficient_power",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver_not_loaded",
    pynvml.NVML_ERROR_TIMEOUT: "timeout",
    pynvml.NVML_ERROR_IRQ_ISSUE: "irq_issue",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "library_not_found",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "function_not_found",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "corrupted_inforom",
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "operating_system",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
    pynvml.NVML_ERROR_IN_USE: "in_use",
    pynvml.NVML_ERROR_MEMORY: "memory",
    pynvml.NVML_ERROR_NO_DATA: "no_data",
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "insufficient_resources",
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "argument_version_mismatch",
    pynvml.NVML_ERROR_DEPRECATED: "deprecated",
    pynvml.NVML_ERROR_NOT_READY: "not_ready",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "gpu_not_found",
    pynvml.NVML_ERROR_INVALID_STATE: "invalid_state",
    pynvml.NVML_ERROR_UNKNOWN: "unknown",
}
"""Code to the name it has in labels. A code not listed is called ``error_<code>``: see `name_of`."""

UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""The driver or the board does not have it: absence, not failure."""

EMPTY: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA})
"""The driver has it, but nothing to tell now."""

GPU_GONE: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""Nothing more can be asked of this GPU."""

DRIVER_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Nothing more can be asked of any GPU until NVML is initialised again, or after a mismatch until a restart."""

MALFORMED: Final = (
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
    ctypes.ArgumentError,
    pynvml.NVMLLibraryMismatchError,
)
"""What pynvml's wrappers raise, other than NVMLError, over an answer or a library they did not expect."""


def name_of(code: int) -> str:
    """The label for an NVML return code (nvml.h, nvmlReturn_t); ``malformed`` for a number that can be none."""
    # Random numbers as labels would fill the store with series.
    return NAMES.get(code, f"error_{code}" if 0 <= code <= pynvml.NVML_ERROR_UNKNOWN else "malformed")


def driver_unavailable(error: pynvml.NVMLError) -> DriverUnavailable:
    """What it means for the driver as a whole that NVML answered, or could not be loaded, like this."""
    code = error.value
    cause = error.__context__
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverReplaced(
            "version_mismatch", "the loaded libnvidia-ml.so.1 is not of the running kernel driver's version"
        )
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND and isinstance(cause, OSError):
        # pynvml calls every failure to load "not found"; a file that is there but no library needs another remedy.
        missing = str(cause).startswith("libnvidia-ml.so.1:") and "No such file" in str(cause)
        return DriverUnavailable("library_not_found" if missing else "library_invalid", str(cause))
    # Not str(error): for a code it does not know, pynvml asks the library, which may be the very thing that is broken.
    return DriverUnavailable(name_of(code), f"NVML return code {code}")
