"""Rows of the driver as a whole: initialization, enumeration, the library and what is exchanged underneath."""

from collections.abc import Iterator
from dataclasses import replace

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND
from tests.faults.injections import FOREVER, Begin, answers, lacks, nothing, takes
from tests.faults.kinds import CODE_OF, DRIVER_GONE, DRIVER_REPLACED, KINDS, Kind
from tests.faults.library import every_collector
from tests.faults.row import DRIVER, HOST, Row, Says, call_in_flight

from gpu_triage.driver.nvml.nvml_errors import name_of
from gpu_triage_simulator import host_effects
from gpu_triage_simulator.scenario import Event

INIT = "NVML cannot be initialized"
COUNT = "NVML cannot count the GPUs"
HANDLE = "NVML gives no handle for GPU 0"

_EVERYONE = frozenset({"0", "1", DRIVER})
_INIT, _COUNT, _HANDLE = "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"
_UUID = "nvmlDeviceGetUUID"
_AT_START, _LATER = "from the start", "while it runs"
_RETRY_SECONDS = 16
"""Of the retries after 1, 2, 4, 8 … s, how long the last may be away when the fault has lasted some seconds."""

_EFFECTS = (
    ("there is no `libnvidia-ml.so.1`", host_effects.LibraryMissing(), "library_not_found"),
    ("the kernel module is not loaded", host_effects.DriverNotLoaded(), "driver_not_loaded"),
    ("kernel module and library are of two versions", host_effects.VersionMismatch(), "version_mismatch"),
)


def rows() -> Iterator[Row]:
    """All of them."""
    for kind in KINDS:
        yield _down(INIT, kind.staged, _AT_START, *_answering(kind, _INIT))
    yield from _other_ways_to_fail_at_init()
    yield _down(COUNT, "UNKNOWN", _AT_START, "unknown", answers(pynvml.NVML_ERROR_UNKNOWN, _COUNT, gpus={None}))
    yield _down(COUNT, f"`{_COUNT}` is not exported", _AT_START, "function_not_found", lacks(_COUNT))
    for kind in KINDS:
        yield _soon(_down(COUNT, kind.staged, _LATER, *_answering(kind, _COUNT)))
    for name in ("GPU_IS_LOST", "NO_PERMISSION", "UNKNOWN"):
        yield _denied(_HANDLE, Kind(name), _AT_START)
    for function in (_HANDLE, _UUID):
        for kind in KINDS:
            yield _soon(_denied(function, kind, _LATER))
    for words, effect, error in _EFFECTS[1:]:
        events = (Event(20, 30, (), effect),)
        row = _down("The driver is exchanged underneath", words, _LATER, error, nothing, events=events)
        # The collectors of the fast tier, and the event set, ask before the look that finds out is taken in.
        yield replace(row, says=replace(row.says, errors=frozenset({f"activity: {error}", f"xid: {error}"})))


def _soon(row: Row) -> Row:
    """The row with every interval a second, so that many fit on one stage."""
    return replace(row, config=GPUS_EVERY_SECOND, lasts=1, recovers_within=4, shared=True)


def _answering(kind: Kind, function: str) -> tuple[str, Begin]:
    """The error that a kind's staged code is called, and a driver that answers it."""
    code = CODE_OF[kind.staged]
    return name_of(code), answers(code, function, gpus={None})


def _when(moment: str) -> int:
    return 0 if moment.endswith(_AT_START) else 20


def _down(group: str, fault: str, moment: str, error: str, begin: Begin, *, events: tuple[Event, ...] = ()) -> Row:
    """The driver is down, and tried again."""
    at = _when(moment)
    says = Says(
        gpus={"0": "driver_unavailable", "1": "driver_unavailable"} if at else {},
        driver=error,
        failing=every_collector(),
        restart=error == "version_mismatch" and bool(at),
    )
    reach = _EVERYONE | {HOST} if events else _EVERYONE
    return Row(group, fault, moment, says, reach, begin, events=events, at=at, lasts=10, recovers_within=_RETRY_SECONDS)


def _other_ways_to_fail_at_init() -> Iterator[Row]:
    yield _down(INIT, f"`{_INIT}` is not exported", _AT_START, "function_not_found", lacks(_INIT))
    for words, effect, error in _EFFECTS:
        yield _down(INIT, words, _AT_START, error, nothing, events=(Event(0, 10, (), effect),))
    # Which collectors there are to list is known when the first look at the driver ends.
    says, reach = Says(driver="stalled", calls=frozenset({call_in_flight(DRIVER, _INIT)})), _EVERYONE | {HOST}
    begin = takes(FOREVER, _INIT, gpus={None})
    yield Row(INIT, f"`{_INIT}` does not return", _AT_START, says, reach, begin, at=0, recovers_within=6)


def _denied(function: str, kind: Kind, moment: str) -> Row:
    """The driver counts the GPU, but hands it out to nobody."""
    where, code = f"`{function}`, {moment}", CODE_OF[kind.staged]
    if kind in (DRIVER_GONE, DRIVER_REPLACED):
        return _down(HANDLE, kind.staged, where, name_of(code), answers(code, function))
    says, begin = Says(gpus={"0": name_of(code)}), answers(code, function)
    return Row(HANDLE, kind.staged, where, says, begin=begin, at=_when(moment), lasts=10, recovers_within=6)
