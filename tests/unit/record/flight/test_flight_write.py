"""A recording on its way to disk: names and bounds, one writer at a time, and nothing that others planted is hit."""

import pickle
import threading
from pathlib import Path

import pytest

from gpu_triage.driver.child import ChildProcess
from gpu_triage.errors import FlightRecorderError
from gpu_triage.machine import Moment
from gpu_triage.record.bundle import read_recording
from gpu_triage.record.capture import Captured
from gpu_triage.record.flight.directory import (
    MOST_BYTES,
    MOST_FILES,
    clean_up,
    clean_up_unless_written,
    file_name,
    lock_of,
    prune,
    recorded_before,
    refuse_unusable,
)
from gpu_triage.record.flight.process import FlightRecording
from gpu_triage.record.flight.write import write_here
from gpu_triage.record.masking import Masker
from gpu_triage.record.ring import RingBlock

MIDNIGHT = 1768435200.0
"""15 January 2026, 00:00:00 UTC."""
MASKER = Masker(b"k" * 32, hosts=[])


def recording(wall: float = MIDNIGHT, *blocks: RingBlock) -> FlightRecording:
    captured = Captured(Moment(100.0, wall - 600), 600.0, blocks, {"f": (((0, 4),),)}, ("g",), kmsg=None)
    return FlightRecording(file_name(wall, "GPU 3", "gpu.lost"), captured, "{}")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_recording_is_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    name = write_here(tmp_path, recording(), MASKER)
    assert names(tmp_path) == [".lock", name]
    assert read_recording(tmp_path / name).seconds == 600.0


@pytest.mark.parametrize("planted", [f".{recording().name}.new", recording().name, ".lock"])
def test_a_link_that_somebody_planted_is_not_written_to(tmp_path: Path, planted: str) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "recordings"
    victim.write_text("precious")
    directory.mkdir()
    (directory / planted).symlink_to(victim)
    if planted == ".lock":
        with pytest.raises(FlightRecorderError, match="delete the link") as raised:
            write_here(directory, recording(), MASKER)
        assert raised.value.reason == "not_a_file"
    elif planted == recording().name:
        # It counts as a recording of the same finding.
        assert write_here(directory, recording(), MASKER) == planted
    else:
        name = write_here(directory, recording(), MASKER)
        assert not (directory / name).is_symlink()
        assert names(directory) == [".lock", name]
    assert victim.read_text() == "precious"


def test_what_is_behind_a_link_survives_the_cleaning_up(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "recordings"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    directory.mkdir()
    (directory / f".{recording().name}.new").symlink_to(elsewhere / "precious")
    clean_up(directory)
    assert names(directory) == []
    assert names(elsewhere) == ["precious"]


def test_what_a_process_of_an_earlier_exporter_still_writes_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / ".half.tar.gz.new").touch()
    writer = lock_of(tmp_path)
    writer.acquire()
    clean_up_unless_written(tmp_path)
    assert ".half.tar.gz.new" in names(tmp_path)
    writer.release()
    clean_up_unless_written(tmp_path)
    assert names(tmp_path) == [".lock"]


def test_of_two_exporters_that_see_the_same_finding_the_second_takes_the_recording_of_the_first(tmp_path: Path) -> None:
    first = lock_of(tmp_path)
    first.acquire()
    answers: list[str] = []
    second = threading.Thread(target=lambda: answers.append(write_here(tmp_path, recording(MIDNIGHT + 60), MASKER)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    name = recording().name
    (tmp_path / name).write_bytes(b"of the first")
    first.release()
    second.join(20)
    assert answers == [name]
    assert (tmp_path / name).read_bytes() == b"of the first"


@pytest.mark.parametrize(
    ("subject", "code", "name"),
    [
        ("GPU 3", "xid.critical", "20260115T000000Z-gpu-3-xid.critical.tar.gz"),
        ("host", "driver.unavailable", "20260115T000000Z-host-driver.unavailable.tar.gz"),
        ("GPU at 0000:65:00.0", "xid.critical", "20260115T000000Z-gpu-at-0000-65-00.0-xid.critical.tar.gz"),
        ("GPU ../../etc", "a/b", "20260115T000000Z-gpu-..-..-etc-a-b.tar.gz"),
    ],
)
def test_a_name_says_when_who_and_what(subject: str, code: str, name: str) -> None:
    assert file_name(MIDNIGHT, subject, code) == name
    assert "/" not in name


def test_the_oldest_go_first_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "backup.tar.gz").write_text("mine too")
    made = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(MOST_FILES + 3)]
    for name in made:
        (tmp_path / name).write_bytes(b"x")
    prune(tmp_path)
    assert names(tmp_path) == sorted([*made[3:], "backup.tar.gz", "notes.txt"])


def test_all_of_them_together_are_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    made = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(4)]
    for name in made:
        with (tmp_path / name).open("wb") as file:
            file.truncate(MOST_BYTES // 2)
    prune(tmp_path)
    assert names(tmp_path) == made[2:]
    with (tmp_path / made[3]).open("wb") as file:
        file.truncate(2 * MOST_BYTES)
    prune(tmp_path)
    assert names(tmp_path) == made[3:]


def test_the_same_finding_within_the_hour_is_known(tmp_path: Path) -> None:
    early, other = file_name(MIDNIGHT, "GPU 3", "gpu.lost"), file_name(MIDNIGHT + 60, "GPU 2", "gpu.lost")
    for name in (early, other, "99999999T999999Z-gpu-3-gpu.lost.tar.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3000, "GPU 3", "gpu.lost"), 3600) == early
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3601, "GPU 3", "gpu.lost"), 3600) is None
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 3000, "GPU 3", "xid.critical"), 3600) is None


def test_a_recording_from_before_the_clock_was_set_back_suppresses_no_other(tmp_path: Path) -> None:
    (tmp_path / file_name(MIDNIGHT + 60, "GPU 3", "gpu.lost")).write_bytes(b"x")
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 59, "GPU 3", "gpu.lost"), 3600) is None
    assert recorded_before(tmp_path, file_name(MIDNIGHT + 60, "GPU 3", "gpu.lost"), 3600) is not None


def test_the_directory_is_made_for_the_exporter_alone_and_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "recordings"
    refuse_unusable(directory)
    assert (directory.stat().st_mode & 0o007, names(directory)) == (0, [])
    (tmp_path / "file").touch()
    with pytest.raises(FlightRecorderError, match="cannot be written") as raised:
        refuse_unusable(tmp_path / "file" / "below")
    assert raised.value.reason == "missing"


@pytest.mark.slow
def test_what_was_not_handed_over_whole_is_not_written(tmp_path: Path) -> None:
    given = pickle.dumps((tmp_path, recording(MIDNIGHT)))
    cuts = ((len(given), recording().name), (len(given) - 10, "ended before it had handed over"), (0, "ended"))
    for cut, said in cuts:
        stdout, code = ChildProcess("gpu_triage.record.flight.write").run(60, given[:cut])
        assert (code, said in stdout.decode()) == (0, True)
    assert names(tmp_path) == [".lock", recording().name]
