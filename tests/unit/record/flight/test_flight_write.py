"""A recording on its way to disk: one writer at a time, and nothing that others planted is written to."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from gpu_triage.driver.child import ChildProcess
from gpu_triage.errors import FlightRecorderError
from gpu_triage.machine import Moment
from gpu_triage.record.bundle import read_recording
from gpu_triage.record.capture import Captured
from gpu_triage.record.flight.directory import clean_up, clean_up_unless_written, file_name, lock_of
from gpu_triage.record.flight.process import FlightRecording
from gpu_triage.record.flight.write import write_here
from gpu_triage.record.masking import Masker
from gpu_triage.record.ring import RingBlock

MIDNIGHT = 1768435200.0
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


@pytest.mark.slow
def test_what_was_not_handed_over_whole_is_not_written(tmp_path: Path) -> None:
    given = pickle.dumps((tmp_path, recording(MIDNIGHT)))
    for cut, said in (
        (len(given), recording().name),
        (len(given) - 10, "ended before it had handed over"),
        (0, "ended"),
    ):
        stdout, code = ChildProcess("gpu_triage.record.flight.write").run(60, given[:cut])
        assert (code, said in stdout.decode()) == (0, True)
    assert names(tmp_path) == [".lock", recording().name]
