"""Rows of the two sources of Xids: NVML's events and the kernel log."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pynvml
from tests.faults import files
from tests.faults.files import Damaged
from tests.faults.injections import FOREVER, Begin, answers, damaging, putting, takes
from tests.faults.library import Call
from tests.faults.row import ALL_WELL, DRIVER, HOST, Row, Says, call_in_flight
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


def rows() -> Iterator[Row]:
    yield from _events()
    yield from _kernel_log()
    yield from _codes()


def _events() -> Iterator[Row]:
    unknown, denied = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION
    lost, timeout = pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_TIMEOUT
    everyone = {None, 0, 1}
    at_start = "from the start"
    yield _event(f"`{_SET}` answers UNKNOWN", answers(unknown, _SET, gpus=everyone), "unknown", moment=at_start)
    yield _event(f"`{_SET}` is refused", answers(denied, _SET, gpus=everyone), "no_permission", moment=at_start)
    yield _event(f"`{_TYPES}` answers UNKNOWN", answers(unknown, _TYPES, gpus=everyone), "unknown", moment=at_start)
    yield _event(f"`{_REGISTER}` is refused", answers(denied, _REGISTER, gpus=everyone), "no_permission", at_start)
    yield _event(f"`{_REGISTER}` is refused for GPU 0", answers(denied, _REGISTER), "no_permission", at_start)
    yield _event(f"`{_WAIT}` answers UNKNOWN", answers(unknown, _WAIT, gpus=everyone), "unknown")
    yield _event(f"`{_WAIT}` says that a GPU is lost", answers(lost, _WAIT, gpus=everyone), "lost")
    yield _event(f"`{_WAIT}` is out of time whatever there is", answers(timeout, _WAIT, gpus=everyone))
    yield _event(f"`{_WAIT}` hands out events that are no Xids, without end", _handing_out(_OTHER_TYPE))
    yield _event(f"`{_WAIT}` and `{_FREE}` answer UNKNOWN", answers(unknown, _WAIT, _FREE, gpus=everyone), "unknown")
    row = _event(f"`{_WAIT}` does not return", takes(FOREVER, _WAIT, gpus={None}))
    yield replace(row, says=Says(calls=frozenset({call_in_flight("xid", _WAIT)})))


def _event(fault: str, begin: Begin, error: str = "", moment: str = "while it runs") -> Row:
    return Row(
        group=EVENTS,
        fault=fault,
        moment=moment,
        says=Says(errors=frozenset({f"xid: {error}"} if error else ())),
        reach=frozenset({DRIVER}),
        begin=begin,
        at=0 if moment == "from the start" else 20,
        lasts=10,
        # A set is made anew after 1, 2, 4, 8 … s, a GPU that was refused is asked again after 60.
        recovers_within=60,
    )


def _handing_out(event_type: int) -> Begin:
    def fault(call: Call) -> int:
        if call.function != _WAIT:
            return call.proceed()
        call.arguments[1]._obj.eventType = event_type
        return int(pynvml.NVML_SUCCESS)

    return putting(fault)


def _kernel_log() -> Iterator[Row]:
    for words, damage, error in (
        ("missing", files.missing, ""),
        ("unreadable", files.unreadable, "io_error"),
        ("a directory in its place", files.directory, "io_error"),
    ):
        yield Row(
            group=KERNEL_LOG,
            fault=words,
            moment="from the start",
            says=Says(
                errors=frozenset({f"xid: {error}", f"host_kernel_log: {error}"} if error else ()),
                failing=frozenset({"host_kernel_log"} if error else ()),
            ),
            reach=frozenset({HOST}),
            begin=damaging(Damaged("kmsg", damage)),
            at=0,
            lasts=10,
            recovers_within=60,
        )
    yield _heard("binary junk, then an Xid", _writing(b"\x00\xff\xfe;7,x,-\n" * 500))
    yield _heard("half a record, then an Xid", _writing(b"4,99\n"))
    yield _heard("a record without an end, 3 MiB long, then an Xid", _writing(b"9 " * (3 << 19) + b"\n"))
    # An Xid may have been among what is lost: for 2 minutes the log does not count as heard.
    overrun = _heard("records were overwritten before they were read, then an Xid", _overrun)
    yield replace(overrun, reach=frozenset({"0", HOST}), recovers_within=130)
    yield Row(
        group=KERNEL_LOG,
        fault="reading it fails (EIO)",
        says=Says(errors=frozenset({"xid: io_error"})),
        reach=frozenset({HOST}),
        begin=lambda stage: stage.read_kernel_log(_failing),
        lasts=10,
        recovers_within=60,
    )


def _heard(fault: str, begin: Begin) -> Row:
    """What happens to the log, and an Xid behind it that must be counted all the same."""
    return Row(group=KERNEL_LOG, fault=fault, begin=begin, lasts=6, recovers_within=6, leaves=_COUNTED, xids={"48": 1})


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


def _codes() -> Iterator[Row]:
    yield _code("a code that no list has (998)", {"998": 1}, events=(Event(20, None, (0,), effects.Xid(998)),))
    # It is held back until the kernel log has had the time to tell its code.
    unknown = _code(
        "a code that NVML does not know (999)", {"unknown": 1}, events=(Event(20, None, (0,), effects.Xid(999)),)
    )
    yield replace(unknown, lasts=15)
    yield _code(
        "a hundred of one kind in one second", {"31": 100}, events=(Event(20, None, (0,), effects.Xid(31, times=100)),)
    )
    yield _code(
        "fallen off the bus, without a code",
        {"79": 1},
        begin=_texts("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."),
    )
    yield _code("five digits (99999)", {"99999": 1}, begin=_texts("NVRM: Xid (PCI:0000:18:00): 99999, pid=1"))
    yield _code(
        f"{_CODES_OF_ONE_GPU:,} different codes in one second",
        {str(code): 1 for code in range(CODES_PER_GPU)} | {"other": _CODES_OF_ONE_GPU - CODES_PER_GPU},
        begin=_texts(*(f"NVRM: Xid (PCI:0000:18:00): {code}, pid=1" for code in range(_CODES_OF_ONE_GPU))),
    )
    yield _code(
        "of a GPU that nobody knows", {}, begin=_texts("NVRM: Xid (PCI:0000:ff:00): 79, pid=1"), leaves=_UNASSIGNED
    )
    yield _code("a message that a process wrote", {}, begin=_by_a_process, leaves=frozenset())


def _code(
    fault: str,
    xids: Mapping[str, int],
    begin: Callable[[Stage], None] = lambda _stage: None,
    events: tuple[Event, ...] = (),
    leaves: frozenset[str] = _COUNTED,
) -> Row:
    return Row(
        group=CODES,
        fault=fault,
        says=ALL_WELL,
        reach=frozenset({"0", "others"}),
        begin=begin,
        events=events,
        lasts=4,
        recovers_within=6,
        leaves=leaves,
        xids=xids,
    )


def _texts(*texts: str) -> Begin:
    return lambda stage: _log(stage, *texts)


def _by_a_process(stage: Stage) -> None:
    stage.log_to_kernel(f"12,90000,1,-;{_OF_GPU_0}\n".encode())
