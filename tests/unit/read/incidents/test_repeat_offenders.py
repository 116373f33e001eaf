"""Faults that came back: when they are told, and whether the board or the slot is blamed, in check and on the page."""

from pathlib import Path

import pytest
from tests.one_shot import look_at
from tests.rig import scenario_with
from tests.status_pages import GPU, Series, body_of, judged, read

from gpu_triage.judge.host_judge import Judgment
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENT_BOARDS_RECENT, GPU_INCIDENTS_RECENT
from gpu_triage.read.incidents.ledger import INCIDENT_HISTORY, Incident, Memory
from gpu_triage_simulator import START_OF_TIME

SLOT = "0000:65:00.0"
EVIL = "<script>alert(1)</script>"


def incidents(
    by: str, days: int, count: int, kind: str = "79", *, gpu: tuple[str, str] = GPU, slot: str = SLOT
) -> Series:
    return (GPU_INCIDENTS_RECENT, float(count), (*gpu, slot, by, kind, str(days)))


def boards(count: int, kind: str = "79", gpu: tuple[str, str] = GPU) -> Series:
    return (GPU_INCIDENT_BOARDS_RECENT, float(count), (*gpu, SLOT, kind, "30"))


def told(latest: Judgment) -> list[str]:
    return [each.measured for each in latest.report.findings if each.check.code == "gpu.repeat_offender"]


@pytest.mark.parametrize(
    ("board", "slot", "seen", "expected"),
    [
        ({30: 1}, {30: 3}, 2, "3 times in 30 days in this slot, on 2 different boards: suspect the slot"),
        ({30: 3}, {30: 2}, 1, "3 times in 30 days on this board, 1 of them in another slot: suspect the board"),
        ({30: 3}, {30: 3}, 1, "3 times in 30 days on this board: suspect the board"),
        ({7: 2, 30: 2}, {7: 2}, 1, "2 times in 7 days on this board: suspect the board"),
        ({30: 1}, {30: 3}, 1, "3 times in 30 days in this slot: suspect the slot"),
    ],
)
@pytest.mark.parametrize("fault", [("79", "Xid 79"), ("lost", "GPU lost")])
def test_the_text_blames_the_board_or_the_slot(
    fault: tuple[str, str], board: dict[int, int], slot: dict[int, int], seen: int, expected: str
) -> None:
    kind, name = fault
    counts = (("board", board), ("slot", slot))
    series = (incidents(by, days, count, kind) for by, counted in counts for days, count in counted.items())
    assert told(judged(*read(), *series, boards(seen, kind))) == [f"{name}, {expected}"]


@pytest.mark.parametrize(
    "series",
    [
        (incidents("board", 7, 1), incidents("slot", 7, 1), boards(1)),
        (incidents("board", 30, 2), incidents("slot", 30, 2), boards(2)),
        (incidents("board", 7, 9, "reset"), incidents("board", 30, 9, "reset")),
        (),
    ],
)
def test_a_second_time_in_a_month_and_resets_alone_are_no_repeat_offence(series: tuple[Series, ...]) -> None:
    latest = judged(*read(), *series)
    assert told(latest) == []
    assert "Repeat offenders" not in body_of(latest)


def test_a_slot_whose_gpu_is_not_seen_is_blamed_by_its_address() -> None:
    nobody = ("", "")
    latest = judged(*read(), incidents("slot", 30, 3, gpu=nobody), boards(2, gpu=nobody))
    (found,) = (each for each in latest.report.findings if each.check.code == "gpu.repeat_offender")
    assert found.subject == f"GPU at {SLOT}"
    assert f'data-slot="{SLOT}" data-kind="79" data-suspect="slot"' in body_of(latest)


def test_the_page_has_a_row_for_each_fault_that_came_back_and_markup_in_it_is_text() -> None:
    faults = [incidents("board", 30, 3, kind) for kind in ("79", "48")]
    once, hostile = incidents("board", 7, 1, "63"), incidents("board", 30, 3, EVIL, slot=EVIL)
    page = body_of(judged(*read(), *faults, once, hostile))
    assert page.count('data-suspect="board"') == 3
    assert "Xid 48, 3 times in 30 days on this board" in page
    assert EVIL not in page
    assert "&lt;script&gt;" in page


def test_check_reads_the_ledger_and_never_writes_it(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", 'at = 60\ngpu = 0\neffect = { kind = "xid", code = 48 }')
    folder = tmp_path / "state"
    folder.mkdir()
    ledger = folder / "incidents.json"
    times = [START_OF_TIME - days * 86_400.0 for days in (9, 5)]
    past = tuple(Incident("48", "GPU-9", "", SLOT, at, at, "", 0.0) for at in times)
    INCIDENT_HISTORY.write(ledger, Memory(incidents=past))
    content = ledger.read_bytes()
    for spoiled in (False, True):
        if spoiled:
            ledger.write_text("garbage")
        report = look_at(scenario, 120, config=Config(state_directory=folder))
        found = "Xid 48, 3 times in 30 days in this slot" in str(report.findings)
        assert (found, ledger.read_bytes()) == ((False, b"garbage") if spoiled else (True, content))
        assert [path.name for path in folder.iterdir()] == [ledger.name]
