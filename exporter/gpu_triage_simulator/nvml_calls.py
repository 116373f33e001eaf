"""One exported NVML function: its name, its C signature, and its behavior."""

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, Structure, c_char, c_char_p, c_double, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from gpu_triage_simulator.nvml_library import SUCCESS, Failure
from gpu_triage_simulator.nvml_session import CallFaults, Device, MigDevice, NvmlSession, handle_address

S = TypeVar("S", bound=Structure)

OUT = c_void_p
"""An output pointer; not POINTER(type), because ctypes would then also accept a struct by value, which C does not."""

MigUse = Literal["gpu", "whole", "instance", "any"]

Scalar = type[c_int] | type[c_uint] | type[c_ulonglong] | type[c_double]


@dataclass(frozen=True, slots=True)
class Function:
    name: str  # as in the library's symbol table
    arguments: tuple[Any, ...]  # C types, after the device's handle if `on` is device
    # its implementation; receives a Device (or the NvmlSession) and the arguments, and may raise Failure
    body: Callable[..., None]
    # what it operates on; a handle function takes an index or UUID, and hangs with that GPU
    on: Literal["device", "handle", "library"] = "device"
    since: int = 0  # driver branch that first exports it
    until: int = 0  # driver branch from which on it only returns DEPRECATED; 0 for none
    feature: str | None = None  # feature the GPU model needs; NOT_SUPPORTED without it
    blocks_seconds: float = 0.0  # how long it measures before it returns
    # which devices it accepts. "gpu" rejects MIG devices, "whole" works only on GPUs without MIG, "instance" only on
    # MIG devices, and "any" on both.
    mig: MigUse = "gpu"


class NvmlFunction:
    """A function of the loaded library, callable like ctypes' own function pointers.

    Attributes:
        restype: callers may set it, as on a CDLL function.
    """

    def __init__(self, function: Function, session: NvmlSession, gate: CallFaults) -> None:
        self.restype: Any = c_int
        self._function = function
        self._session = session
        self._gate = gate
        arguments = ((c_void_p,) if function.on == "device" else ()) + function.arguments
        self._entry = CFUNCTYPE(c_int, *arguments)(self._run_on_device if function.on == "device" else self._run)

    def __call__(self, *arguments: Any) -> int:
        """The function's return code, after any delay the scenario has for it."""
        function = self._function
        if function.on == "device":
            device = self._session.find(handle_address(arguments[0])) if arguments else None
            code = self._gate.pass_device(function.name, device)
        elif function.on == "handle":
            code = self._gate.pass_device(function.name, self._wanted(arguments))
        else:
            code = self._gate.pass_device(function.name, None)
        if code:
            return code
        if function.blocks_seconds:
            self._session.host.delay(function.blocks_seconds)
        return int(self._entry(*arguments))

    def _wanted(self, arguments: tuple[Any, ...]) -> Device | None:
        """The device that a handle is requested for, by index or UUID."""
        key = getattr(arguments[0], "value", arguments[0]) if arguments else None
        for device in self._session.devices:
            if key == device.index or (isinstance(key, bytes) and key.decode() == device.state.gpu.uuid):
                return device
        return None

    def _run_on_device(self, handle: int | None, *arguments: Any) -> int:
        with self._session.host.lock:
            try:
                device = self._session.resolve(handle)
                _check_mig_use(self._function.mig, device)
                _check_deprecation(self._function.until, device)
                if self._function.feature is not None:
                    device.require(self._function.feature)
                self._function.body(device, *arguments)
            except Failure as failure:
                return failure.code
        return SUCCESS

    def _run(self, *arguments: Any) -> int:
        with self._session.host.lock:
            try:
                self._function.body(self._session, *arguments)
            except Failure as failure:
                return failure.code
        return SUCCESS


def _check_deprecation(until: int, device: Device) -> None:
    if 0 < until <= device.host.scenario.driver.branch:
        raise Failure("DEPRECATED")


def _check_mig_use(use: MigUse, device: Device) -> None:
    if isinstance(device, MigDevice):
        if use in ("gpu", "whole"):
            raise Failure("INVALID_ARGUMENT" if use == "gpu" else "NOT_SUPPORTED")
    elif use == "instance":
        raise Failure("INVALID_ARGUMENT")
    elif use == "whole" and device.state.conditions.mig is not None:
        raise Failure("NOT_SUPPORTED")


class ErrorString:
    """``nvmlErrorString``: the only function that returns text, in memory that stays valid."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.restype: Any = c_int
        self._texts = {code: ctypes.create_string_buffer(text.encode()) for code, text in texts.items()}
        self._unknown = ctypes.create_string_buffer(b"Unknown Error")
        self._entry = CFUNCTYPE(c_void_p, c_int)(self._address)

    def __call__(self, *arguments: Any) -> bytes | int:
        """Text of a return code; unless `restype` is c_char_p, its address truncated to an int, as ctypes does."""
        address = self._entry(*arguments)
        return ctypes.string_at(address) if self.restype is c_char_p else c_int(address).value

    def _address(self, code: int) -> int:
        return ctypes.addressof(self._texts.get(code, self._unknown))


def put(kind: Scalar, address: int | None, value: float) -> None:
    """Write a number to a pointer. Raises Failure: INVALID_ARGUMENT, for a null pointer."""
    if not address:
        raise Failure("INVALID_ARGUMENT")
    kind.from_address(address).value = value


def put_text(address: int | None, length: int, text: str) -> None:
    """Write text and its terminating null byte into a buffer.

    Raises:
        Failure: INSUFFICIENT_SIZE, or INVALID_ARGUMENT for a null pointer.
    """
    if not address:
        raise Failure("INVALID_ARGUMENT")
    raw = text.encode() + b"\0"
    if len(raw) > length:
        raise Failure("INSUFFICIENT_SIZE")
    (c_char * len(raw)).from_address(address).raw = raw


def at(kind: type[S], address: int | None, version: int | None = None) -> S:
    """The struct at an address, with its version checked if it has one.

    Raises:
        Failure: ARGUMENT_VERSION_MISMATCH, or INVALID_ARGUMENT for a null pointer.
    """
    if not address:
        raise Failure("INVALID_ARGUMENT")
    struct = kind.from_address(address)
    if version is not None and struct.version != version:
        raise Failure("ARGUMENT_VERSION_MISMATCH")
    return struct


def gauge(
    name: str,
    read: Callable[[Device], float],
    kind: Scalar = c_uint,
    since: int = 0,
    feature: str | None = None,
    *,
    mig: MigUse = "gpu",
) -> Function:
    """A function that writes one number of a device; `read` returns it in NVML's units."""

    def body(device: Device, out: int | None) -> None:
        put(kind, out, read(device))

    return Function(name, (OUT,), body, since=since, feature=feature, mig=mig)


def pair(
    name: str,
    read: Callable[[Device], tuple[int, int]],
    kind: Scalar = c_uint,
    since: int = 0,
    feature: str | None = None,
    *,
    mig: MigUse = "gpu",
) -> Function:
    """A function that writes two numbers of a device."""

    def body(device: Device, first: int | None, second: int | None) -> None:
        for address, value in zip((first, second), read(device), strict=True):
            put(kind, address, value)

    return Function(name, (OUT, OUT), body, since=since, feature=feature, mig=mig)


def text(name: str, read: Callable[[Device], str], feature: str | None = None, mig: MigUse = "gpu") -> Function:
    """A function that writes text about a device into a buffer."""

    def body(device: Device, out: int | None, length: int) -> None:
        put_text(out, length, read(device))

    return Function(name, (OUT, c_uint), body, feature=feature, mig=mig)
