"""Lists whose length the driver says first, and may say wrongly; field values, in which drivers differ; and events."""

import ctypes
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pynvml
import pytest
from tests.faults.kinds import CODE_OF, DRIVER_GONE, DRIVER_REPLACED, EMPTY, FAILED, GPU_GONE, KINDS, NOT_SUPPORTED
from tests.incident_hosts import host, xid
from tests.nvml_bench import FIELDS, Bench, BenchMaker, fields_say
from tests.simulated_driver import Driver, driver

from gpu_triage.driver.nvml.events import MOST_XID, ROUND_EVENTS, XidEvents
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import MOST_ENTRIES, read_list
from gpu_triage.driver.nvml.nvml_errors import name_of
from gpu_triage.driver.nvml.session import Device
from gpu_triage.errors import DriverReplaced, DriverUnavailable, GpuUnavailable
from gpu_triage.read.gpu.power import PowerReader, read_thermal
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine

PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
LISTS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetSamples": (1, 0, pynvml.c_uint(0)),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetRetiredPages": (0,),
    PROCESSES: (),
    "nvmlDeviceGetGraphicsRunningProcesses_v2": (),
}


def pointers(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Buffer, if any, and count of a list function's arguments."""
    buffer = next((argument for argument in arguments if hasattr(argument, "_length_")), None)
    return buffer, [argument._obj for argument in arguments if hasattr(argument, "_obj")][-1]


def overflowing(*arguments: Any) -> int:
    """A function that counts 3 entries, and claims to have written 1000 to their buffer."""
    buffer, count = pointers(arguments)
    count.value = 3 if buffer is None else 1000
    return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE if buffer is None else pynvml.NVML_SUCCESS)


class Growing:
    """A function whose list has other lengths by the time it is fetched, one a fetch, the last one from then on."""

    def __init__(self, *lengths: int) -> None:
        self._lengths = list(lengths)

    def __call__(self, *arguments: Any) -> int:
        buffer, count = pointers(arguments)
        room, count.value = count.value, self._lengths[0]
        if buffer is not None and len(self._lengths) > 1:
            count.value = self._lengths.pop(0)
        enough = buffer is not None and room >= self._lengths[0]
        return int(pynvml.NVML_SUCCESS if enough else pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


@pytest.fixture
def h100(bench: BenchMaker) -> Bench:
    return bench("h100-8")


@pytest.mark.slow
@pytest.mark.parametrize("function", LISTS)
@pytest.mark.parametrize("counted", [MOST_ENTRIES + 1, 1 << 31, (1 << 32) - 1])
def test_a_junk_count_reserves_nothing(h100: Bench, function: str, counted: int) -> None:
    buffers: list[int] = []

    def junk(*arguments: Any) -> int:
        buffer, count = pointers(arguments)
        buffers.extend([] if buffer is None else [len(buffer)])
        count.value = counted
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)

    h100.answer(function, junk)
    with pytest.raises(ValueError, match=f"counts {counted} entries"):
        read_list(function, h100.devices[0].handle, *LISTS[function])
    assert buffers == ([64] if "RunningProcesses" in function else [])


@pytest.mark.parametrize("function", LISTS)
def test_a_list_that_outgrew_its_buffer_is_fetched_anew_and_a_false_count_refused(h100: Bench, function: str) -> None:
    h100.answer(function, overflowing)
    with pytest.raises(ValueError, match=r"1000 entries where there was room for (3|11|64)"):
        read_list(function, h100.devices[0].handle, *LISTS[function])
    h100.answer(function, Growing(3, 100))
    assert len(read_list(function, h100.devices[0].handle, *LISTS[function])) == 100


def test_a_list_is_asked_for_once_with_the_room_that_it_needed_last(h100: Bench) -> None:
    inquiry = h100.round().inquiry
    asked = []
    for listed in (3, 200, 200, 3):
        h100.answer(PROCESSES, Growing(listed))
        before = h100.calls(PROCESSES)
        entries = inquiry.many(PROCESSES)
        assert entries is not None
        assert len(entries) == listed
        asked.append(h100.calls(PROCESSES) - before)
    assert asked == [1, 2, 1, 1]


class WideProcess(ctypes.Structure):
    """An entry as the headers of 535.43 to 535.86 have it."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
        ("usedGpuCcProtectedMemory", ctypes.c_ulonglong),
    )


def wide_list(_handle: object, count: Any, buffer: Any) -> int:
    """Three processes in wide entries."""
    count._obj.value = 3
    if buffer is None:
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    entries = (WideProcess * 3)(*(WideProcess(100 + i, 5000 + i, 0xFFFFFFFF, 0xFFFFFFFF, 7) for i in range(3)))
    ctypes.memmove(buffer, entries, ctypes.sizeof(entries))
    return int(pynvml.NVML_SUCCESS)


def test_the_wide_entries_of_early_535_drivers_are_told_by_what_the_library_exports(h100: Bench) -> None:
    h100.answer("nvmlDeviceGetConfComputeMemSizeInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
    h100.answer(PROCESSES, wide_list)
    entries = read_list(PROCESSES, h100.devices[0].handle)
    assert [(entry.pid, entry.usedGpuMemory) for entry in entries] == [(100, 5000), (101, 5001), (102, 5002)]


def test_later_drivers_have_the_wide_entries_in_another_list(h100: Bench) -> None:
    h100.clock.advance(10)
    before = [entry.pid for entry in read_list(PROCESSES, h100.devices[0].handle)]
    h100.answer("nvmlDeviceGetConfComputeMemSizeInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
    h100.answer("nvmlDeviceGetRunningProcessDetailList", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert [entry.pid for entry in read_list(PROCESSES, h100.devices[0].handle)] == before != []


def strict(known: Mapping[int, int], refusal: int) -> Any:
    """A driver that refuses a call without any field that it supports, as NVML's documentation allows."""

    def call(_device: Any, count: Any, out: Any) -> int:
        entries = [out._obj[i] for i in range(count.value)]
        for entry in entries:
            entry.nvmlReturn = 0 if entry.fieldId in known else pynvml.NVML_ERROR_NOT_SUPPORTED
            entry.valueType, entry.value.uiVal = 1, known.get(entry.fieldId, 0)
        return 0 if any(entry.fieldId in known for entry in entries) else refusal

    return call


def refusing_in_company(known: Mapping[int, int], refusal: int) -> Any:
    """A driver that refuses a call over any field it does not know."""
    lenient = strict(known, 0)

    def call(device: Any, count: Any, out: Any) -> int:
        unknown = any(out._obj[i].fieldId not in known for i in range(count.value))
        return int(refusal if unknown else lenient(device, count, out))

    return call


REFUSALS = [
    *(pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_DEPRECATED),
    *(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_call_refused_as_a_whole_speaks_for_its_own_fields_alone(bench: BenchMaker, refusal: int) -> None:
    nvml = bench()
    nvml.answer(FIELDS, strict({186: 151_500, 82: 44}, refusal))
    inquiry = nvml.round().inquiry
    assert inquiry.fields([74, 76]) == {}
    assert inquiry.fields([91]) == {}
    assert PowerReader().read(nvml.round()).power_watts == 151.5
    assert read_thermal(nvml.round()).memory_celsius == 44
    assert inquiry.failures == []


@pytest.mark.parametrize("refusal", REFUSALS)
def test_fields_a_gpu_has_are_read_beside_one_for_which_the_call_is_refused(bench: BenchMaker, refusal: int) -> None:
    nvml = bench()
    nvml.answer(FIELDS, refusing_in_company({186: 5, 185: 6}, refusal))
    for _ in range(2):
        inquiry = nvml.round().inquiry
        assert inquiry.fields([186, 74, 185]) == {186: 5, 185: 6}
        assert inquiry.failures == []
    # The second time it knows which to leave out, and asks once.
    assert nvml.calls(FIELDS) == 1 + 3 + 1


def of_no_type(_device: Any, _count: Any, out: Any) -> int:
    """A value of a type that no header lists."""
    out._obj[0].valueType = 99
    return 0


VALUES: tuple[tuple[Any, dict[int, float], list[str]], ...] = (
    (fields_say({186: (0, "dVal", 1.5)}), {186: 1.5}, []),
    *((fields_say({186: (0, name, -1)}), {}, []) for name in ("uiVal", "siVal", "sllVal")),
    *((fields_say({186: (0, "dVal", value)}), {}, ["malformed"]) for value in (math.nan, math.inf, 5e-324)),
    (of_no_type, {}, ["malformed"]),
)


@pytest.mark.parametrize(("answer", "found", "failures"), VALUES)
def test_a_field_has_a_value_or_none_or_is_malformed(
    bench: BenchMaker, answer: Any, found: dict[int, float], failures: list[str]
) -> None:
    nvml = bench()
    nvml.answer(FIELDS, answer)
    inquiry = nvml.round().inquiry
    assert (inquiry.fields([186]), inquiry.failures) == (found, failures)


BUS_IDS = ("0000:65:00.0", "0000:b3:00.0")


def failing(function: str, code: str, until: int = 1000) -> str:
    return f'at = 0\nuntil = {until}\neffect = {{ kind = "error", function = "{function}", code = "{code}" }}'


def devices(nvml: Driver) -> list[Device]:
    return [Device(i, f"GPU-{i}", BUS_IDS[i], handle) for i, handle in enumerate(nvml.handles)]


def listening(nvml: Driver) -> XidEvents:
    events = XidEvents(nvml.clock)
    events.listen(devices(nvml))
    return events


def heard(events: XidEvents) -> list[tuple[str, int]]:
    return [(event.gpu, event.code) for event in events.drain()]


class Heard(NamedTuple):
    """The second of the first events, which these are, and the second of each failure until then."""

    second: int
    events: list[tuple[str, int]]
    tries: list[int]


def first_heard(nvml: Driver, events: XidEvents, before: int) -> Heard:
    tries: list[int] = []
    for second in range(before):
        nvml.at(second)
        events.listen(devices(nvml))
        found = heard(events)
        tries += [second] * len(events.failures)
        assert len(nvml_sets()) <= 1
        if found:
            return Heard(second, found, tries)
    return Heard(before, [], tries)


LOST = 'at = 12\ngpu = 1\neffect = { kind = "lost" }'


def test_events_since_the_registration_are_heard_once_in_order_of_all_gpus_and_to_the_end(tmp_path: Path) -> None:
    with driver(host(tmp_path, xid(1, 79, 0), xid(5, 63, 1), xid(4, 31, 0), xid(6, 79, 0), LOST)) as nvml:
        nvml.at(2)
        events = listening(nvml)
        assert events.listening
        assert heard(events) == []
        nvml.at(10)
        assert heard(events) == [(BUS_IDS[0], 31), (BUS_IDS[1], 63), (BUS_IDS[0], 79)]
        assert heard(events) == []
        nvml.at(13)
        assert heard(events) == [(BUS_IDS[1], 79)]
        assert events.failures == []


def test_an_event_happened_after_the_set_was_last_empty_and_before_it_was_fetched(tmp_path: Path) -> None:
    with driver(host(tmp_path, xid(9, 79, 0))) as nvml:
        events = listening(nvml)
        nvml.at(8)
        assert heard(events) == []
        empty = nvml.clock.now()
        nvml.at(12)
        (event,) = events.drain()
        assert (event.earliest, event.latest) == (empty.monotonic, nvml.clock.now().monotonic)


def test_a_number_that_can_be_no_xid_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(host(tmp_path, xid(4, 79, 0), xid(5, 80, 0), xid(6, 31, 0))) as nvml:
        events = listening(nvml)
        nvml.at(10)
        wait, numbers = pynvml.nvmlEventSetWait_v2, {79: MOST_XID, 80: MOST_XID + 1}

        def renumbered(*arguments: Any) -> Any:
            event = wait(*arguments)
            event.eventData = numbers.get(event.eventData, event.eventData)
            return event

        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", renumbered)
        assert heard(events) == [(BUS_IDS[0], MOST_XID), (BUS_IDS[0], 31)]
        assert events.failures == ["implausible"]


def test_a_burst_is_fetched_in_rounds_that_are_bounded(tmp_path: Path) -> None:
    with driver(host(tmp_path, xid(1, 31, 0, ", times = 150"))) as nvml:
        events = listening(nvml)
        nvml.at(2)
        rounds = [len(heard(events)) for _ in range(4)]
        assert rounds == [ROUND_EVENTS, ROUND_EVENTS, 150 - 2 * ROUND_EVENTS, 0]


def nvml_sets() -> dict[int, object]:
    sets: dict[int, object] = pynvml.nvmlLib.session.event_sets
    return sets


@pytest.mark.parametrize(
    ("event", "is_open"),
    [
        (failing("nvmlDeviceGetSupportedEventTypes", "NOT_SUPPORTED"), True),
        (failing("nvmlDeviceRegisterEvents", "NOT_SUPPORTED"), True),
        ('at = 0\neffect = { kind = "missing_function", function = "nvmlEventSetCreate" }', False),
    ],
)
def test_a_gpu_or_a_library_without_xid_events_is_no_failure(tmp_path: Path, event: str, *, is_open: bool) -> None:
    with driver(host(tmp_path, event)) as nvml:
        events = XidEvents(nvml.clock)
        assert first_heard(nvml, events, 200) == (200, [], [])
        assert (events.open, events.listening) == (is_open, False)


def test_a_registration_that_fails_is_counted_and_tried_again_later(tmp_path: Path) -> None:
    with driver(host(tmp_path, failing("nvmlDeviceRegisterEvents", "UNKNOWN", until=70), xid(130, 31, 0))) as nvml:
        found = first_heard(nvml, XidEvents(nvml.clock), 140)
        assert (found.second, len(found.tries)) == (130, 4)


def test_a_set_that_fails_is_freed_and_made_again_ever_less_often(tmp_path: Path) -> None:
    with driver(host(tmp_path, failing("nvmlEventSetWait_v2", "UNKNOWN", until=300), xid(380, 31, 0))) as nvml:
        found = first_heard(nvml, XidEvents(nvml.clock), 400)
        assert found.tries[:7] == [0, 1, 3, 7, 15, 31, 63]
        assert len(found.tries) < 12
        assert (found.second, found.events) == (380, [(BUS_IDS[0], 31)])


@pytest.mark.parametrize("shut_down_first", [False, True])
def test_closing_frees_the_set_before_nvml_goes_and_only_once(tmp_path: Path, *, shut_down_first: bool) -> None:
    with driver(host(tmp_path)) as nvml:
        events = listening(nvml)
        session = pynvml.nvmlLib.session
        assert len(nvml_sets()) == 1
        if shut_down_first:
            pynvml.nvmlShutdown()
            assert heard(events) == []
        for _ in range(2):
            events.close()
            assert not events.open
        assert events.failures == ["uninitialized"] * shut_down_first
        if not shut_down_first:
            assert nvml_sets() == {}
            pynvml.nvmlShutdown()
            assert session.abandoned_sets == 0


def test_a_gpu_that_fails_or_wants_recovery_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # nvmlEventTypeGpuUnavailableError 0x4000 and nvmlEventTypeGpuRecoveryAction 0x8000 of nvml.h (CUDA 13.3).
    wait, register = pynvml.nvmlEventSetWait_v2, pynvml.nvmlDeviceRegisterEvents
    types: list[int] = []

    def recovery(*arguments: Any) -> Any:
        event = wait(*arguments)
        event.eventType = 0x8000
        return event

    def noted(handle: Any, wanted: int, event_set: Any) -> Any:
        types.append(wanted)
        return register(handle, wanted & 0x8, event_set)

    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", recovery)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", noted)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetSupportedEventTypes", lambda _handle: 0xC00F)
    with driver(host(tmp_path, xid(4, 31, 1))) as nvml:
        events = listening(nvml)
        nvml.at(10)
        assert types == [0xC008, 0xC008]
        assert heard(events) == []
        assert events.changed == {"GPU-1"}


NAMES = {code: code.lower() for code in CODE_OF} | {
    "FREQ_NOT_SUPPORTED": "not_supported",
    "GPU_IS_LOST": "lost",
    "LIB_RM_VERSION_MISMATCH": "version_mismatch",
    "RESET_TYPE_NOT_SUPPORTED": "error_30",
    "VGPU_ECC_NOT_SUPPORTED": "not_supported",
    "a code that no header lists": "error_250",
}
"""The label of each code, as dashboards and alerts know it."""

KIND_OF = {code: kind for kind in KINDS for code in kind.names}
QUESTION = "nvmlDeviceGetPowerUsage"
LIST = "nvmlDeviceGetProcessUtilization"
FIELD = 271

every_code = pytest.mark.parametrize("code", CODE_OF)


@pytest.fixture(scope="module")
def hosts_driver() -> Iterator[Bench]:
    before = (pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    clock = VirtualClock()
    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:
        yield Bench(simulated.machine, clock)
    pynvml.nvmlLib, pynvml._nvmlLib_refcount = before
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def clean_driver(hosts_driver: Bench) -> Iterator[Bench]:
    hosts_driver.devices[0].unsupported.clear()
    yield hosts_driver
    hosts_driver.library.answers.clear()


class Asked(NamedTuple):
    """What became of a question to GPU 0."""

    answer: object
    ended: str
    failures: list[str]
    answered: int
    not_asked_again: bool


def ask(clean_driver: Bench, way: str, *args: object) -> Asked:
    inquiry, answer, ended = Inquiry(clean_driver.devices[0]), None, ""
    try:
        answer = getattr(inquiry, way)(*args)
    except (GpuUnavailable, DriverUnavailable) as gone:
        kinds = {GpuUnavailable: "gpu", DriverUnavailable: "driver", DriverReplaced: "restart"}
        ended = f"{kinds[type(gone)]} {gone.reason}"
    return Asked(answer, ended, inquiry.failures, inquiry.answered, bool(clean_driver.devices[0].unsupported))


def test_every_code_of_the_header_has_a_label_and_a_kind_and_no_other_number_has_a_label() -> None:
    assert CODE_OF.keys() == KIND_OF.keys()
    assert {code: name_of(number) for code, number in CODE_OF.items()} == NAMES
    assert {name_of(code) for code in (-1, 1000, 0xFFFF_FFFF)} == {"malformed"}


WAYS: dict[str, tuple[str, tuple[object, ...], frozenset[str], object]] = {
    # A question for root only takes a refusal for absence, and a driver older than a field calls its id invalid.
    "ask": (QUESTION, (QUESTION,), frozenset(), None),
    "ask_privileged": (QUESTION, (QUESTION,), frozenset({"NO_PERMISSION"}), None),
    "many": (LIST, (LIST, 0), frozenset(), []),
    "fields": ("nvmlDeviceGetFieldValues", ([FIELD],), frozenset({"INVALID_ARGUMENT"}), {}),
}
"""Way to ask: the function, the arguments, codes that mean absence here alone, and the answer without any data."""


@every_code
@pytest.mark.parametrize("way", WAYS)
def test_a_question_is_absent_failed_or_ends_the_round_as_its_kind_says(
    clean_driver: Bench, way: str, code: str
) -> None:
    function, arguments, absent, empty = WAYS[way]
    answer: Any = CODE_OF[code]
    clean_driver.answer(function, fields_say({FIELD: (answer, "ullVal", 1)}) if way == "fields" else answer)
    asked = ask(clean_driver, way, *arguments)
    kind, name = KIND_OF[code], NAMES[code]
    ends = {GPU_GONE: f"gpu {name}", DRIVER_GONE: f"driver {name}", DRIVER_REPLACED: f"restart {name}"}
    assert asked.ended == ends.get(kind, "")
    assert asked.failures == ([name] if kind is FAILED and code not in absent else [])
    assert asked.not_asked_again == (kind is NOT_SUPPORTED or code in absent)
    assert asked.answer == (None if asked.ended else empty if kind is EMPTY or way == "fields" else None)
    if way == "ask":
        assert asked.answered == (1 if kind in (NOT_SUPPORTED, EMPTY) else 0)


@every_code
def test_a_question_about_two_gpus_blames_the_peer_for_a_gpu_that_is_gone(clean_driver: Bench, code: str) -> None:
    function = "nvmlDeviceGetTopologyCommonAncestor"
    clean_driver.answer(function, CODE_OF[code])
    asked = ask(clean_driver, "ask_pair", function, clean_driver.devices[1])
    failures = {GPU_GONE: [f"peer_{NAMES[code]}"], FAILED: [NAMES[code]]}
    assert asked.failures == failures.get(KIND_OF[code], [])
    assert bool(asked.ended) == (KIND_OF[code] in (DRIVER_GONE, DRIVER_REPLACED))
