"""NVML's event sets: Xids of registered GPUs, each delivered once; earlier ones are never delivered."""

from ctypes import c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_triage_simulator import effects
from gpu_triage_simulator.conditions import Timeline
from gpu_triage_simulator.nvml_calls import OUT, Function, at, put
from gpu_triage_simulator.nvml_library import EVENT_DATA, EVENT_TYPE_ECC, EVENT_TYPE_XID, Failure
from gpu_triage_simulator.nvml_session import Device, NvmlSession

_SUPPORTED: Final = EVENT_TYPE_XID | EVENT_TYPE_ECC
_NO_INSTANCE: Final = 0xFFFFFFFF


@dataclass(slots=True)
class Registration:
    handle: int  # of the GPU
    xids: tuple[tuple[float, int], ...]  # its Xids, as scenario time and code, in order
    heard: int  # how many of them have been delivered, or happened before registration


@dataclass(slots=True)
class EventSet:
    gpus: dict[int, Registration] = field(default_factory=dict)


def xids(timeline: Timeline, gpu: int) -> tuple[tuple[float, int], ...]:
    """Scenario time and code of every Xid of a GPU that NVML reports, in order."""
    reported = [
        (float(event.at), xid.code)
        for event, xid in timeline.of(effects.Xid, gpu)
        if xid.reported_by != "kmsg"
        for _ in range(xid.times)
    ]
    reported += [
        (float(event.at), lost.xid) for event, lost in timeline.of(effects.Lost, gpu) if lost.reported_by != "kmsg"
    ]
    return tuple(sorted(reported, key=lambda xid: xid[0]))


def _supported(_device: Device, out: int | None) -> None:
    put(c_ulonglong, out, _SUPPORTED)


def _create(session: NvmlSession, out: int | None) -> None:
    session.require_initialized()
    if not out:
        raise Failure("INVALID_ARGUMENT")
    address = session.new_address()
    session.event_sets[address] = EventSet()
    c_void_p.from_address(out).value = address


def _register(device: Device, types: int, event_set: int | None) -> None:
    gpus = _find(device.session, event_set).gpus
    if types & ~_SUPPORTED:
        raise Failure("NOT_SUPPORTED")
    if types & EVENT_TYPE_XID and device.state.index not in gpus:
        all_xids = xids(device.host.timeline, device.state.index)
        past = sum(1 for seconds, _ in all_xids if seconds <= device.state.seconds)
        gpus[device.state.index] = Registration(device.handle, all_xids, past)


def _wait(session: NvmlSession, event_set: int | None, out: int | None, _milliseconds: int) -> None:
    seconds = session.require_initialized()
    gpus = _find(session, event_set).gpus.values()
    due = [gpu for gpu in gpus if gpu.heard < len(gpu.xids) and gpu.xids[gpu.heard][0] <= seconds]
    if not due:
        # Returns immediately whatever the timeout, because the host's lock is held here.
        raise Failure("TIMEOUT")
    first = min(due, key=lambda gpu: gpu.xids[gpu.heard][0])
    event: Any = at(EVENT_DATA, out)
    c_void_p.from_address(out or 0).value = first.handle
    event.eventType, event.eventData = EVENT_TYPE_XID, first.xids[first.heard][1]
    event.gpuInstanceId = event.computeInstanceId = _NO_INSTANCE
    first.heard += 1


def _free(session: NvmlSession, event_set: int | None) -> None:
    session.require_initialized()
    _find(session, event_set)
    del session.event_sets[event_set or 0]


def _find(session: NvmlSession, address: int | None) -> EventSet:
    event_set = session.event_sets.get(address or 0)
    if not isinstance(event_set, EventSet):
        raise Failure("INVALID_ARGUMENT")
    return event_set


FUNCTIONS: Final = (
    Function("nvmlDeviceGetSupportedEventTypes", (OUT,), _supported),
    Function("nvmlEventSetCreate", (OUT,), _create, on="library"),
    Function("nvmlDeviceRegisterEvents", (c_ulonglong, c_void_p), _register),
    Function("nvmlEventSetWait_v2", (c_void_p, OUT, c_uint), _wait, on="library", since=450),
    Function("nvmlEventSetFree", (c_void_p,), _free, on="library"),
)
