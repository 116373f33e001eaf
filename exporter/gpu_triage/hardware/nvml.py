"""The driver through NVML: a session, its GPUs, and questions to one GPU that fail one by one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pynvml

from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.hardware.nvml_errors import (
    DRIVER_GONE,
    EMPTY,
    GPU_GONE,
    MALFORMED,
    UNSUPPORTED,
    driver_unavailable,
    name_of,
)
from gpu_triage.hardware.pci_bus import normalise_bus_id
from gpu_triage.machine import NvmlLibrary

MAX_GPUS: Final = 256
"""More than any host has; a count above it is junk and not followed."""

_MOST_CUDA_VERSION: Final = 100_000

_NO_VALUE: Final = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""NVML_VALUE_NOT_AVAILABLE in its two widths."""

FieldId = int | tuple[int, int]
"""A field id of nvmlDeviceGetFieldValues, or a pair with its scope id (link, GPU or module)."""

N = TypeVar("N", bound=float)

_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(eq=False, slots=True)
class Device:
    """One GPU of the present session.

    Attributes:
        index: NVML index, 0-based; the label `gpu`.
        uuid: ``GPU-…``; the label `uuid`.
        pci_bus_id: as sysfs writes it (``0000:65:00.0``); None when the driver does not say.
        handle: NVML's device handle; dead after the session ends.
        unsupported: questions this GPU answered with "not supported", not asked again until cleared.
    """

    index: int
    uuid: str
    pci_bus_id: str | None
    handle: Any
    unsupported: set[tuple[object, ...]] = field(default_factory=set)


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


@dataclass(frozen=True, slots=True)
class Inventory:
    """What NVML counts now: every index is in one of the two tuples."""

    devices: tuple[Device, ...]
    denied: tuple[DeniedDevice, ...]

    @property
    def count(self) -> int:
        """GPUs that NVML counts, reachable or not."""
        return len(self.devices) + len(self.denied)


class Session:
    """NVML, initialised. One at a time: pynvml keeps its library in a module global."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self.versions = DriverVersions(None, None, None)
        self._references = 0

    def open(self) -> None:
        """Load the library and initialise NVML (nvmlInitWithFlags).

        Raises:
            DriverUnavailable: with the reason for gpu_driver_error_info.
        """
        try:
            stand_in = self._library.load()
            if stand_in is not None and pynvml.nvmlLib is not stand_in:
                pynvml.nvmlLib = stand_in
                # Looked-up functions outlive the library they came from.
                pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
            pynvml.nvmlInit()
            self._references += 1
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except (OSError, *MALFORMED) as error:
            raise DriverUnavailable("library_invalid", f"libnvidia-ml.so.1: {error}") from error
        self.versions = DriverVersions(
            driver=_version(pynvml.nvmlSystemGetDriverVersion),
            cuda=_cuda_version(),
            nvml=_version(pynvml.nvmlSystemGetNVMLVersion),
        )

    def close(self) -> None:
        """Shut NVML down (nvmlShutdown), however often it was opened; handles are dead afterwards. Never raises."""
        # NVML counts its users: as long as one is left, the GPUs stay held and a new nvmlInit changes nothing.
        while self._references:
            self._references -= 1
            try:
                pynvml.nvmlShutdown()
            except (pynvml.NVMLError, *MALFORMED):
                # There is nothing left to shut down, or nobody to do it.
                continue

    def inventory(self) -> Inventory:
        """Every GPU that NVML counts now (nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex).

        Raises:
            DriverUnavailable: NVML no longer answers as a whole.
        """
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise driver_unavailable(error) from error
        except MALFORMED as error:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount: {error}") from error
        if count > MAX_GPUS:
            raise DriverUnavailable("library_invalid", f"nvmlDeviceGetCount says {count} GPUs")
        devices: list[Device] = []
        denied: list[DeniedDevice] = []
        for index in range(count):
            try:
                devices.append(_device(index))
            except pynvml.NVMLError as error:
                if error.value in DRIVER_GONE or error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                    raise driver_unavailable(error) from error
                denied.append(DeniedDevice(index, name_of(error.value)))
            except MALFORMED:
                denied.append(DeniedDevice(index, "malformed"))
        return Inventory(tuple(devices), tuple(denied))


class Inquiry:
    """Questions to one GPU. Notes by name what failed; what is not supported is simply None.

    Attributes:
        device: the GPU asked.
        failures: names of errors so far, one entry a failed question.
        answered: questions the driver answered, "not supported" included.
    """

    __slots__ = ("answered", "device", "failures")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.failures: list[str] = []
        self.answered = 0

    def ask(self, function: str, *args: Any) -> Any | None:
        """What `pynvml.<function>(handle, *args)` answers; None where unsupported, failed or not available.

        Raises:
            GpuUnavailable: the GPU is lost or must be reset; nothing more can be asked.
            DriverUnavailable: NVML as a whole is gone.
        """
        question = _question(function, args)
        if question in self.device.unsupported:
            return None
        try:
            answer = getattr(pynvml, function)(self.device.handle, *args)
        except pynvml.NVMLError as error:
            self._failed(function, error.value, question)
            return None
        except MALFORMED as error:
            self._malformed(error, question)
            return None
        self.answered += 1
        return None if isinstance(answer, int) and answer in _NO_VALUE else answer

    def ask_pair(self, function: str, peer: Device, *args: Any) -> Any | None:
        """As `ask`, of this GPU and a peer at once: a GPU that is gone may be the peer, and is noted as ``peer_…``."""
        try:
            return self.ask(function, peer.handle, *args)
        except GpuUnavailable as gone:
            self.failures.append(f"peer_{gone.reason}")
            return None

    def ask_privileged(self, function: str, *args: Any) -> Any | None:
        """As `ask`, for questions the driver answers to root only: being refused is absence, not failure."""
        before = len(self.failures)
        answer = self.ask(function, *args)
        if self.failures[before:] == [name_of(pynvml.NVML_ERROR_NO_PERMISSION)]:
            del self.failures[before:]
            self.answered += 1
            self.device.unsupported.add(_question(function, args))
        return answer

    def first(self, *functions: str, args: tuple[Any, ...] = ()) -> Any | None:
        """What the first of several functions answers that has an answer: the newest API first."""
        for function in functions:
            answer = self.ask(function, *args)
            if answer is not None:
                return answer
        return None

    def many(self, function: str, *args: Any) -> list[Any] | None:
        """A list that `pynvml.<function>` answers; empty where there is nothing to list, None as in `ask`."""
        question = (function,)
        if question in self.device.unsupported:
            return None
        try:
            answer = list(getattr(pynvml, function)(self.device.handle, *args))
        except pynvml.NVMLError as error:
            if error.value in EMPTY:
                self.answered += 1
                return []
            self._failed(function, error.value, question)
            return None
        except MALFORMED as error:
            self._malformed(error, question)
            return None
        self.answered += 1
        return answer

    def fields(self, ids: Iterable[FieldId]) -> Mapping[FieldId, float]:
        """Values of the fields that this GPU has, in NVML's units; one driver call for all of them.

        Fields the driver or the board lacks are left out and not asked again.
        """
        wanted = [i for i in ids if ("field", i) not in self.device.unsupported]
        if not wanted:
            return {}
        answers = self.ask("nvmlDeviceGetFieldValues", wanted)
        values: dict[FieldId, float] = {}
        for wanted_id, answer in zip(wanted, answers or (), strict=False):
            code = answer.nvmlReturn
            if code == pynvml.NVML_SUCCESS:
                if not 0 <= answer.valueType < len(_VALUE_MEMBERS):
                    self.failures.append("malformed")
                    continue
                value: float = getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
                if value not in _NO_VALUE:
                    values[wanted_id] = value
            elif code in UNSUPPORTED or code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                # A driver older than the field calls its id an invalid argument.
                self.device.unsupported.add(("field", wanted_id))
            elif code not in EMPTY:
                self._failed(f"field {wanted_id}", code, ("field", wanted_id))
        return values

    def within(self, value: N | None, low: float, high: float) -> N | None:
        """`value` if it lies in [low, high]; else None, noted as ``implausible``: a sentinel or garbage."""
        if value is None or low <= value <= high:
            return value
        self.failures.append("implausible")
        return None

    def flag(self, value: int | None) -> bool | None:
        """`value` as a truth (nvmlEnableState_t: 0 or 1); None for any other, noted as in `within`."""
        state = self.within(value, 0, 1)
        return None if state is None else bool(state)

    def _failed(self, function: str, code: int, question: tuple[object, ...]) -> None:
        if code in UNSUPPORTED:
            self.answered += 1
            self.device.unsupported.add(question)
            return
        if code in EMPTY:
            self.answered += 1
            return
        if code in GPU_GONE:
            raise GpuUnavailable(name_of(code), function)
        if code in DRIVER_GONE or code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            raise driver_unavailable(pynvml.NVMLError(code))
        self.failures.append(name_of(code))

    def _malformed(self, error: Exception, question: tuple[object, ...]) -> None:
        if isinstance(error, pynvml.NVMLLibraryMismatchError):
            # The unversioned process lists raise this where the symbol is missing.
            self.answered += 1
            self.device.unsupported.add(question)
            return
        self.failures.append("malformed")


def _question(function: str, args: tuple[Any, ...]) -> tuple[object, ...]:
    """What identifies a question that the GPU may not support: its numbers and the peer, not structs to fill."""
    numbers = (
        ctypes.cast(arg, ctypes.c_void_p).value if isinstance(arg, pynvml.c_nvmlDevice_t) else arg for arg in args
    )
    return (function, *(number for number in numbers if isinstance(number, int)))


def _device(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    try:
        bus_id = normalise_bus_id(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
    except (pynvml.NVMLError, *MALFORMED):
        bus_id = None
    return Device(index, uuid, bus_id, handle)


def _text(raw: str | bytes) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def _version(read: Any) -> str | None:
    try:
        return _text(read())
    except (pynvml.NVMLError, *MALFORMED):
        return None


def _cuda_version() -> str | None:
    try:
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except (pynvml.NVMLError, *MALFORMED):
        return None
    return f"{number // 1000}.{number % 1000 // 10}" if 0 < number < _MOST_CUDA_VERSION else None
