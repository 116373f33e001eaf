"""The state directory has one writer at a time, whatever lies in it and whatever happens to it."""

import os
from pathlib import Path

import pytest

from gpu_triage.errors import StateError
from gpu_triage.sampler.state_directory import StateDirectory


def refusal(state: StateDirectory) -> StateError:
    with pytest.raises(StateError) as raised:
        state.lock()
    return raised.value


def test_one_exporter_holds_it_and_the_next_is_told_which(tmp_path: Path) -> None:
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    assert [first.lock(), first.lock()] == [1, 1]
    error = refusal(second)
    assert error.reason == "in_use"
    assert f"{tmp_path}: another exporter writes here (its lock file names process {os.getpid()} on " in error.detail
    first.release()
    assert second.lock() == 1
    assert refusal(first).reason == "in_use"


@pytest.mark.parametrize("name", ["directory", "lock"])
def test_what_is_replaced_is_locked_again_and_must_be_read_again(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    state = StateDirectory(folder)
    assert state.lock() == 1
    if name == "directory":
        folder.rename(tmp_path / "moved")
        assert refusal(state).reason == "missing"
        folder.mkdir()
    else:
        (folder / ".lock").unlink()
    assert state.lock() == 2
    assert refusal(StateDirectory(folder)).reason == "in_use"


def test_what_interrupted_writes_left_is_removed_once_it_is_held_and_not_before(tmp_path: Path) -> None:
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    first.lock()
    left = [tmp_path / f".{name}.new" for name in ("incidents.json", "incidents.json.corrupt", "baseline.json")]
    for each in left:
        each.write_text("half")
    (tmp_path / ".others.new").write_text("somebody else's")
    refusal(second)
    assert all(each.exists() for each in left)
    first.release()
    second.lock()
    assert sorted(each.name for each in tmp_path.iterdir()) == [".lock", ".others.new"]


def test_a_link_in_the_place_of_the_lock_is_neither_followed_nor_written_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".lock").symlink_to(victim)
    error = refusal(StateDirectory(tmp_path))
    assert error.reason == "not_a_file"
    assert f"{tmp_path / '.lock'}: cannot be locked" in error.detail
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_in_the_place_of_the_lock_does_not_hold_it_up(tmp_path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(tmp_path / ".lock")
        assert StateDirectory(tmp_path).lock() == 1
    else:
        (tmp_path / ".lock").mkdir()
        assert refusal(StateDirectory(tmp_path)).reason == "not_a_file"


def test_what_a_lock_file_says_is_shown_only_where_it_names_a_process(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    first.lock()
    (tmp_path / ".lock").write_text("<script>\x1b[31m" * 100)
    assert "(another process has the lock)" in refusal(StateDirectory(tmp_path)).detail
