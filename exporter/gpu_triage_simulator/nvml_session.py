"""NVML initialization, device handles, and injected faults: the library's own state."""

from __future__ import annotations

import uuid
from ctypes import c_void_p
from typing import Any, Final

from gpu_triage_simulator import effects, host_effects
from gpu_triage_simulator.gauges import Gauges
from gpu_triage_simulator.gpu_state import GpuState
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.model import GpuModel
from gpu_triage_simulator.nvml_library import CODES, Failure

_FIRST_HANDLE: Final = 0x7F5A_0000_0000
_HANDLE_SPACING: Final = 0x1000
_EPOCH_SPACING: Final = 0x10_0000
_MIG_HANDLE_SPACING: Final = 0x100
_FIRST_ALLOCATION: Final = 0x7F5B_0000_0000

MOST_MIG_DEVICES: Final = 7
"""Maximum number of MIG devices of a GPU."""


class Device:
    __slots__ = ("handle", "host", "index", "session", "state")

    session: NvmlSession  # the library it belongs to
    host: SimulatedHost  # the host it is in
    state: GpuState  # the GPU
    index: int  # its NVML index
    handle: int  # address that callers use for it

    def __init__(self, session: NvmlSession, state: GpuState, index: int, handle: int) -> None:
        self.session = session
        self.host = session.host
        self.state = state
        self.index = index
        self.handle = handle

    @property
    def uuid(self) -> str:
        return self.state.gpu.uuid

    @property
    def model(self) -> GpuModel:
        return self.state.gpu.model

    @property
    def gauges(self) -> Gauges:
        return self.state.gauges

    def peer(self, handle: int | None) -> Device:
        """A device (perhaps this one) by its handle. Raises Failure: INVALID_ARGUMENT, if the handle is stale."""
        device = self.session.find(handle)
        if device is None:
            raise Failure("INVALID_ARGUMENT")
        return device

    def mig_device(self, slot: int) -> MigDevice | None:
        """The MIG device that has this index now, or None."""
        layout = self.state.conditions.mig
        instance = layout.instances.get(slot) if layout else None
        return None if layout is None or instance is None else MigDevice(self, slot, instance, layout.since)

    def require(self, feature: str) -> None:
        """Check that the model has a feature. Raises Failure: NOT_SUPPORTED, if it does not."""
        if feature not in self.model.features:
            raise Failure("NOT_SUPPORTED")


class MigDevice(Device):
    """A MIG device of a GPU; its handle depends on its index, so the next MIG device with that index reuses it.

    Attributes:
        instance: its profile and IDs.
    """

    __slots__ = ("_since", "instance")

    def __init__(self, parent: Device, slot: int, instance: effects.MigInstance, since: int) -> None:
        super().__init__(parent.session, parent.state, parent.index, parent.handle + (slot + 1) * _MIG_HANDLE_SPACING)
        self.instance = instance
        self._since = since

    @property
    def uuid(self) -> str:
        """Its UUID, which changes whenever the GPU is repartitioned."""
        origin = f"{self.state.gpu.uuid} {self._since} {self.instance.gi} {self.instance.ci}"
        return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, origin)}"


class NvmlSession:
    """Reference-counted initialization; the last shutdown invalidates the handles. Guarded by the host's lock.

    Attributes:
        devices: the GPUs, by NVML index.
        samples: GPM samples by address, None until one is taken; they stay allocated until freed.
        event_sets: by address.
        abandoned_sets: number of sets that were not freed before shutdown, which can crash a real library.
    """

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.devices: tuple[Device, ...] = ()
        self.samples: dict[int, object] = {}
        self.event_sets: dict[int, object] = {}
        self.abandoned_sets = 0
        self._by_handle: dict[int, Device] = {}
        self._next_address = _FIRST_ALLOCATION
        self._references = 0
        self._epoch = 0
        self._initialized_at = -1.0
        kinds = (host_effects.LibraryMissing, host_effects.DriverNotLoaded, host_effects.VersionMismatch)
        self._driver_can_fail = any(any(host.timeline.host(kind)) for kind in kinds)

    def initialize(self) -> None:
        """Add a user; the first one enumerates the GPUs. Raises Failure: the driver cannot be used."""
        seconds = self.host.advance()
        self._check_driver(seconds)
        if self._references == 0:
            self._epoch += 1
            self._initialized_at = seconds
            first = _FIRST_HANDLE + self._epoch * _EPOCH_SPACING
            present = [gpu for gpu in self.host.gpus if not gpu.conditions.removed]
            self.devices = tuple(Device(self, gpu, i, first + i * _HANDLE_SPACING) for i, gpu in enumerate(present))
            self._by_handle = {device.handle: device for device in self.devices}
        self._references += 1

    def shut_down(self) -> None:
        """Remove a user; with the last one, every handle becomes invalid. Works without the driver, too.

        Raises:
            Failure: UNINITIALIZED.
        """
        if self._references == 0:
            raise Failure("UNINITIALIZED")
        self._references -= 1
        if self._references == 0:
            self.devices = ()
            self.abandoned_sets += len(self.event_sets)
            self.event_sets = {}
            self._by_handle = {}

    def require_initialized(self) -> float:
        """Scenario time, with the GPUs advanced to it.

        Raises:
            Failure: NVML is not initialized, or the driver is gone.
        """
        if self._references == 0:
            raise Failure("UNINITIALIZED")
        seconds = self.host.advance()
        self._check_driver(seconds)
        return seconds

    def new_sample(self) -> int:
        address = self.new_address()
        self.samples[address] = None
        return address

    def new_address(self) -> int:
        self._next_address += _HANDLE_SPACING
        return self._next_address

    def find(self, handle: int | None) -> Device | None:
        """The device or MIG device of a valid handle; None for any other."""
        if not handle:
            return None
        part = handle % _HANDLE_SPACING
        device = self._by_handle.get(handle - part)
        if device is None or part == 0:
            return device
        slot, rest = divmod(part, _MIG_HANDLE_SPACING)
        return None if rest else device.mig_device(slot - 1)

    def resolve(self, handle: int | None) -> Device:
        """The device of a handle, after checking that it responds.

        Raises:
            Failure: the handle is stale, or the GPU is lost or needs a reset.
        """
        seconds = self.require_initialized()
        device = self.find(handle)
        if device is None:
            raise Failure("INVALID_ARGUMENT")
        self._check_device(device, seconds)
        return device

    def hand_out(self, device: Device) -> int:
        """The handle of a device. Raises Failure: it is denied, lost, or needs a reset."""
        if device.state.conditions.denied:
            raise Failure("NO_PERMISSION")
        self._check_device(device, self.host.seconds())
        return device.handle

    def _check_device(self, device: Device, seconds: float) -> None:
        if self.host.timeline.lost(device.state.index, seconds, self._initialized_at):
            raise Failure("GPU_IS_LOST")
        conditions = device.state.conditions
        if conditions.removed or device.state is not self.host.gpus[device.state.index]:
            raise Failure("GPU_IS_LOST")
        if conditions.reset_required:
            raise Failure("RESET_REQUIRED")

    def _check_driver(self, seconds: float) -> None:
        timeline = self.host.timeline
        if not self._driver_can_fail:
            return
        if timeline.host_active(host_effects.LibraryMissing, seconds):
            raise Failure("LIBRARY_NOT_FOUND")
        if timeline.host_active(host_effects.DriverNotLoaded, seconds):
            raise Failure("DRIVER_NOT_LOADED")
        if timeline.host_active(host_effects.VersionMismatch, seconds):
            raise Failure("LIB_RM_VERSION_MISMATCH")


class CallFaults:
    """Hangs, delays and errors of the timeline, applied to a call before it reaches its function."""

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
        return bool(self._missing) and any(
            effect.function == name and event.active(self._session.host.seconds()) for event, effect in self._missing
        )

    def pass_device(self, name: str, device: Device | None) -> int:
        """Delay or block a call as the scenario requires; returns the code it fails with, or 0.

        Raises:
            Blocked: on a virtual clock, instead of waiting.
        """
        if self._missing and self.missing(name):
            return CODES["FUNCTION_NOT_FOUND"]
        gpus = tuple([gpu for gpu in self._faulty if device is None or gpu == device.state.index])
        if not gpus:
            return 0
        host = self._session.host
        timeline = host.timeline
        hangs_on = (name,) if device is None else (name, None)
        while not host.released and (until := self._hang_ends(gpus, hangs_on)) is not None:
            host.block(until - host.seconds())
        seconds = host.seconds()
        for event, slow in timeline.of(effects.Slow, gpus[0]):
            if event.active(seconds) and device is not None:
                host.delay(slow.milliseconds / 1000.0)
        for event, error in (pair for gpu in gpus for pair in timeline.of(effects.CallError, gpu)):
            if error.function == name and event.active(seconds):
                return CODES[error.code]
        return 0

    def _hang_ends(self, gpus: tuple[int, ...], functions: tuple[str | None, ...]) -> float | None:
        """Scenario time at which a hang of these functions ends: infinity if never, None if they do not hang."""
        host = self._session.host
        seconds = host.seconds()
        hangs = (pair for gpu in gpus for pair in host.timeline.of(effects.Hang, gpu))
        ends = [event.until for event, hang in hangs if hang.function in functions and event.active(seconds)]
        return max((float("inf") if end is None else float(end) for end in ends), default=None)


def handle_address(argument: Any) -> int | None:
    """The address in a handle in pynvml's form; None if it is not a handle."""
    try:
        return c_void_p.from_buffer(argument).value
    except TypeError:
        return None
