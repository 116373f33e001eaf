"""Whose the files of jobs are, and that no owner's files cost another's anything."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.job_files import errors, read, samples, write

from gpu_triage.driver.kernel import job_folder
from gpu_triage.machine import RealClock, real_machine
from gpu_triage.read.host.textfile_reader import MAX_FILES, MAX_SERIES, TextFilesReader, TextFilesReading
from gpu_triage.read.metrics.rounds import HostRound

pytestmark = pytest.mark.slow

STEPS = 'gpu_job_steps_total{job_name="bert"} %d\n'


def test_two_owners_of_one_job_name_have_a_series_each(tmp_path: Path) -> None:
    write(tmp_path, {"mallory/a.prom": STEPS % 0, "alice/z.prom": STEPS % 1200})
    reading = read(tmp_path)
    assert errors(reading) == {"alice/z.prom": (), "mallory/a.prom": ()}
    assert {sample.labels["owner"]: sample.value for sample in samples(reading)} == {"alice": 1200, "mallory": 0}
    assert all(sample.labels["job_name"] == "bert" for sample in samples(reading))


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def owners(reading: TextFilesReading) -> dict[str, str]:
    return {file.name: file.owner for file in reading.files}


@ROOT_ONLY
def test_in_a_directory_that_others_can_write_to_the_owner_is_the_user_whatever_the_folder_is_called(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n", "alice/claimed.prom": "gpu_job_x 1\n", "4242/job.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    os.chown(tmp_path / "own.prom", 4711, -1)
    os.chown(tmp_path / "alice", 4712, -1)
    assert owners(read(tmp_path)) == {"4242/job.prom": "4242", "alice/claimed.prom": "uid:4712", "own.prom": "uid:4711"}


@ROOT_ONLY
def test_a_folder_that_a_prolog_gave_to_the_jobs_user_stays_the_jobs(tmp_path: Path) -> None:
    write(tmp_path, {"4242/job.prom": STEPS % 1})
    os.chown(tmp_path / "4242", 4711, -1)
    os.chown(tmp_path / "4242/job.prom", 4711, -1)
    assert owners(read(tmp_path)) == {"4242/job.prom": "4242"}


def test_a_file_in_the_directory_itself_belongs_to_its_user(tmp_path: Path) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n"})
    names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == os.geteuid()]
    assert owners(read(tmp_path))["own.prom"] in (names or [f"uid:{os.geteuid()}"])


@ROOT_ONLY
def test_whoever_links_to_a_file_of_another_owns_what_is_published_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"victim.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    (tmp_path / "000.prom").symlink_to("victim.prom")
    os.lchown(tmp_path / "000.prom", 4711, -1)
    reading = read(tmp_path)
    assert errors(reading) == {"000.prom": (), "victim.prom": ()}
    assert len({sample.labels["owner"] for sample in samples(reading)}) == 2


def test_a_directory_behind_a_link_is_judged_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "jobs", {"4242/job.prom": STEPS % 1})
    (tmp_path / "link").symlink_to("jobs")
    assert owners(read(tmp_path / "link")) == {"4242/job.prom": "4242"}


def test_a_folder_that_cannot_be_read_is_told() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        directory = Path(name)
        write(directory, {"closed/job.prom": STEPS % 1})
        (directory / "closed").chmod(0)
        (directory / "lost+found").mkdir(mode=0)
        host = HostRound(real_machine(Path("/sys"), Path("/proc"), None), RealClock().now())
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)  # root may read everything
            reading = TextFilesReader(directory).read(host)
        finally:
            os.seteuid(user)
            (directory / "closed").chmod(0o700)
        assert errors(reading) == {"closed/": ("unreadable",)}
        assert host.failures == ["unreadable"]


def test_a_link_in_the_folder_of_one_job_reaches_no_file_of_another(tmp_path: Path) -> None:
    write(tmp_path, {"victim/.hidden": STEPS % 1, "mallory/own.prom": "gpu_job_x 1\n"})
    (tmp_path / "mallory/link.prom").symlink_to(tmp_path / "victim/.hidden")
    (tmp_path / "mallory/up.prom").symlink_to("../victim/.hidden")
    (tmp_path / "linked").symlink_to("victim")
    assert errors(read(tmp_path)) == {
        "mallory/link.prom": ("link_outside",),
        "mallory/own.prom": (),
        "mallory/up.prom": ("link_outside",),
    }


def test_a_type_that_one_owner_claims_costs_no_other_a_series(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/1.prom": "# TYPE gpu_job_steps_total gauge\ngpu_job_steps_total 1\n",
            "b/1.prom": "# TYPE gpu_job_steps_total counter\ngpu_job_steps_total 2\n",
            "c/1.prom": "# TYPE gpu_job_seconds histogram\n"
            'gpu_job_seconds_bucket{le="+Inf"} 3\ngpu_job_seconds_sum 3\ngpu_job_seconds_count 3\n',
            "d/1.prom": "# TYPE gpu_job_seconds_count gauge\ngpu_job_seconds_count 4\n",
        },
    )
    reading = read(tmp_path)
    assert set(errors(reading).values()) == {()}
    found = {(sample.labels["owner"], sample.name): sample.value for sample in samples(reading)}
    assert found == {
        ("a", "gpu_job_steps_total"): 1,
        ("b", "gpu_job_steps_total"): 2,
        ("c", "gpu_job_seconds_bucket"): 3,
        ("c", "gpu_job_seconds_sum"): 3,
        ("c", "gpu_job_seconds_count"): 3,
        ("d", "gpu_job_seconds_count"): 4,
    }
    assert {family.type for family in reading.families} == {"unknown"}


def many(count: int) -> str:
    return "".join(f'gpu_job_x{{n="{number}"}} 1\n' for number in range(count))


def test_an_owner_who_takes_all_room_takes_none_from_another(tmp_path: Path) -> None:
    greedy = {f"000-greedy/{number:03}.prom": many(MAX_SERIES // 2) for number in range(10)}
    flooding = {f"001-flooding/{number:03}.prom": "gpu_job_x 1\n" for number in range(2 * MAX_FILES)}
    modest = {f"z/{number}.prom": f'gpu_job_y{{file="{number}"}} 1\n' + many(100) for number in range(1)}
    write(tmp_path, {**greedy, **flooding, **modest})
    reading = read(tmp_path)
    assert errors(reading)["z/0.prom"] == ()
    assert sum(sample.labels["owner"] == "z" for sample in samples(reading)) == 101
    assert len(samples(reading)) <= MAX_SERIES
    assert len(reading.files) == MAX_FILES
    assert errors(reading)["000-greedy/000.prom"] == ()


def test_a_flood_of_files_neither_replaces_what_was_read_nor_hides_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_folder, "MOST_ENTRIES", 50)
    reader = TextFilesReader(tmp_path)
    write(tmp_path, {"victim/job.prom": STEPS % 1, "gone/job.prom": STEPS % 1, "own.prom": "gpu_job_z 1\n"})
    read(tmp_path, reader=reader)
    shutil.rmtree(tmp_path / "gone")
    write(tmp_path, {f"0{number:03}.prom": f'gpu_job_x{{n="{number}"}} 1\n' for number in range(600)})
    write(tmp_path, {"late/job.prom": STEPS % 2})
    found = [{file.owner: file.name for file in read(tmp_path, reader=reader).files} for _ in range(20)]
    assert all(owners["victim"] == "victim/job.prom" for owners in found)
    assert not any("gone" in owners for owners in found)
    assert all("late" in owners for owners in found[13:])
    assert "own.prom" in errors(read(tmp_path, reader=reader))
