"""Xids reported by NVML: an event set of the current session, polled without blocking.

Events before registration are lost, as are those between two event sets. A set that fails is freed, and recreated after
a backoff with the GPUs that then accept registration.
"""

import ctypes
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from gpu_triage.driver.nvml.nvml_errors import GPU_GONE, MALFORMED, UNSUPPORTED, name_of
from gpu_triage.driver.nvml.session import CurrentCall, Device, bus_id_of
from gpu_triage.machine import Clock

ROUND_EVENTS: Final = 64  # maximum events fetched per round; the driver keeps the rest for the next
MOST_XID: Final = 99_999
"""There are fewer than 200 Xids. More digits are invalid, here and in the kernel log."""

_XID: Final[int] = pynvml.nvmlEventTypeXidCriticalError
_LOOK_AT_ONCE: Final = 0x4000 | 0x8000
"""nvmlEventTypeGpuUnavailableError and nvmlEventTypeGpuRecoveryAction, which older pynvml releases lack."""
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid as NVML reports it, between two monotonic seconds, of a GPU's bus ID, else its UUID."""

    gpu: str
    code: int
    earliest: float
    latest: float
    uuid: str | None


class XidEvents:
    """Polls Xid events of GPUs. Not thread-safe: only one lane calls it.

    Of this round, which begins with `listen`, `failures` has an error name for each failure, and `changed` the UUIDs of
    GPUs that became unavailable or changed their recovery action. `call` is the NVML call in progress.
    """

    def __init__(self, clock: Clock) -> None:
        self.failures: list[str] = []
        self.changed: set[str] = set()
        self.call = CurrentCall()
        self._clock = clock
        self._set: Any | None = None
        self._gpus: dict[int, Device] = {}
        self._refused_until: dict[int, float] = {}
        self._drained_at = 0.0
        self._again_at = 0.0
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    @property
    def open(self) -> bool:
        return self._set is not None

    @property
    def listening(self) -> bool:
        return self._set is not None and bool(self._gpus)

    def listen(self, devices: Iterable[Device]) -> None:
        """Register GPUs that are not registered yet (nvmlEventSetCreate, nvmlDeviceRegisterEvents).

        A GPU without support for Xid events is not a failure. A lost GPU stays registered until a new session.
        """
        self.failures.clear()
        self.changed.clear()
        now = self._clock.now().monotonic
        wanted = {_address(device.handle): device for device in devices}
        for address in tuple(wanted):
            if address in self._gpus or now < max(self._again_at, self._refused_until.get(address, 0.0)):
                del wanted[address]
        if not wanted:
            return
        try:
            if self._set is None:
                self._set = self.call.make("nvmlEventSetCreate")
                self._drained_at = now
        except (pynvml.NVMLError, *MALFORMED) as error:
            self._fail(error)
            return
        for address, device in wanted.items():
            self._register(address, device, now)

    def drain(self) -> Iterator[XidEvent]:
        """Yield Xids since the last round (nvmlEventSetWait_v2 with a zero timeout), at most ROUND_EVENTS."""
        for _ in range(ROUND_EVENTS):
            if not self.listening:
                return
            asked_at = self._clock.now().monotonic
            try:
                event = self.call.make("nvmlEventSetWait_v2", self._set, 0)
            except (pynvml.NVMLError, *MALFORMED) as error:
                if getattr(error, "value", None) != pynvml.NVML_ERROR_TIMEOUT:
                    self._fail(error)
                    return
                self._drained_at = asked_at
                self._pause_seconds = _FIRST_PAUSE_SECONDS
                return
            xid = self._xid_of(event)
            if xid is not None:
                yield xid

    def close(self) -> None:
        """Free the event set (nvmlEventSetFree) and clear the GPUs of this session. Never raises."""
        self._free()
        self._refused_until.clear()
        self._again_at = 0.0

    def _register(self, address: int, device: Device, now: float) -> None:
        try:
            known = self.call.make("nvmlDeviceGetSupportedEventTypes", device.handle)
            supported = known & (_XID | _LOOK_AT_ONCE)
            if supported & _XID:
                self.call.make("nvmlDeviceRegisterEvents", device.handle, supported, self._set)
                self._gpus[address] = device
            else:
                self._refused_until[address] = math.inf
        except (pynvml.NVMLError, *MALFORMED) as error:
            code = getattr(error, "value", None)
            self._refused_until[address] = math.inf if code in UNSUPPORTED else now + _LONGEST_PAUSE_SECONDS
            if code not in UNSUPPORTED | GPU_GONE:
                # A GPU that is gone is reported by gpu_up.
                self.failures.append(_name(error))

    def _xid_of(self, event: Any) -> XidEvent | None:
        device = self._gpus.get(_address(event.device))
        uuid = None if device is None else device.uuid
        if event.eventType & _LOOK_AT_ONCE and uuid is not None:
            self.changed.add(uuid)
        if not event.eventType & _XID:
            return None
        if event.eventData > MOST_XID:
            # Each bogus number would create a series that never goes away.
            self.failures.append("implausible")
            return None
        now = self._clock.now().monotonic
        gpu = self._bus_id_of(event.device) if device is None else device.pci_bus_id or device.uuid
        if gpu is None:
            return None
        return XidEvent(gpu, event.eventData, self._drained_at, now, uuid)

    def _bus_id_of(self, handle: Any) -> str | None:
        """Look up the bus ID of a GPU by a handle that was not registered."""
        try:
            return bus_id_of(handle, self.call)
        except (pynvml.NVMLError, *MALFORMED) as error:
            self.failures.append(_name(error))
            return None

    def _fail(self, error: Exception) -> None:
        if getattr(error, "value", None) in UNSUPPORTED:
            self._pause_seconds = _LONGEST_PAUSE_SECONDS
        else:
            self.failures.append(_name(error))
        self._free()
        self._again_at = self._clock.now().monotonic + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _free(self) -> None:
        event_set, self._set = self._set, None
        self._gpus.clear()
        if event_set is None:
            return
        # It may be freed already, or NVML gone.
        with suppress(pynvml.NVMLError, *MALFORMED):
            self.call.make("nvmlEventSetFree", event_set)


def _address(handle: Any) -> int:
    """Address a handle points to, since one GPU may have several handle objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _name(error: Exception) -> str:
    code = getattr(error, "value", None)
    return "malformed" if code is None else name_of(code)
