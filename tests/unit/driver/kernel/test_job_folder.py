"""A folder that jobs can write to is listed a part at a time, however many files they make."""

from pathlib import Path

import pytest

from gpu_triage.driver.kernel import job_folder
from gpu_triage.driver.kernel.job_folder import Listing
from gpu_triage.errors import HostReadFailed


def names(count: int, ending: str = ".prom") -> set[str]:
    return {f"{number:03}{ending}" for number in range(count)}


def make(folder: Path, files: set[str]) -> None:
    folder.mkdir(exist_ok=True)
    for name in files:
        (folder / name).touch()


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_folder, "MOST_ENTRIES", 100)
    monkeypatch.setattr(job_folder, "MOST_IN_A_FOLDER", 30)


def test_a_small_folder_is_listed_whole_each_time(tmp_path: Path) -> None:
    make(tmp_path, {*names(20), *names(20, ".tmp"), ".hidden.prom"})
    make(tmp_path / "job", {"a.prom", "b.txt", ".c.prom"})
    make(tmp_path / "job" / "deeper", {"d.prom"})
    make(tmp_path / ".dot", {"e.prom"})
    make(tmp_path / "lost+found", {"f.prom"})
    listing = Listing(tmp_path, ".prom")
    for _ in range(3):
        assert listing.next_paths() == {*names(20), "job/a.prom"}


@pytest.mark.parametrize("ending", [".prom", ".tmp"])
def test_a_flood_is_listed_in_parts_and_every_file_comes_up_in_time(tmp_path: Path, ending: str) -> None:
    make(tmp_path, names(450, ending))
    make(tmp_path / "flooded", names(300))
    make(tmp_path / "job", {"new.prom"})
    listing = Listing(tmp_path, ".prom")
    rounds = [listing.next_paths() for _ in range(20)]
    assert max(map(len, rounds)) <= 100
    for first in range(10):
        found = set().union(*rounds[first : first + 7])
        assert "job/new.prom" in found
        assert names(450) <= found or ending == ".tmp"
        assert len([path for path in found if path.startswith("flooded/")]) == 30


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    listing = Listing(tmp_path / "later", ".prom")
    with pytest.raises(HostReadFailed, match="later") as failed:
        listing.next_paths()
    assert failed.value.reason == "missing"
    make(tmp_path / "later", names(3))
    assert listing.next_paths() == names(3)
