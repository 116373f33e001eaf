"""Initialisation, handles and what stands between a caller and a GPU: the library's own state."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any, Final

from gpu_triage.simulator import effects, host_effects
from gpu_triage.simulator.gpu_state import Gauges, GpuState
from gpu_triage.simulator.host import SimulatedHost
from gpu_triage.simulator.model import GpuModel
from gpu_triage.simulator.nvml_library import CODES, Failure
from gpu_triage.simulator.scenario import MigDevice

_FIRST_HANDLE: Final = 0x7F5A_0000_0000
_HANDLE_SPACING: Final = 0x1000
_MIG_SPACING: Final = 0x10
_EPOCH_SPACING: Final = 0x10_0000
_FIRST_SAMPLE: Final = 0x7F5B_0000_0000


class Device:
    """One GPU as one initialisation of NVML sees it.

    Attributes:
        session: the library it belongs to.
        host: the host it is in.
        state: the GPU.
        index: NVML's number of it.
        handle: address that callers know it by.
        mig: which part of the GPU it is; None for the whole.
    """

    __slots__ = ("handle", "host", "index", "mig", "session", "state")

    session: NvmlSession
    host: SimulatedHost
    state: GpuState
    index: int
    handle: int
    mig: MigDevice | None

    def __init__(
        self, session: NvmlSession, state: GpuState, index: int, handle: int, mig: MigDevice | None = None
    ) -> None:
        self.session = session
        self.host = session.host
        self.state = state
        self.index = index
        self.handle = handle
        self.mig = mig

    @property
    def model(self) -> GpuModel:
        """Its data sheet."""
        return self.state.gpu.model

    @property
    def gauges(self) -> Gauges:
        """What it shows now."""
        return self.state.gauges

    def peer(self, handle: int | None) -> Device:
        """Another device (or this one) by its handle.

        Raises:
            Failure: INVALID_ARGUMENT, where the handle is stale.
        """
        device = self.session.find(handle)
        if device is None:
            raise Failure("INVALID_ARGUMENT")
        return device

    def part(self, number: int) -> int:
        """Handle of one of its MIG devices, numbered from 0.

        Raises:
            Failure: NOT_FOUND, where there is none of that number.
        """
        if number >= len(self.state.gpu.mig):
            raise Failure("NOT_FOUND")
        return self.handle + (number + 1) * _MIG_SPACING

    def require(self, feature: str) -> None:
        """Refuse where the model lacks a feature.

        Raises:
            Failure: NOT_SUPPORTED.
        """
        if feature not in self.model.features:
            raise Failure("NOT_SUPPORTED")


class NvmlSession:
    """Reference-counted initialisation; handles die with the last shutdown. The host's lock guards it.

    Attributes:
        devices: the GPUs, by NVML's index.
        samples: GPM samples by address, None until one is taken.
    """

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.devices: tuple[Device, ...] = ()
        self.samples: dict[int, object] = {}
        self._by_handle: dict[int, Device] = {}
        self._next_sample = _FIRST_SAMPLE
        self._references = 0
        self._epoch = 0
        self._initialised_at = -1.0

    def initialise(self) -> None:
        """Count one more user; the first finds the GPUs.

        Raises:
            Failure: the driver cannot be used.
        """
        seconds = self.host.advance()
        self._check_driver(seconds)
        if self._references == 0:
            self._epoch += 1
            self._initialised_at = seconds
            first = _FIRST_HANDLE + self._epoch * _EPOCH_SPACING
            present = [gpu for gpu in self.host.gpus if not gpu.conditions.removed]
            self.devices = tuple(Device(self, gpu, i, first + i * _HANDLE_SPACING) for i, gpu in enumerate(present))
            self._by_handle = {device.handle: device for device in self.devices}
            for device in self.devices:
                for i, mig in enumerate(device.state.gpu.mig, start=1):
                    handle = device.handle + i * _MIG_SPACING
                    self._by_handle[handle] = Device(self, device.state, device.index, handle, mig)
        self._references += 1

    def shut_down(self) -> None:
        """Count one user less; with the last, every handle dies.

        Raises:
            Failure: UNINITIALIZED.
        """
        self.require_initialised()
        self._references -= 1
        if self._references == 0:
            self.devices = ()
            self.samples = {}
            self._by_handle = {}

    def require_initialised(self) -> float:
        """Scenario time, the GPUs brought to it.

        Raises:
            Failure: NVML is not initialised, or the driver is gone.
        """
        if self._references == 0:
            raise Failure("UNINITIALIZED")
        seconds = self.host.advance()
        self._check_driver(seconds)
        return seconds

    def new_sample(self) -> int:
        """Address of a new GPM sample."""
        self._next_sample += _HANDLE_SPACING
        self.samples[self._next_sample] = None
        return self._next_sample

    def find(self, handle: int | None) -> Device | None:
        """The device of a handle that is alive."""
        return self._by_handle.get(handle) if handle else None

    def resolve(self, handle: int | None) -> Device:
        """The device of a handle, ready to answer.

        Raises:
            Failure: the handle is stale, or the GPU lost or in need of a reset.
        """
        seconds = self.require_initialised()
        device = self.find(handle)
        if device is None:
            raise Failure("INVALID_ARGUMENT")
        self._check_device(device, seconds)
        return device

    def hand_out(self, device: Device) -> int:
        """The handle of a device.

        Raises:
            Failure: it is denied, lost, or in need of a reset.
        """
        if device.state.conditions.denied:
            raise Failure("NO_PERMISSION")
        self._check_device(device, self.host.seconds())
        return device.handle

    def _check_device(self, device: Device, seconds: float) -> None:
        if self.host.timeline.lost(device.state.index, seconds, self._initialised_at):
            raise Failure("GPU_IS_LOST")
        conditions = device.state.conditions
        if conditions.removed:
            raise Failure("GPU_IS_LOST")
        if conditions.reset_required:
            raise Failure("RESET_REQUIRED")

    def _check_driver(self, seconds: float) -> None:
        timeline = self.host.timeline
        if timeline.host_active(host_effects.LibraryMissing, seconds):
            raise Failure("LIBRARY_NOT_FOUND")
        if timeline.host_active(host_effects.DriverNotLoaded, seconds):
            raise Failure("DRIVER_NOT_LOADED")
        if timeline.host_active(host_effects.VersionMismatch, seconds):
            raise Failure("LIB_RM_VERSION_MISMATCH")


class Gate:
    """What happens to a call before it reaches its function: hangs, delays and errors of the timeline."""

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        timeline = session.host.timeline
        self._faulty = tuple(
            index
            for index in range(len(session.host.gpus))
            if any(any(timeline.of(kind, index)) for kind in (effects.Hang, effects.Slow, effects.CallError))
        )
        self._missing = tuple(timeline.host(host_effects.MissingFunction))

    def missing(self, name: str) -> bool:
        """Whether a function is not in the library now."""
        return bool(self._missing) and any(
            effect.function == name and event.active(self._session.host.seconds()) for event, effect in self._missing
        )

    def pass_device(self, name: str, device: Device | None) -> int:
        """Let a call on a device wait as long as it must; returns the code it fails with, or 0.

        Raises:
            Blocked: on a virtual clock, instead of waiting.
        """
        if self._missing and self.missing(name):
            return CODES["FUNCTION_NOT_FOUND"]
        if device is None or device.state.index not in self._faulty:
            return 0
        host, gpu = self._session.host, device.state.index
        timeline = host.timeline
        while not host.released and (until := self._hang_ends(gpu)) is not None:
            host.block(until - host.seconds())
        seconds = host.seconds()
        for event, slow in timeline.of(effects.Slow, gpu):
            if event.active(seconds):
                host.delay(slow.milliseconds / 1000.0)
        for event, error in timeline.of(effects.CallError, gpu):
            if error.function == name and event.active(seconds):
                return CODES[error.code]
        return 0

    def _hang_ends(self, gpu: int) -> float | None:
        """Scenario time at which a hang ends, infinite if never; None while there is none."""
        host = self._session.host
        seconds = host.seconds()
        ends = [event.until for event, _ in host.timeline.of(effects.Hang, gpu) if event.active(seconds)]
        return max((float("inf") if end is None else float(end) for end in ends), default=None)


def handle_address(argument: Any) -> int | None:
    """The address in a handle as pynvml passes it; None for what is no handle."""
    try:
        return c_void_p.from_buffer(argument).value
    except TypeError:
        return None
