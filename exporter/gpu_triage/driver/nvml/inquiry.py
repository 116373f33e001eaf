"""NVML calls for one GPU with per-call error handling: unsupported, failed, or fatal for the round."""

import ctypes
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import pynvml

from gpu_triage.driver.nvml import nvml_errors
from gpu_triage.driver.nvml.lists import FieldId, fill, read_fields, read_list
from gpu_triage.driver.nvml.session import CurrentCall, Device
from gpu_triage.errors import GpuUnavailable

_NO_VALUE: Final = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})  # NVML_VALUE_NOT_AVAILABLE, as 32 and 64 bits
_NO_SIGNED_VALUE: Final = -1
"""The same as a signed number. Only in offsets may -1 be valid."""

_OF_FIELDS: Final = frozenset({pynvml.NVML_ERROR_INVALID_ARGUMENT})
"""Code of drivers that do not know a field; older ones may return it for the whole call."""
_OF_ROOT: Final = frozenset({pynvml.NVML_ERROR_NO_PERMISSION})

_MOST_FIELDS: Final = 128  # in one call; drivers take more

N = TypeVar("N", bound=float)

_DISTINGUISHING: Final = (int, ctypes.Structure, pynvml.c_nvmlDevice_t)
"""Argument types that are part of a call's identity."""

_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Inquiry:
    """NVML calls for one GPU. Records failures by name; unsupported calls just return None."""

    __slots__ = ("answered", "call", "device", "failures")

    def __init__(self, device: Device, call: CurrentCall | None = None) -> None:
        self.device = device
        self.call = call or CurrentCall()  # the NVML call in progress
        self.failures: list[str] = []  # error names so far, one entry per failed call
        self.answered = 0  # number of answers by the driver, including "not supported"

    def ask(self, function: str, *args: Any, absent: Collection[int] = ()) -> Any | None:
        """Call `pynvml.<function>(handle, *args)`; return None if unsupported, failed or not available.

        Structs to be filled are passed by reference, since pynvml does not do this itself. Codes in `absent` mean
        unsupported, too.
        """
        passed = (ctypes.byref(arg) if isinstance(arg, ctypes.Structure) else arg for arg in args)
        return self._ask(function, (self.device.handle, *passed), _question(function, args), absent=absent)

    def ask_library(self, function: str, *args: Any, about: tuple[int, ...] = ()) -> Any | None:
        """Like `ask`, for functions about this GPU that take no device handle.

        `about` is what a struct among the arguments requests, if this determines whether the call is supported.
        """
        return self._ask(function, args, (*_question(function, args), *about))

    def _ask(
        self,
        function: str,
        args: tuple[Any, ...],
        question: tuple[object, ...],
        wrapper: Callable[..., Any] | None = None,
        absent: Collection[int] = (),
    ) -> Any | None:
        if question in self.device.unsupported:
            return None
        self.call.function = function
        try:
            answer = (wrapper or getattr(pynvml, function))(*args)
        except pynvml.NVMLError as error:
            self._failed(function, error.value, question, absent)
            return None
        except nvml_errors.MALFORMED:
            self.failures.append("malformed")
            return None
        self.answered += 1
        return _decoded(answer)

    def ask_pair(self, function: str, peer: Device, *args: Any) -> Any | None:
        """Like `ask`, for a call about this GPU and a peer. "GPU lost" may mean the peer: recorded as ``peer_…``."""
        try:
            return self.ask(function, peer.handle, *args)
        except GpuUnavailable as gone:
            self.failures.append(f"peer_{gone.reason}")
            return None

    def ask_privileged(self, function: str, *args: Any) -> Any | None:
        """Like `ask`, for calls the driver only allows root: "no permission" means unsupported, not failed."""
        return self.ask(function, *args, absent=_OF_ROOT)

    def first(self, *functions: str, args: tuple[Any, ...] = ()) -> Any | None:
        for function in functions:
            answer = self.ask(function, *args)
            if answer is not None:
                return answer
        return None

    def fill(self, function: str, out: Any) -> bool:
        """Have a function fill a ctypes object that pynvml's wrapper does not return; False as None for `ask`."""
        return bool(self._ask(function, (function, self.device.handle, ctypes.byref(out)), (function,), fill))

    def many(self, function: str, *args: Any, about: tuple[int, ...] = ()) -> Sequence[Any] | None:
        """Call a list function of `nvml.lists`; empty if there are no entries, None as for `ask`.

        `about` are those of the arguments that determine whether the call is supported.
        """

        def entries() -> Sequence[Any]:
            try:
                return read_list(function, self.device.handle, *args, rooms=self.device.rooms)
            except pynvml.NVMLError as error:
                if error.value in nvml_errors.EMPTY:
                    return []
                raise

        return self._ask(function, (), (function, *about), entries)

    def fields(self, ids: Iterable[FieldId], *, offsets: bool = False) -> Mapping[FieldId, float]:
        """Values of the supported fields, in NVML's units; one driver call for up to 128 fields.

        Unsupported fields are missing, and not requested again. Of `offsets`, a -1 is a value if there is another.
        """
        wanted = [i for i in ids if ("field", i) not in self.device.unsupported]
        values: dict[FieldId, float] = {}
        for first in range(0, len(wanted), _MOST_FIELDS):
            values |= self._field_values(wanted[first : first + _MOST_FIELDS])
        if offsets and set(values.values()) != {_NO_SIGNED_VALUE}:
            return values
        return {field: value for field, value in values.items() if value != _NO_SIGNED_VALUE}

    def _field_values(self, wanted: list[FieldId]) -> dict[FieldId, float]:
        question = ("field", wanted[0]) if len(wanted) == 1 else ("fields", *wanted)
        answers = self._ask(
            "nvmlDeviceGetFieldValues", (self.device.handle, wanted), question, read_fields, absent=_OF_FIELDS
        )
        values: dict[FieldId, float] = {}
        if answers is None and question in self.device.unsupported and len(wanted) > 1:
            # A call may be rejected as a whole if none of its fields is available; others may work on their own.
            for field in wanted:
                values |= self._field_values([field])
            return values
        for wanted_id, answer in zip(wanted, answers or (), strict=False):
            code = answer.nvmlReturn
            if code == pynvml.NVML_SUCCESS:
                if not 0 <= answer.valueType < len(_VALUE_MEMBERS):
                    self.failures.append("malformed")
                    continue
                value: float = getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
                # Neither NaN or infinite, nor an integer's bits misread as a (denormal) double.
                if not math.isfinite(value) or 0 < abs(value) < sys.float_info.min:
                    self.failures.append("malformed")
                elif value not in _NO_VALUE:
                    values[wanted_id] = value
            else:
                self._failed(f"field {wanted_id}", code, ("field", wanted_id), _OF_FIELDS)
        return values

    def within(self, value: N | None, low: float, high: float) -> N | None:
        """Return `value` if within [low, high]; else None, recorded as ``implausible``: a sentinel or garbage."""
        if value is None or low <= value <= high:
            return value
        self.failures.append("implausible")
        return None

    def ratio(self, percent: float | None, most_percent: float = 100) -> float | None:
        """Convert a percentage to a ratio; None if missing or not within 0 and the maximum, recorded as in `within`."""
        plausible = self.within(percent, 0, most_percent)
        return None if plausible is None else plausible / 100

    def flag(self, value: int | None) -> bool | None:
        """Convert nvmlEnableState_t (0 or 1) to a bool; None for other values, recorded as in `within`."""
        state = self.within(value, 0, 1)
        return None if state is None else bool(state)

    def _failed(self, function: str, code: int, question: tuple[object, ...], absent: Collection[int]) -> None:
        if code in nvml_errors.UNSUPPORTED or code in absent:
            self.answered += 1
            self.device.unsupported.add(question)
        elif code in nvml_errors.EMPTY:
            self.answered += 1
        elif code in nvml_errors.GPU_GONE:
            raise GpuUnavailable(nvml_errors.name_of(code), function)
        elif code in nvml_errors.DRIVER_GONE:
            raise nvml_errors.driver_unavailable(pynvml.NVMLError(code))
        else:
            self.failures.append(nvml_errors.name_of(code))


def _decoded(answer: Any) -> Any:
    """Decode bytes that pynvml leaves undecoded, and replace NVML's "not available" values with None."""
    if isinstance(answer, int):
        return None if answer in _NO_VALUE else answer
    if isinstance(answer, (list, tuple)):
        return [_decoded(part) for part in answer]
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _question(function: str, args: tuple[Any, ...]) -> tuple[object, ...]:
    """Identity of a call for the unsupported cache: function, numbers, peer, and type of a struct to fill."""
    return (function, *[_identity(arg) for arg in args if isinstance(arg, _DISTINGUISHING)]) if args else (function,)


def _identity(arg: Any) -> object:
    if isinstance(arg, pynvml.c_nvmlDevice_t):
        return ctypes.cast(arg, ctypes.c_void_p).value
    return type(arg) if isinstance(arg, ctypes.Structure) else arg
