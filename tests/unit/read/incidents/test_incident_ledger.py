"""What the ledger of incidents takes for one incident, what it counts, and what it forgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.read.incidents.ledger import (
    DAY_SECONDS,
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


def ledger(*incidents: Incident) -> IncidentLedger:
    made = IncidentLedger()
    for each in incidents:
        made.note(each)
    return made


def counted(
    made: IncidentLedger, uuid: str = BOARD, slot: str = SLOT, now: float = NOW
) -> Mapping[tuple[str, str, str], int]:
    return made.recent(uuid, slot, now)


def days(count: float) -> float:
    return NOW - count * DAY_SECONDS


def test_incidents_less_than_an_hour_apart_are_one_however_long_they_go_on() -> None:
    made = ledger(*(incident(NOW - 50_000 + step * (SAME_SECONDS - 1)) for step in range(10)))
    assert len(made.memory.incidents) == 1
    assert ledger(incident(NOW - 9000), incident(NOW - 9000 + SAME_SECONDS + 1)).memory.incidents[1].kind == "79"


def test_other_kinds_other_boards_and_other_days_are_incidents_of_their_own() -> None:
    made = ledger(incident(NOW), incident(NOW, kind=LOST), incident(NOW, uuid=OTHER_BOARD), incident(days(1)))
    assert len(made.memory.incidents) == 4


def test_an_incident_whose_board_was_not_known_is_that_of_the_slot() -> None:
    made = ledger(incident(NOW, uuid=""), incident(NOW + 10))
    assert [each.uuid for each in made.memory.incidents] == [BOARD]


def test_the_same_xid_read_again_after_a_restart_is_not_counted_twice() -> None:
    first = incident(NOW, boot=BOOT, uptime=5000.0)
    made = IncidentLedger(ledger(first).memory)
    assert not made.note(replace(first, uptime_seconds=5003.0, first_at=NOW + 3, last_at=NOW + 3))
    assert len(made.memory.incidents) == 1


@pytest.mark.parametrize("jump", [-40 * 365 * DAY_SECONDS, -7200.0, 7200.0, 3 * 365 * DAY_SECONDS])
def test_a_clock_that_was_set_makes_no_second_incident_and_corrects_the_first(jump: float) -> None:
    made = ledger(incident(NOW + jump, boot=BOOT, uptime=5000.0))
    made.note(incident(NOW, boot=BOOT, uptime=5000.0))
    assert [each.last_at for each in made.memory.incidents] == [NOW]


def test_two_incidents_of_one_boot_stay_two_though_the_clock_says_they_were_at_one_time() -> None:
    made = ledger(incident(NOW, boot=BOOT, uptime=5000.0), incident(NOW, boot=BOOT, uptime=50_000.0))
    assert len(made.memory.incidents) == 2


def test_counts_are_of_the_board_wherever_it_was_and_of_the_slot_whoever_was_there() -> None:
    made = ledger(incident(days(20), uuid=OTHER_BOARD), incident(days(10), slot="0000:b3:00.0"), incident(days(1)))
    assert counted(made) == {
        ("board", "79", "7"): 1,
        ("board", "79", "30"): 2,
        ("slot", "79", "7"): 1,
        ("slot", "79", "30"): 2,
    }
    assert made.boards_recent(SLOT, NOW) == {("79", "30"): 2}


def test_what_is_older_than_30_days_or_of_the_future_does_not_count() -> None:
    assert counted(ledger(incident(days(30.1)), incident(NOW + 2 * SAME_SECONDS, kind="48"))) == {}
    assert ledger(incident(days(30.1))).boards_recent(SLOT, NOW) == {}


def test_a_clock_that_jumps_ahead_and_back_loses_nothing() -> None:
    made = ledger(incident(days(1)))
    assert counted(made, now=NOW + 20 * 365 * DAY_SECONDS) == {}
    made.note(incident(NOW + 20 * 365 * DAY_SECONDS, kind="48"))
    assert counted(made)["board", "79", "7"] == 1


def test_a_board_without_uuid_and_a_slot_without_address_are_nobodys() -> None:
    assert counted(ledger(incident(NOW, uuid="")), uuid="", slot="") == {}
    assert ledger(incident(NOW, slot="")).boards_recent("", NOW) == {}


@pytest.mark.slow
def test_incidents_are_bounded_and_resets_go_first() -> None:
    made = ledger(*(incident(days(100) + number, uuid=f"GPU-{number}") for number in range(50)))
    for number in range(MOST_INCIDENTS):
        made.note(incident(days(99) + number * 2 * SAME_SECONDS, kind=RESET))
    kinds = [each.kind for each in made.memory.incidents]
    assert len(kinds) == MOST_INCIDENTS
    assert kinds.count("79") == 50


def test_kinds_published_for_one_gpu_are_bounded() -> None:
    made = ledger(*(incident(NOW, kind=str(code)) for code in range(200, 400)))
    assert len(counted(made)) <= 16 * 4
    assert len(made.boards_recent(SLOT, NOW)) <= 16


def test_the_most_gpus_are_of_this_boot_only() -> None:
    made = IncidentLedger(Memory(boot=BOOT, most_gpus=8))
    made.see_boot(BOOT)
    made.see_count(7)
    assert made.most_gpus == 8
    made.see_boot("another")
    assert made.most_gpus is None
    made.see_count(7)
    assert made.most_gpus == 7


def test_what_is_loaded_late_is_added_to_what_was_seen_meanwhile() -> None:
    made = ledger(incident(NOW))
    made.see_boot(BOOT)
    made.see_count(7)
    made.see_board(Board(BOARD, serial="1"))
    past = Memory(BOOT, 8, {BOARD: Board(BOARD), OTHER_BOARD: Board(OTHER_BOARD)}, (incident(days(3)), incident(NOW)))
    made.add(past)
    assert [each.last_at for each in made.memory.incidents] == [days(3), NOW]
    assert made.most_gpus == 8
    assert {uuid: board.serial for uuid, board in made.memory.boards.items()} == {BOARD: "1", OTHER_BOARD: ""}


def test_boards_are_bounded() -> None:
    made = IncidentLedger()
    for number in range(1000):
        made.see_board(Board(f"GPU-{number}"))
    assert len(made.memory.boards) == 256
    assert made.board("GPU-999") is not None


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
        ("79", "", "79"),
        ("63", "", "63"),
        ("149", "true", "149"),
        ("149", "", "149"),
        ("149", "false", None),
        ("31", "", None),
        ("106", "", None),
        ("998", "", "998"),
        ("other", "", None),
    ],
)
def test_xids_of_programs_harmless_ones_and_nonfatal_ones_are_no_incidents(
    xid: str, fatal: str, kind: str | None
) -> None:
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
