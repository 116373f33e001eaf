"""A fault between pynvml and the simulated library: each call passes it before, or instead of, its function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

if TYPE_CHECKING:
    from gpu_triage.machine import NvmlLibrary


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the library sees it.

    Attributes:
        function: exported name.
        gpu: NVML index of the GPU it is about; None where it is about none.
        arguments: as pynvml passes them.
        proceed: what the healthy library does; returns its code.
    """

    function: str
    gpu: int | None
    arguments: tuple[Any, ...]
    proceed: Callable[[], int]


Fault = Callable[[Call], int]
"""Answers a call in the library's place: its return code."""


def no_fault(call: Call) -> int:
    """The healthy library."""
    return call.proceed()


class FaultyLibrary:
    """The NvmlLibrary seam, and the library it loads.

    Attributes:
        fault: what calls pass.
        hidden: functions that are not exported.
        asked: exported names that were called, in the order of their first call.
    """

    def __init__(self, below: NvmlLibrary) -> None:
        self.fault: Fault = no_fault
        self.hidden: frozenset[str] = frozenset()
        self.asked: dict[str, None] = {}
        self._below = below.load()
        self._gpus: dict[int, int] = {}

    def load(self) -> object:
        """As NvmlLibrary; loading anew looks every function up anew."""
        pynvml._nvmlGetFunctionPointer_cache.clear()
        return self

    def hide(self, *functions: str) -> None:
        """Export these no more, as another version of the library would."""
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
        self.asked[name] = None
        by_index = name == "nvmlDeviceGetHandleByIndex_v2"
        gpu = int(getattr(arguments[0], "value", arguments[0])) if by_index else self._gpu_of(arguments)
        code = self.fault(Call(name, gpu, arguments, lambda: function(*arguments)))
        if by_index and code == pynvml.NVML_SUCCESS and gpu is not None:
            address = ctypes.cast(arguments[1]._obj, ctypes.c_void_p).value
            self._gpus[address or 0] = gpu
        return code

    def _gpu_of(self, arguments: tuple[Any, ...]) -> int | None:
        if not arguments or not isinstance(arguments[0], pynvml.c_nvmlDevice_t):
            return None
        return self._gpus.get(ctypes.cast(arguments[0], ctypes.c_void_p).value or 0)
