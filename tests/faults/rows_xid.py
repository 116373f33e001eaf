"""Rows of the two sources of Xids: NVML's events and the kernel log."""

import os
from collections.abc import Iterator
from functools import partial

import pynvml
from tests.faults import files
from tests.faults.files import Damaged
from tests.faults.injections import FOREVER, Begin, answers, damaging, putting, takes
from tests.faults.library import Call
from tests.faults.row import ALL_WELL, DRIVER, HOST, OTHERS, Row, Says, call_in_flight, counts
from tests.faults.stage import Stage

from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU
from gpu_triage_simulator import effects
from gpu_triage_simulator.scenario import Event

EVENTS = "NVML's events fail"
KERNEL_LOG = "The kernel log"
CODES = "Xids are what they should not be"

_SET, _REGISTER, _WAIT = "nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"
_TYPES, _FREE = "nvmlDeviceGetSupportedEventTypes", "nvmlEventSetFree"
_COUNTED = frozenset({"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"})
_UNASSIGNED = frozenset({"gpu_xid_unassigned_errors_total", "gpu_xid_unassigned_last_timestamp_seconds"})
_OF_GPU_0 = "NVRM: Xid (PCI:0000:18:00): 48, pid=1, name=x"
_OTHER_TYPE = 1 << 1
_CODES_OF_ONE_GPU = 2000
_UNREADABLE = Says(
    errors=frozenset({"xid: io_error", "host_kernel_log: io_error"}), failing=frozenset({"host_kernel_log"})
)


def rows() -> Iterator[Row]:
    yield from _events()
    yield from _kernel_log()
    yield from _codes()


# A set is made anew after 1, 2, 4, 8 … s, a GPU that was refused is asked again after 60.
_event = partial(Row, EVENTS, reach=frozenset({DRIVER}), lasts=10, recovers_within=60)
_at_start = partial(_event, moment="from the start", at=0)


def _events() -> Iterator[Row]:
    failed, refused = counts("xid: unknown"), counts("xid: no_permission")
    fails, refuses, loses, times_out = (
        partial(answers, code, gpus={None, 0, 1})
        for code in (
            pynvml.NVML_ERROR_UNKNOWN,
            pynvml.NVML_ERROR_NO_PERMISSION,
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_TIMEOUT,
        )
    )
    yield _at_start(f"`{_SET}` answers UNKNOWN", says=failed, begin=fails(_SET))
    yield _at_start(f"`{_SET}` is refused", says=refused, begin=refuses(_SET))
    yield _at_start(f"`{_TYPES}` answers UNKNOWN", says=failed, begin=fails(_TYPES))
    yield _at_start(f"`{_REGISTER}` is refused", says=refused, begin=refuses(_REGISTER))
    yield _at_start(f"`{_REGISTER}` is refused for GPU 0", says=refused, begin=refuses(_REGISTER, gpus={0}))
    yield _event(f"`{_WAIT}` answers UNKNOWN", says=failed, begin=fails(_WAIT))
    yield _event(f"`{_WAIT}` says that a GPU is lost", says=counts("xid: lost"), begin=loses(_WAIT))
    yield _event(f"`{_WAIT}` is out of time whatever there is", begin=times_out(_WAIT))
    yield _event(f"`{_WAIT}` hands out events that are no Xids, without end", begin=_handing_out(_OTHER_TYPE))
    yield _event(f"`{_WAIT}` and `{_FREE}` answer UNKNOWN", says=failed, begin=fails(_WAIT, _FREE))
    says = Says(calls=frozenset({call_in_flight("xid", _WAIT)}))
    yield _event(f"`{_WAIT}` does not return", says=says, begin=takes(FOREVER, _WAIT, gpus={None}))


def _handing_out(event_type: int) -> Begin:
    def fault(call: Call) -> int:
        if call.function != _WAIT:
            return call.proceed()
        call.arguments[1]._obj.eventType = event_type
        return int(pynvml.NVML_SUCCESS)

    return putting(fault)


_heard = partial(Row, KERNEL_LOG, lasts=6, recovers_within=6, leaves=_COUNTED, xids={"48": 1})
"""What happens to the log, and an Xid behind it that must be counted all the same."""


def _kernel_log() -> Iterator[Row]:
    log = partial(Row, KERNEL_LOG, reach=frozenset({HOST}), lasts=10, recovers_within=60)
    for words, damage, says in (
        ("missing", files.missing, ALL_WELL),
        ("unreadable", files.unreadable, _UNREADABLE),
        ("a directory in its place", files.directory, _UNREADABLE),
    ):
        yield log(words, "from the start", says, begin=damaging(Damaged("kmsg", damage)), at=0)
    yield _heard("binary junk, then an Xid", begin=_writing(b"\x00\xff\xfe;7,x,-\n" * 500))
    yield _heard("half a record, then an Xid", begin=_writing(b"4,99\n"))
    yield _heard("a record without an end, 3 MiB long, then an Xid", begin=_writing(b"9 " * (3 << 19) + b"\n"))
    # An Xid may have been among what is lost: for 2 minutes the log does not count as heard.
    overrun = partial(_heard, reach=frozenset({"0", HOST}), recovers_within=130)
    yield overrun("records were overwritten before they were read, then an Xid", begin=_overrun)
    says, begin = counts("xid: io_error"), partial(Stage.read_kernel_log, read=_failing)
    yield log("reading it fails (EIO)", says=says, begin=begin)


def _writing(content: bytes) -> Begin:
    def begin(stage: Stage) -> None:
        stage.log_to_kernel(content)
        _log(stage, _OF_GPU_0)

    return begin


def _log(stage: Stage, *texts: str) -> None:
    now_us = round(stage.clock.now().monotonic * 1e6)
    lines = (f"4,{90_000 + number},{now_us},-;{text}\n" for number, text in enumerate(texts))
    stage.log_to_kernel("".join(lines).encode())


def _overrun(stage: Stage) -> None:
    """Every other read says that the kernel wrote over what was next."""
    overwritten = iter([True, False, True, False])

    def read(file: int, size: int) -> bytes:
        if next(overwritten, False):
            raise BrokenPipeError
        return os.read(file, size)

    stage.read_kernel_log(read)
    _log(stage, _OF_GPU_0)


def _failing(_file: int, _size: int) -> bytes:
    raise OSError(5, "Input/output error")


_code = partial(Row, CODES, reach=frozenset({"0", OTHERS}), lasts=4, recovers_within=6, leaves=_COUNTED)


def _codes() -> Iterator[Row]:
    yield _code("a code that no list has (998)", xids={"998": 1}, events=(Event(20, None, (0,), effects.Xid(998)),))
    # It is held back until the kernel log has had the time to tell its code.
    events = (Event(20, None, (0,), effects.Xid(999)),)
    yield _code("a code that NVML does not know (999)", xids={"unknown": 1}, events=events, lasts=15)
    events = (Event(20, None, (0,), effects.Xid(31, times=100)),)
    yield _code("a hundred of one kind in one second", xids={"31": 100}, events=events)
    begin = _texts("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")
    yield _code("fallen off the bus, without a code", xids={"79": 1}, begin=begin)
    begin = _texts("NVRM: Xid (PCI:0000:18:00): 99999, pid=1")
    yield _code("five digits (99999)", xids={"99999": 1}, begin=begin)
    xids = {str(code): 1 for code in range(CODES_PER_GPU)} | {"other": _CODES_OF_ONE_GPU - CODES_PER_GPU}
    begin = _texts(*(f"NVRM: Xid (PCI:0000:18:00): {code}, pid=1" for code in range(_CODES_OF_ONE_GPU)))
    yield _code(f"{_CODES_OF_ONE_GPU:,} different codes in one second", xids=xids, begin=begin)
    begin = _texts("NVRM: Xid (PCI:0000:ff:00): 79, pid=1")
    yield _code("of a GPU that nobody knows", xids={}, begin=begin, leaves=_UNASSIGNED)
    yield _code("a message that a process wrote", xids={}, begin=_by_a_process, leaves=frozenset())


def _texts(*texts: str) -> Begin:
    return lambda stage: _log(stage, *texts)


def _by_a_process(stage: Stage) -> None:
    stage.log_to_kernel(f"12,90000,1,-;{_OF_GPU_0}\n".encode())
