from pathlib import Path
from typing import Any, NamedTuple

import pynvml
import pytest
from tests.incident_hosts import host, xid
from tests.simulated_driver import Driver, driver

from gpu_triage.driver.nvml.events import MOST_XID, ROUND_EVENTS, XidEvents
from gpu_triage.driver.nvml.session import Device

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
        tries += [second] * len(events.take_failures())
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
        assert events.take_failures() == ()


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
        assert events.take_failures() == ("implausible",)


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
        assert events.take_failures() == (("uninitialized",) if shut_down_first else ())
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
        assert events.take_changed() == {"GPU-1"}
        assert events.take_changed() == frozenset()
