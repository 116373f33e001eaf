"""Map NVML return codes to names, and classify them: unsupported, empty, GPU gone, driver gone, or failed."""

import ctypes
from collections.abc import Mapping
from typing import Final

import pynvml

from gpu_triage.errors import DriverReplaced, DriverUnavailable

_NOT_SUPPORTED: Final = "not_supported"

NAMES: Final[Mapping[int, str]] = {
    **{
        code: name.removeprefix("NVML_ERROR_").lower()
        for name, code in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and name != "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED"  # no answer to a query
    },
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "version_mismatch",
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: _NOT_SUPPORTED,
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED: _NOT_SUPPORTED,
}
"""Label value of each code. Codes that pynvml does not have become ``error_<code>``: see `name_of`."""

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
    {pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
)
"""No GPU answers until NVML is reinitialized, or after a version mismatch until the exporter restarts."""

MALFORMED: Final = (
    *(TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError, MemoryError),
    ctypes.ArgumentError,
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
