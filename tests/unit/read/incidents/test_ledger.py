"""The ledger of incidents and its file: whatever is in it, reading gives what is right or a named error."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.documents.files import MOST_BYTES
from gpu_triage.documents.saved_state import MOST_AHEAD_SECONDS
from gpu_triage.errors import DocumentError
from gpu_triage.read.incidents.ledger import (
    DAY_SECONDS,
    INCIDENT_HISTORY,
    LOST,
    MOST_INCIDENTS,
    RESET,
    SAME_SECONDS,
    Board,
    Incident,
    IncidentLedger,
    Memory,
    kind_of_xid,
)

NOW = 1.8e9
SLOT = "0000:65:00.0"
BOARD, OTHER_BOARD = "GPU-1", "GPU-2"
BOOT = "8e8c5f4e-0e9d-4a53-9a37-5d0c1f0e7c11"


def incident(
    at: float, kind: str = "79", *, uuid: str = BOARD, slot: str = SLOT, boot: str = "", uptime: float = 0.0
) -> Incident:
    return Incident(kind, uuid, "", slot, at, at, boot, uptime)


YEAR = 365 * DAY_SECONDS


def ledger(*incidents: Incident) -> IncidentLedger:
    made = IncidentLedger()
    for each in incidents:
        made.note(each)
    return made


def counted(made: IncidentLedger, now: float = NOW) -> Mapping[tuple[str, str, str], int]:
    return made.recent(BOARD, SLOT, now)


def days(count: float) -> float:
    return NOW - count * DAY_SECONDS


def test_incidents_less_than_an_hour_apart_are_one_however_long_they_go_on() -> None:
    made = ledger(*(incident(NOW - 50_000 + step * (SAME_SECONDS - 1)) for step in range(10)))
    assert len(made.memory.incidents) == 1


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (incident(NOW - SAME_SECONDS - 1), incident(NOW), False),
        (incident(NOW, kind=LOST), incident(NOW), False),
        (incident(NOW, uuid=OTHER_BOARD), incident(NOW), False),
        # One whose board was not known is that of the slot.
        (incident(NOW, uuid=""), incident(NOW), True),
        # Read again after a restart.
        (incident(NOW, boot=BOOT, uptime=4997.0), incident(NOW, boot=BOOT, uptime=5000.0), True),
        # A clock that was set makes no second one and corrects the first.
        *(
            (incident(NOW + years * YEAR, boot=BOOT, uptime=5000.0), incident(NOW, boot=BOOT, uptime=5000.0), True)
            for years in (-40, -1, 1, 3)
        ),
        (incident(NOW, boot=BOOT, uptime=5000.0), incident(NOW, boot=BOOT, uptime=50_000.0), False),
    ],
)
def test_two_reports_are_of_one_incident_or_of_two(first: Incident, second: Incident, same: bool) -> None:  # noqa: FBT001
    made = IncidentLedger(ledger(first).memory)
    assert made.note(second) is not same
    found = [(each.uuid, each.last_at) for each in made.memory.incidents]
    assert found == [(each.uuid, each.last_at) for each in ((second,) if same else (first, second))]


def test_counts_are_of_board_and_slot_wherever_it_was_and_whoever_was_there_in_the_last_30_days() -> None:
    made = ledger(incident(days(20), uuid=OTHER_BOARD), incident(days(10), slot="0000:b3:00.0"), incident(days(1)))
    assert counted(made) == {(by, "79", days): n for by in ("board", "slot") for days, n in (("7", 1), ("30", 2))}
    assert made.boards_recent(SLOT, NOW) == {("79", "30"): 2}
    # What is older, or of the future, does not count.
    assert counted(ledger(incident(days(30.1)), incident(NOW + 2 * SAME_SECONDS, kind="48"))) == {}
    assert ledger(incident(days(30.1))).boards_recent(SLOT, NOW) == {}


def test_a_clock_that_jumps_ahead_and_back_loses_nothing() -> None:
    made = ledger(incident(days(1)))
    assert counted(made, now=NOW + 20 * YEAR) == {}
    made.note(incident(NOW + 20 * YEAR, kind="48"))
    assert counted(made)["board", "79", "7"] == 1


def test_a_board_without_uuid_and_a_slot_without_address_are_nobodys() -> None:
    assert ledger(incident(NOW, uuid="")).recent("", "", NOW) == {}
    assert ledger(incident(NOW, slot="")).boards_recent("", NOW) == {}


@pytest.mark.slow
def test_incidents_are_bounded_and_resets_go_first() -> None:
    made = ledger(*(incident(days(100) + number, uuid=f"GPU-{number}") for number in range(50)))
    for number in range(MOST_INCIDENTS):
        made.note(incident(days(99) + number * 2 * SAME_SECONDS, kind=RESET))
    kinds = [each.kind for each in made.memory.incidents]
    assert (len(kinds), kinds.count("79")) == (MOST_INCIDENTS, 50)


def test_what_is_loaded_late_is_added_to_what_was_seen_meanwhile() -> None:
    made = ledger(incident(NOW))
    made.see_boot(BOOT)
    made.see_count(7)
    made.see_board(Board(BOARD, serial="1"))
    past = Memory(BOOT, 8, (Board(BOARD), Board(OTHER_BOARD)), (incident(days(3)), incident(NOW)))
    made.add(past)
    assert [each.last_at for each in made.memory.incidents] == [days(3), NOW]
    assert made.most_gpus == 8
    assert {board.uuid: board.serial for board in made.memory.boards} == {BOARD: "1", OTHER_BOARD: ""}


def test_a_dead_gpu_is_the_board_that_was_last_seen_in_its_slot_in_this_boot() -> None:
    made = IncidentLedger()
    for board in (Board("GPU-a", slot=SLOT, boot=BOOT), Board(BOARD, slot=SLOT, boot=BOOT), Board("GPU-c", boot=BOOT)):
        made.see_board(board)
    made.see_board(Board("GPU-b", slot=SLOT, boot="another"))
    assert {slot: board.uuid for slot, board in made.boards_in(BOOT).items()} == {SLOT: BOARD}
    assert made.boards_in("") == {}


@pytest.mark.parametrize(
    ("xid", "fatal", "kind"),
    [
        *((xid, "", xid) for xid in ("79", "63", "149", "998")),
        *((xid, "", None) for xid in ("31", "106", "other")),
        ("149", "true", "149"),
        ("149", "false", None),
    ],
)
def test_xids_of_programs_and_harmless_ones_are_no_incidents(xid: str, fatal: str, kind: str | None) -> None:
    assert kind_of_xid(xid, fatal) == kind


@given(st.lists(st.tuples(st.floats(0.0, 60 * DAY_SECONDS), st.sampled_from(["79", "48"])), max_size=40))
def test_noting_everything_again_in_any_later_process_changes_no_count(past: list[tuple[float, str]]) -> None:
    reports = [incident(NOW - ago, kind, boot=BOOT, uptime=9e6 - ago) for ago, kind in sorted(past, reverse=True)]
    made = ledger(*reports)
    again = IncidentLedger(made.memory)
    for report in reports:
        again.note(report)
    assert counted(again) == counted(made)
    assert len(again.memory.incidents) == len(made.memory.incidents)


INCIDENT = Incident("79", "GPU-1", "1320", "0000:65:00.0", 1.7e9, 1.7e9 + 5, "boot", 5.0)
MEMORY = Memory("boot", 8, (Board("GPU-1", "1320", "0000:65:00.0", 1.7e9, "boot", 2.0, 0),), (INCIDENT,))

READ_AT = 1.7e9 + 3600
LATEST = READ_AT + MOST_AHEAD_SECONDS


def read(path: Path, now: float = READ_AT) -> Memory | None:
    found = INCIDENT_HISTORY.read(path, now)
    assert found is None or found.refused == ()
    return None if found is None else found.memory


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(INCIDENT_HISTORY.encode(MEMORY)) | fields).encode()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    assert read(path) is None
    INCIDENT_HISTORY.write(path, MEMORY)
    assert read(path) == MEMORY
    INCIDENT_HISTORY.write(path, Memory())
    assert read(path) == Memory()
    assert [entry.name for entry in tmp_path.iterdir()] == ["incidents.json"]


def test_the_largest_ledger_fits() -> None:
    longest = Incident("lost", "G" * 45, "9" * 20, "0000:65:00.0", 1.7e9 + 0.123, 1.7e9 + 0.456, "b" * 36, 123456.789)
    boards = tuple(Board(f"GPU-{number:036}", "9" * 20, "0" * 12) for number in range(256))
    assert len(INCIDENT_HISTORY.encode(Memory("b" * 36, 8, boards, (longest,) * MOST_INCIDENTS))) < MOST_BYTES


NO_LISTS: tuple[tuple[str, Any], ...] = (("boards", {}), ("boards", "all"), ("incidents", {}), ("incidents", None))


@pytest.mark.parametrize("content", [b"[]", b"{}", *(changed(**{key: value}) for key, value in NO_LISTS)])
def test_nothing_of_a_wrong_file_is_believed(content: bytes) -> None:
    with pytest.raises(DocumentError) as raised:
        INCIDENT_HISTORY.decode(content, "incidents.json", LATEST)
    assert raised.value.reason == "malformed"


WRONG: dict[str, tuple[Any, ...]] = {
    "kind": ("<script>", None),
    "first_at": (float("-inf"),),
    "last_at": ("now", -1, 1e200, True, 1.0, 1e11, LATEST + 1),  # 1.0 is before first_at
    "uptime_seconds": (float("nan"),),
    "slot": (None,),
    "since": (7,),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_one_wrong_incident_is_refused_by_its_name_and_the_others_are_kept(field: str, value: Any) -> None:
    content = changed(incidents=[asdict(INCIDENT) | {field: value}, asdict(INCIDENT)])
    found = INCIDENT_HISTORY.decode(content, "incidents.json", LATEST)
    assert found.memory == MEMORY
    (refused,) = found.refused
    assert refused.startswith(f"incidents.json: incidents[0].{field}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [("boot", 7), ("boot", "x" * 81), ("boot", "a b"), ("most_gpus", -1), ("most_gpus", 1e300), ("most_gpus", True)],
)
def test_what_is_wrong_beside_the_incidents_costs_none_of_them(key: str, value: Any) -> None:
    found = INCIDENT_HISTORY.decode(changed(**{key: value}), "incidents.json", LATEST)
    assert found.memory == Memory("", 0, MEMORY.boards, MEMORY.incidents)
    (refused,) = found.refused
    assert refused.startswith(f"incidents.json: {key}: is ")


def test_an_entry_that_is_no_table_is_refused_alone() -> None:
    content = changed(incidents=[7, asdict(INCIDENT)], boards=[[], asdict(MEMORY.boards[0])])
    found = INCIDENT_HISTORY.decode(content, "f", LATEST)
    assert found.memory == MEMORY
    assert [each.split(": ")[1] for each in found.refused] == ["boards[0]", "incidents[0]"]


def test_a_clock_that_is_hours_ahead_or_years_behind_costs_no_incident(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    INCIDENT_HISTORY.write(path, MEMORY)
    written_at = INCIDENT.last_at + 60
    os.utime(path, (written_at, written_at))
    # The hardware clock kept local time when the incident was noted; the battery is empty at this start.
    assert [read(path, now) for now in (INCIDENT.last_at - 14 * 3600, 0.0, written_at)] == [MEMORY] * 3
    # Restored with times from an image.
    os.utime(path, (0, 0))
    assert read(path) == MEMORY
