"""The NVML session and its GPUs."""

from collections.abc import Callable
from contextlib import suppress
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
    """Calls NVML, and has the function being called, or called last: what a hung call is waiting for."""

    function: str = ""

    def make(self, function: str, *args: Any) -> Any:
        """Call `pynvml.<function>(*args)`."""
        self.function = function
        return getattr(pynvml, function)(*args)


class Session:
    """An NVML session. Only one at a time: pynvml keeps its library in a module global."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self.call = CurrentCall()
        self.versions = DriverVersions(None, None, None)
        self._references = 0

    def open(self) -> None:
        """Load the library and initialize NVML (nvmlInitWithFlags)."""
        try:
            stand_in = self._library.load()
            if stand_in is not None and pynvml.nvmlLib is not stand_in:
                pynvml.nvmlLib = stand_in
                # Cached function pointers still refer to the previous library.
                pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
            if pynvml.nvmlLib is None:
                refuse_cut_short()
            self.call.make("nvmlInitWithFlags", 0)
            self._references += 1
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except (OSError, *MALFORMED) as error:
            raise DriverUnavailable("library_invalid", f"libnvidia-ml.so.1: {error}") from error
        self.versions = DriverVersions(None, None, None)

    def read_versions(self, begin: Callable[[], None] = lambda: None) -> None:
        """Read the versions that are not known yet (nvmlSystemGetDriverVersion and similar). Never raises."""
        known = self.versions
        begin()
        driver = known.driver or self._answer("nvmlSystemGetDriverVersion")
        begin()
        cuda = known.cuda or _cuda_version(self._answer("nvmlSystemGetCudaDriverVersion_v2"))
        begin()
        self.versions = DriverVersions(driver, cuda, known.nvml or self._answer("nvmlSystemGetNVMLVersion"))

    def close(self) -> None:
        """Shut NVML down (nvmlShutdown) once per `open`; handles become invalid. Never raises."""
        # NVML is reference-counted: until the count is 0, the GPUs stay open and a new nvmlInit has no effect.
        while self._references:
            self._references -= 1
            # It may be shut down already, or the driver gone.
            with suppress(pynvml.NVMLError, *MALFORMED):
                self.call.make("nvmlShutdown")

    def count(self) -> int:
        """Number of GPUs NVML counts, reachable or not (nvmlDeviceGetCount); at most MAX_GPUS."""
        try:
            count: int = self.call.make("nvmlDeviceGetCount")
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except MALFORMED as error:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount: {error}") from error
        if count > MAX_GPUS:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount reports {count} GPUs")
        return count

    def _answer(self, function: str) -> Any | None:
        try:
            return _text(self.call.make(function))
        except (pynvml.NVMLError, *MALFORMED):
            return None


def identify(index: int, call: CurrentCall) -> Identity:
    """Identify one of the GPUs that NVML counts."""
    try:
        handle = call.make("nvmlDeviceGetHandleByIndex", index)
        uuid = _text(call.make("nvmlDeviceGetUUID", handle))
    except pynvml.NVMLError as error:
        if error.value in DRIVER_GONE:
            raise driver_unavailable(error) from error
        return DeniedDevice(index, name_of(error.value))
    except MALFORMED:
        return DeniedDevice(index, "malformed")
    try:
        bus_id = bus_id_of(handle, call)
    except (pynvml.NVMLError, *MALFORMED):
        bus_id = None
    return Device(index, uuid, bus_id, handle)


def bus_id_of(handle: Any, call: CurrentCall) -> str:
    """PCI address of a GPU as in sysfs (nvmlDeviceGetPciInfo); raises NVMLError, or one of MALFORMED."""
    return normalize_bus_id(_text(call.make("nvmlDeviceGetPciInfo", handle).busId))


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


def _text(raw: Any) -> Any:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def _cuda_version(number: int | None) -> str | None:
    """``13.0`` for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}" if number and 0 < number < _MOST_CUDA_VERSION else None
