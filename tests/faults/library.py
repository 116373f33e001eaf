"""A fault between pynvml and the simulated library: each call passes it before, or instead of, its function."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pynvml
from tests.faults.hosts import HOSTS, USUAL
from tests.simulated_driver import devices_of

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Session
from gpu_triage.machine import NvmlLibrary
from gpu_triage.read.metrics.contract import GpuRound, runs
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage_simulator import VirtualClock, simulated_machine


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


@cache
def asked_by_collector() -> Mapping[str, tuple[str, ...]]:
    """Functions by the collector that calls them, each in the order of the calls."""
    clock = VirtualClock()
    with simulated_machine(HOSTS["two"](), clock=clock, when_looked_at=True) as simulated:
        library = FaultyLibrary(simulated.machine.nvml)
        session = Session(library)
        session.open()
        session.read_versions()
        first, *others = devices_of(session)
        asked = {}
        for collector in GPU_COLLECTORS:
            if not runs(collector, USUAL):
                continue
            reader = collector.reader(USUAL)
            for _ in range(2):
                # What is asked once a session, or of no GPU, a fault of GPU 0 does not meet: the second reading counts.
                library.asked.clear()
                first.unsupported.clear()
                reader(GpuRound(Inquiry(first), session.versions, tuple(others), simulated.machine, clock.now()))
                clock.advance(1.0)
            if library.asked:  # some ask the kernel alone
                asked[collector.name] = tuple(library.asked)
        session.close()
    return asked


def every_collector() -> frozenset[str]:
    """Collectors that read GPUs, those that ask the kernel alone included: without a driver none of them runs."""
    return frozenset(collector.name for collector in GPU_COLLECTORS if runs(collector, USUAL))


def callers_of(function: str) -> tuple[str, ...]:
    return tuple(name for name, functions in asked_by_collector().items() if function in functions)


def every_function() -> tuple[str, ...]:
    return tuple(sorted({function for functions in asked_by_collector().values() for function in functions}))
