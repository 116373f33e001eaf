"""The directory of recordings: names, bounds, and what cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_triage.errors import FlightRecorderError
from gpu_triage.record.flight.directory import (
    MOST_BYTES,
    MOST_FILES,
    file_name,
    prune,
    recorded_before,
    refuse_unusable,
)

MIDNIGHT = 1768435200.0
"""15 January 2026, 00:00:00 UTC."""


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
    names = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(MOST_FILES + 3)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[3:], "backup.tar.gz", "notes.txt"])


def test_all_of_them_together_are_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    names = [file_name(MIDNIGHT + hour * 3600, "GPU 3", "gpu.lost") for hour in range(4)]
    for name in names:
        with (tmp_path / name).open("wb") as file:
            file.truncate(MOST_BYTES // 2)
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == names[2:]
    with (tmp_path / names[3]).open("wb") as file:
        file.truncate(2 * MOST_BYTES)
    prune(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == names[3:]


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


def test_the_directory_is_made_for_the_exporter_alone(tmp_path: Path) -> None:
    refuse_unusable(tmp_path / "a" / "recordings")
    assert (tmp_path / "a" / "recordings").stat().st_mode & 0o007 == 0
    assert list((tmp_path / "a" / "recordings").iterdir()) == []


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FlightRecorderError, match="cannot be written") as raised:
        refuse_unusable(tmp_path / "file" / "below")
    assert raised.value.reason == "missing"
