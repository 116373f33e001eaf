"""The driver through NVML: a session and its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from gpu_triage.errors import DriverUnavailable
from gpu_triage.kernel.pci_bus import normalise_bus_id
from gpu_triage.machine import NvmlLibrary
from gpu_triage.nvml.errors import (
    DRIVER_GONE,
    MALFORMED,
    driver_unavailable,
    name_of,
)
from gpu_triage.nvml.library_file import refuse_cut_short

MAX_GPUS: Final = 256
"""More than any host has; a count above it is junk and not followed."""

_MOST_CUDA_VERSION: Final = 100_000


@dataclass(eq=False, slots=True)
class Device:
    """One GPU of the present session.

    Attributes:
        index: NVML index, 0-based; the label `gpu`.
        uuid: ``GPU-…``; the label `uuid`.
        pci_bus_id: as sysfs writes it (``0000:65:00.0``); None when the driver does not say.
        handle: NVML's device handle; dead after the session ends.
        unsupported: questions this GPU answered with "not supported", not asked again until cleared.
        rooms: entries that its lists had room for the last time, by function.
    """

    index: int
    uuid: str
    pci_bus_id: str | None
    handle: Any
    unsupported: set[tuple[object, ...]] = field(default_factory=set)
    rooms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeniedDevice:
    """A GPU that NVML counts but gives no handle for.

    Attributes:
        index: NVML index.
        reason: snake_case name of the error (``no_permission``, ``lost``, …).
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class DriverVersions:
    """Versions of the driver stack; None where a call failed.

    Attributes:
        driver: kernel driver (``580.82.07``).
        cuda: highest CUDA the driver supports (``13.0``).
        nvml: the NVML library (``13.580.82.07``).
    """

    driver: str | None
    cuda: str | None
    nvml: str | None


Identity = Device | DeniedDevice
"""What NVML answers when it is asked for one of the GPUs it counts."""


@dataclass(slots=True)
class CurrentCall:
    """The function of NVML that is being called, or was last, for whoever wonders why nothing comes back."""

    function: str = ""


class Session:
    """NVML, initialised. One at a time: pynvml keeps its library in a module global."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self.versions = DriverVersions(None, None, None)
        self._references = 0

    def open(self, call: CurrentCall | None = None) -> None:
        """Load the library and initialise NVML (nvmlInitWithFlags).

        Args:
            call: is told what is being called.

        Raises:
            DriverUnavailable: with the reason for gpu_driver_error_info.
        """
        try:
            stand_in = self._library.load()
            if stand_in is not None and pynvml.nvmlLib is not stand_in:
                pynvml.nvmlLib = stand_in
                # Looked-up functions outlive the library they came from.
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
        """Take in the versions that are not known yet (nvmlSystemGetDriverVersion and its like). Never raises.

        Args:
            call: is told what is being called.
            begin: called before each call.
        """
        known = self.versions
        begin()
        driver = known.driver or _version("nvmlSystemGetDriverVersion", call)
        begin()
        cuda = known.cuda or _cuda_version(call)
        begin()
        self.versions = DriverVersions(driver, cuda, known.nvml or _version("nvmlSystemGetNVMLVersion", call))

    def close(self, call: CurrentCall | None = None) -> None:
        """Shut NVML down (nvmlShutdown), however often it was opened; handles are dead afterwards. Never raises."""
        _note(call, "nvmlShutdown")
        # NVML counts its users: as long as one is left, the GPUs stay held and a new nvmlInit changes nothing.
        while self._references:
            self._references -= 1
            try:
                pynvml.nvmlShutdown()
            except (pynvml.NVMLError, *MALFORMED):
                # There is nothing left to shut down, or nobody to do it.
                continue

    def count(self, call: CurrentCall | None = None) -> int:
        """How many GPUs NVML counts now, reachable or not (nvmlDeviceGetCount); at most MAX_GPUS.

        Raises:
            DriverUnavailable: NVML no longer answers as a whole.
        """
        _note(call, "nvmlDeviceGetCount")
        try:
            count: int = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except MALFORMED as error:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount: {error}") from error
        if count > MAX_GPUS:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount says {count} GPUs")
        return count


def identify(index: int, call: CurrentCall | None = None) -> Identity:
    """One of the GPUs that NVML counts (nvmlDeviceGetHandleByIndex, nvmlDeviceGetUUID, nvmlDeviceGetPciInfo).

    Args:
        index: NVML index.
        call: is told what is being called.

    Raises:
        DriverUnavailable: NVML no longer answers as a whole.
    """
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
        bus_id = normalise_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    except (pynvml.NVMLError, *MALFORMED):
        bus_id = None
    return Device(index, uuid, bus_id, handle)


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
