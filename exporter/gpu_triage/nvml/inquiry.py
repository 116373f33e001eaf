"""Questions to one GPU that fail one by one: what is absent, what failed, and what ends the round."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import pynvml

from gpu_triage.errors import GpuUnavailable
from gpu_triage.nvml.errors import (
    DRIVER_GONE,
    EMPTY,
    GPU_GONE,
    MALFORMED,
    UNSUPPORTED,
    driver_unavailable,
    name_of,
)
from gpu_triage.nvml.fields import FieldId, read_fields
from gpu_triage.nvml.lists import read_list
from gpu_triage.nvml.session import CurrentCall, Device

_NO_VALUE: Final = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""NVML_VALUE_NOT_AVAILABLE in its two widths."""

_NO_SIGNED_VALUE: Final = -1
"""The same as a signed number. No field asked for here is ever -1 otherwise."""

_INVALID_ARGUMENT: Final = name_of(pynvml.NVML_ERROR_INVALID_ARGUMENT)

_MOST_FIELDS: Final = 128  # in one call; drivers take more

N = TypeVar("N", bound=float)

_DISTINGUISHING: Final = (int, ctypes.Structure, pynvml.c_nvmlDevice_t)
"""Kinds of argument that tell one question from another."""

_VALUE_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Inquiry:
    """Questions to one GPU. Notes by name what failed; what is not supported is simply None.

    Attributes:
        device: the GPU asked.
        failures: names of errors so far, one entry a failed question.
        answered: questions the driver answered, "not supported" included.
        call: what is being asked right now.
    """

    __slots__ = ("answered", "call", "device", "failures")

    def __init__(self, device: Device, call: CurrentCall | None = None) -> None:
        self.device = device
        self.call = call or CurrentCall()
        self.failures: list[str] = []
        self.answered = 0

    def ask(self, function: str, *args: Any) -> Any | None:
        """What `pynvml.<function>(handle, *args)` answers; None where unsupported, failed or not available.

        A struct to be filled is passed by its address, which pynvml leaves to its callers.

        Raises:
            GpuUnavailable: the GPU is lost or must be reset; nothing more can be asked.
            DriverUnavailable: NVML as a whole is gone.
        """
        passed = (self.device.handle, *map(_passed, args)) if args else (self.device.handle,)
        return self._ask(function, passed, _question(function, args))

    def ask_library(self, function: str, *args: Any, about: tuple[int, ...] = ()) -> Any | None:
        """As `ask`, for functions about this GPU that take no handle: what they need is in `args`.

        Args:
            function: its name.
            args: its arguments.
            about: what a struct among them asks for, where that tells one question from another.
        """
        return self._ask(function, args, (*_question(function, args), *about))

    def _ask(
        self,
        function: str,
        args: tuple[Any, ...],
        question: tuple[object, ...],
        wrapper: Callable[..., Any] | None = None,
    ) -> Any | None:
        """As `ask`, with all arguments; through another wrapper than pynvml's where one is given."""
        if question in self.device.unsupported:
            return None
        self.call.function = function
        try:
            answer = (wrapper or getattr(pynvml, function))(*args)
        except pynvml.NVMLError as error:
            self._failed(function, error.value, question)
            return None
        except MALFORMED as error:
            self._malformed(error, question)
            return None
        self.answered += 1
        return _told(answer)

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

    def many(self, function: str, *args: Any) -> Sequence[Any] | None:
        """Entries that a function of `nvml_lists` answers; empty where there is nothing to list, None as in `ask`."""
        question = (function,)
        if question in self.device.unsupported:
            return None
        self.call.function = function
        try:
            answer = read_list(function, self.device.handle, *args, rooms=self.device.rooms)
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
        """Values of the fields that this GPU has, in NVML's units; one driver call for up to 128 of them.

        Fields the driver or the board lacks are left out and not asked again.
        """
        wanted = [i for i in ids if ("field", i) not in self.device.unsupported]
        values: dict[FieldId, float] = {}
        for first in range(0, len(wanted), _MOST_FIELDS):
            values |= self._field_values(wanted[first : first + _MOST_FIELDS])
        return values

    def _field_values(self, wanted: list[FieldId]) -> dict[FieldId, float]:
        question = ("field", wanted[0]) if len(wanted) == 1 else ("fields", *wanted)
        answers = self._field_answers(wanted, question)
        values: dict[FieldId, float] = {}
        if answers is None and question in self.device.unsupported and len(wanted) > 1:
            # A call may be refused as a whole when it could tell nothing; one of other fields may still tell something.
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
                if not _is_number(value):
                    self.failures.append("malformed")
                elif value not in _NO_VALUE and value != _NO_SIGNED_VALUE:
                    values[wanted_id] = value
            elif code in UNSUPPORTED or code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                # A driver older than the field calls its id an invalid argument.
                self.device.unsupported.add(("field", wanted_id))
            elif code not in EMPTY:
                self._failed(f"field {wanted_id}", code, ("field", wanted_id))
        return values

    def _field_answers(self, wanted: list[FieldId], question: tuple[object, ...]) -> Sequence[Any] | None:
        before = len(self.failures)
        answers: Sequence[Any] | None = self._ask(
            "nvmlDeviceGetFieldValues", (self.device.handle, wanted), question, read_fields
        )
        if self.failures[before:] == [_INVALID_ARGUMENT]:
            # What an older driver says of an id that it does not know, it may say of the whole call.
            del self.failures[before:]
            self.answered += 1
            self.device.unsupported.add(question)
        return answers

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
        if code in DRIVER_GONE:
            raise driver_unavailable(pynvml.NVMLError(code))
        self.failures.append(name_of(code))

    def _malformed(self, error: Exception, question: tuple[object, ...]) -> None:
        if isinstance(error, pynvml.NVMLLibraryMismatchError):
            # The unversioned process lists raise this where the symbol is missing.
            self.answered += 1
            self.device.unsupported.add(question)
            return
        self.failures.append("malformed")


def _is_number(value: float) -> bool:
    """Whether a field's value can be one: neither NaN nor infinite, nor an integer's bits read as a double."""
    return math.isfinite(value) and (value == 0 or abs(value) >= sys.float_info.min)


def _told(answer: Any) -> Any:
    """An answer as text where pynvml leaves it as bytes, and without what NVML writes for "not available"."""
    if isinstance(answer, int):
        return None if answer in _NO_VALUE else answer
    if isinstance(answer, (list, tuple)):
        return [_told(part) for part in answer]
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _question(function: str, args: tuple[Any, ...]) -> tuple[object, ...]:
    """What identifies a question that the GPU may not support: numbers, the peer, the kind of a struct to fill."""
    return (function, *[_identity(arg) for arg in args if isinstance(arg, _DISTINGUISHING)]) if args else (function,)


def _identity(arg: Any) -> object:
    if isinstance(arg, pynvml.c_nvmlDevice_t):
        return ctypes.cast(arg, ctypes.c_void_p).value
    return type(arg) if isinstance(arg, ctypes.Structure) else arg


def _passed(arg: Any) -> Any:
    return ctypes.byref(arg) if isinstance(arg, ctypes.Structure) else arg
