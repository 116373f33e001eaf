"""Map NVML return codes to names, and classify them: unsupported, empty, GPU gone, driver gone, or failed."""

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
"""Label value of each code. Codes not listed become ``error_<code>``: see `name_of`."""

UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Not supported by the driver or the board: treated as absent, not as failed."""

EMPTY: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA})
"""Supported, but there is currently no data."""

GPU_GONE: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""The GPU no longer answers any call."""

DRIVER_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""No GPU answers until NVML is reinitialized, or after a version mismatch until the exporter restarts."""

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
"""What pynvml's wrappers raise, besides NVMLError, for an unexpected answer or library."""


def name_of(code: int) -> str:
    """Label value for an NVML return code (nvml.h, nvmlReturn_t); ``malformed`` for a number outside its range."""
    # Arbitrary numbers as label values would create unbounded series.
    return NAMES.get(code, f"error_{code}" if 0 <= code <= pynvml.NVML_ERROR_UNKNOWN else "malformed")


def driver_unavailable(error: pynvml.NVMLError) -> DriverUnavailable:
    """Convert an NVML error into a DriverUnavailable that explains why NVML as a whole cannot be used."""
    code = error.value
    cause = error.__context__
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverReplaced(
            "version_mismatch", "the loaded libnvidia-ml.so.1 is not of the running kernel driver's version"
        )
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND and isinstance(cause, OSError):
        # pynvml reports every load failure as "not found"; a file that is not a valid library needs another fix.
        missing = str(cause).startswith("libnvidia-ml.so.1:") and "No such file" in str(cause)
        return DriverUnavailable("library_not_found" if missing else "library_invalid", str(cause))
    # Not str(error): for unknown codes, pynvml calls the library, which may be what is broken.
    return DriverUnavailable(name_of(code), f"NVML return code {code}")
