"""Faults of calls: what the library answers instead, or when."""

import ctypes
import random
from collections.abc import Callable, Collection
from itertools import count

import pynvml
from tests.faults.files import Damaged
from tests.faults.library import Call
from tests.faults.stage import Stage

Begin = Callable[["Stage"], None]

CODES = {name: getattr(pynvml, name) for name in sorted(dir(pynvml)) if name.startswith("NVML_ERROR_")}
"""Every error code of nvml.h by its C name."""

FOREVER = float("inf")

OF_THE_LOOK = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3")
OUTPUTS = (ctypes.Structure, ctypes.Array, ctypes.c_uint, ctypes.c_int, ctypes.c_ulonglong, ctypes.c_ulong)


def nothing(_stage: Stage) -> None:
    """Leave the host as it is."""


def answers(code: int, *functions: str, gpus: Collection[int | None] = (0,)) -> Begin:
    """These functions (every one, if none is named) answer a code when asked about these GPUs."""

    def fault(call: Call) -> int:
        return code if _meant(call, functions, gpus) else call.proceed()

    return putting(fault)


def of_instance(code: int, instance: int, *but: str) -> Begin:
    """What is asked of one MIG instance of GPU 0 answers a code, except these functions."""

    def fault(call: Call) -> int:
        meant = (call.gpu, call.instance) == (0, instance) and call.function not in but
        return code if meant else call.proceed()

    return putting(fault)


def of_instance_handle(code: int, *instances: int) -> Begin:
    """The handles of these MIG instances of GPU 0 are given with a code."""

    def fault(call: Call) -> int:
        asked = call.function == "nvmlDeviceGetMigDeviceHandleByIndex" and call.gpu == 0
        return code if asked and call.arguments[1].value in instances else call.proceed()

    return putting(fault)


def takes(seconds: float, *functions: str, gpus: Collection[int | None] = (0,)) -> Begin:
    """These functions (every one, if none is named) take so long, when asked about these GPUs, as long as it holds."""

    def begin(stage: Stage) -> None:
        def fault(call: Call) -> int:
            if _meant(call, functions, gpus):
                stage.park(seconds)
            return call.proceed()

        stage.library.fault = fault

    return begin


def lacks(*functions: str) -> Begin:
    """The library does not export these functions."""

    def begin(stage: Stage) -> None:
        stage.library.hide(*functions)

    return begin


def says_count(number: int) -> Begin:
    return counting("nvmlDeviceGetCount_v2", number, gpu=None)


def counting(function: str, number: int, gpu: int | None = 0) -> Begin:
    """The last number that a function writes about a GPU is this one."""

    def fault(call: Call) -> int:
        code = call.proceed()
        if call.function == function and call.gpu == gpu:
            outs = [argument._obj for argument in call.arguments if hasattr(argument, "_obj")]
            outs[-1].value = number
        return code

    return putting(fault)


def filled(function: str, **members: int) -> Begin:
    """These members of the struct that a function writes about GPU 0 have these values."""

    def fault(call: Call) -> int:
        code = call.proceed()
        if call.function == function and call.gpu == 0:
            for name, value in members.items():
                setattr(call.arguments[1]._obj, name, value)
        return code

    return putting(fault)


def failing_fields(ids: Collection[int], code: int) -> Begin:
    """Each of these fields of GPU 0 has a code instead of a value; the call succeeds."""

    def fault(call: Call) -> int:
        answer = call.proceed()
        if call.function == "nvmlDeviceGetFieldValues" and call.gpu == 0:
            for entry in getattr(call.arguments[2], "_obj", call.arguments[2]):
                entry.nvmlReturn = code if entry.fieldId in ids else entry.nvmlReturn
        return answer

    return putting(fault)


def inventing_uuids(gpu: int, *, as_text: bool = True) -> Begin:
    """A GPU has another UUID whenever it is asked; or one that is not text."""
    invented = count()

    def fault(call: Call) -> int:
        code = call.proceed()
        if call.function == "nvmlDeviceGetUUID" and call.gpu == gpu:
            number = next(invented)
            call.arguments[1].value = f"GPU-{number:08x}".encode() if as_text else b"\xff\xfe\xfd"
        return code

    return putting(fault)


def with_fields(
    ids: Collection[int] | None, value: Callable[[int, int], int], *, value_type: int | None = None
) -> Begin:
    """Fields of GPU 0 (all, if None) have the value that a function of time in seconds and their own value says."""

    def begin(stage: Stage) -> None:
        def fault(call: Call) -> int:
            code = call.proceed()
            if call.function == "nvmlDeviceGetFieldValues" and call.gpu == 0:
                for entry in getattr(call.arguments[2], "_obj", call.arguments[2]):
                    if entry.nvmlReturn == pynvml.NVML_SUCCESS and (ids is None or entry.fieldId in ids):
                        entry.value.ullVal = value(stage.seconds, entry.value.ullVal)
                        entry.valueType = entry.valueType if value_type is None else value_type
            return code

        stage.library.fault = fault

    return begin


def garbled(seed: int) -> Begin:
    """Whatever GPU 0's functions write is overwritten with random bits."""
    chance = random.Random(seed)

    def fault(call: Call) -> int:
        code = call.proceed()
        if call.gpu == 0 and code == pynvml.NVML_SUCCESS and call.function not in OF_THE_LOOK:
            pointed = [getattr(argument, "_obj", argument) for argument in call.arguments[1:]]
            for target in pointed:
                if isinstance(target, OUTPUTS):
                    ctypes.memmove(
                        ctypes.addressof(target), chance.randbytes(ctypes.sizeof(target)), ctypes.sizeof(target)
                    )
        return code

    return putting(fault)


def damaging(*damaged: Damaged) -> Begin:
    """These files are damaged."""

    def begin(stage: Stage) -> None:
        stage.files.damaged = damaged

    return begin


def putting(fault: Callable[[Call], int]) -> Begin:
    """Every call passes this fault."""

    def begin(stage: Stage) -> None:
        stage.library.fault = fault

    return begin


def _meant(call: Call, functions: Collection[str], gpus: Collection[int | None]) -> bool:
    return (not functions or call.function in functions) and call.gpu in gpus
