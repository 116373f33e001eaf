"""The NVML session and its GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.driver.nvml.library_file import refuse_cut_short
from gpu_triage.driver.nvml.nvml_errors import DRIVER_GONE, MALFORMED, driver_unavailable, name_of
from gpu_triage.errors import DriverUnavailable
from gpu_triage.machine import NvmlLibrary

MAX_GPUS: Final = 256  # more than any host has; a higher count is treated as garbage
_MOST_CUDA_VERSION: Final = 100_000


@dataclass(eq=False, slots=True)
class Device:
    """One GPU of the current session."""

    index: int
    uuid: str
    pci_bus_id: str | None  # as in sysfs (``0000:65:00.0``); None if the driver does not report it
    handle: Any  # NVML's device handle; invalid after the session ends
    # Calls this GPU does not support, skipped until cleared.
    unsupported: set[tuple[object, ...]] = field(default_factory=set)
    rooms: dict[str, int] = field(default_factory=dict)  # buffer sizes for its lists, in entries by function


@dataclass(frozen=True, slots=True)
class DeniedDevice:
    """A GPU that NVML counts but returns no handle or UUID for; the reason is an error name (``no_permission``)."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class DriverVersions:
    """Versions of kernel driver, highest supported CUDA and NVML (``13.580.82.07``); None where a call failed."""

    driver: str | None
    cuda: str | None
    nvml: str | None


Identity = Device | DeniedDevice  # result of looking up one of the GPUs that NVML counts


@dataclass(slots=True)
class CurrentCall:
    """The NVML function being called, or called last; used to report what a hung call is waiting for."""

    function: str = ""


class Session:
    """An NVML session. Only one at a time: pynvml keeps its library in a module global."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self.versions = DriverVersions(None, None, None)
        self._references = 0

    def open(self, call: CurrentCall | None = None) -> None:
        """Load the library and initialize NVML (nvmlInitWithFlags); `call` records the call in progress."""
        try:
            stand_in = self._library.load()
            if stand_in is not None and pynvml.nvmlLib is not stand_in:
                pynvml.nvmlLib = stand_in
                # Cached function pointers still refer to the previous library.
                pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
            if pynvml.nvmlLib is None:
                refuse_cut_short()
            _note(call, "nvmlInitWithFlags")
            pynvml.nvmlInit()
            self._references += 1
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except (OSError, *MALFORMED) as error:
            raise DriverUnavailable("library_invalid", f"libnvidia-ml.so.1: {error}") from error
        self.versions = DriverVersions(None, None, None)

    def read_versions(self, call: CurrentCall | None = None, begin: Callable[[], None] = lambda: None) -> None:
        """Read the versions that are not known yet (nvmlSystemGetDriverVersion and similar). Never raises."""
        known = self.versions
        begin()
        driver = known.driver or _version("nvmlSystemGetDriverVersion", call)
        begin()
        cuda = known.cuda or _cuda_version(call)
        begin()
        self.versions = DriverVersions(driver, cuda, known.nvml or _version("nvmlSystemGetNVMLVersion", call))

    def close(self, call: CurrentCall | None = None) -> None:
        """Shut NVML down (nvmlShutdown) once per `open`; handles become invalid. Never raises."""
        _note(call, "nvmlShutdown")
        # NVML is reference-counted: until the count is 0, the GPUs stay open and a new nvmlInit has no effect.
        while self._references:
            self._references -= 1
            try:
                pynvml.nvmlShutdown()
            except (pynvml.NVMLError, *MALFORMED):
                # Either it is already shut down, or the driver is gone.
                continue

    def count(self, call: CurrentCall | None = None) -> int:
        """Number of GPUs NVML counts, reachable or not (nvmlDeviceGetCount); at most MAX_GPUS."""
        _note(call, "nvmlDeviceGetCount")
        try:
            count: int = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except MALFORMED as error:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount: {error}") from error
        if count > MAX_GPUS:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount reports {count} GPUs")
        return count


def identify(index: int, call: CurrentCall | None = None) -> Identity:
    """Identify one of the GPUs that NVML counts."""
    try:
        _note(call, "nvmlDeviceGetHandleByIndex")
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        _note(call, "nvmlDeviceGetUUID")
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError as error:
        if error.value in DRIVER_GONE:
            raise driver_unavailable(error) from error
        return DeniedDevice(index, name_of(error.value))
    except MALFORMED:
        return DeniedDevice(index, "malformed")
    _note(call, "nvmlDeviceGetPciInfo")
    try:
        bus_id = normalize_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    except (pynvml.NVMLError, *MALFORMED):
        bus_id = None
    return Device(index, uuid, bus_id, handle)


def version_numbers(version: str | None) -> tuple[int, ...]:
    """Numeric components of a version; the empty tuple, which compares lowest, if unknown or not numeric.

    >>> version_numbers("535.113.01"), version_numbers(None)
    ((535, 113, 1), ())
    """
    numbers: list[int] = []
    for part in (version or "").split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _note(call: CurrentCall | None, function: str) -> None:
    if call is not None:
        call.function = function


def _text(raw: str | bytes) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def _version(function: str, call: CurrentCall | None) -> str | None:
    _note(call, function)
    try:
        return _text(getattr(pynvml, function)())
    except (pynvml.NVMLError, *MALFORMED):
        return None


def _cuda_version(call: CurrentCall | None) -> str | None:
    _note(call, "nvmlSystemGetCudaDriverVersion")
    try:
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except (pynvml.NVMLError, *MALFORMED):
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if 0 < number < _MOST_CUDA_VERSION else None
