"""A fault between pynvml and the simulated library: each call passes it before, or instead of, its function."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from gpu_triage.machine import NvmlLibrary


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the library sees it."""

    function: str  # exported name
    gpu: int | None  # NVML index of the GPU it is about; None where it is about none
    # the driver's index of the MIG instance it is about; None where it is about a whole GPU or none
    instance: int | None
    arguments: tuple[Any, ...]  # as pynvml passes them
    proceed: Callable[[], int]  # what the healthy library does; returns its code


Fault = Callable[[Call], int]
"""Answers a call in the library's place: its return code."""


def no_fault(call: Call) -> int:
    return call.proceed()


class FaultyLibrary:
    """The NvmlLibrary seam, and the library it loads."""

    def __init__(self, below: NvmlLibrary) -> None:
        self.fault: Fault = no_fault  # what calls pass
        self.hidden: frozenset[str] = frozenset()  # functions that are not exported
        # Exported names that were called about a GPU, in the order of their first call.
        self.asked: dict[str, None] = {}
        self._below = below.load()
        self._gpus: dict[int, int] = {}
        self._instances: dict[int, tuple[int, int]] = {}

    def load(self) -> object:
        """As NvmlLibrary; loading anew looks every function up anew."""
        pynvml._nvmlGetFunctionPointer_cache.clear()
        return self

    def hide(self, *functions: str) -> None:
        self.hidden = frozenset(functions)
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def __getattr__(self, name: str) -> Any:
        if name in self.hidden:
            raise AttributeError(f"libnvidia-ml.so.1: undefined symbol: {name}")
        function = getattr(self._below, name)
        if name == "nvmlErrorString":
            return function
        return lambda *arguments: self._call(name, function, arguments)

    def _call(self, name: str, function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
        by_index = name == "nvmlDeviceGetHandleByIndex_v2"
        gpu, instance = (_number(arguments[0]), None) if by_index else self._asked_of(arguments)
        if gpu is not None:
            self.asked[name] = None
        code = self.fault(Call(name, gpu, instance, arguments, lambda: function(*arguments)))
        if code == pynvml.NVML_SUCCESS and gpu is not None:
            if by_index:
                self._gpus[_address(arguments[1]._obj)] = gpu
            elif name == "nvmlDeviceGetMigDeviceHandleByIndex":
                self._instances[_address(arguments[2]._obj)] = (gpu, _number(arguments[1]))
        return code

    def _asked_of(self, arguments: tuple[Any, ...]) -> tuple[int | None, int | None]:
        if not arguments or not isinstance(arguments[0], pynvml.c_nvmlDevice_t):
            return None, None
        address = _address(arguments[0])
        return self._instances.get(address, (self._gpus.get(address), None))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _number(argument: Any) -> int:
    return int(getattr(argument, "value", argument))
