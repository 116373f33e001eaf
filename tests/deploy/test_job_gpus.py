"""Slurm's prolog and epilog that tell the exporter which job has which GPU: what one writes, the other removes."""

import subprocess
from pathlib import Path

import pytest

from gpu_triage.machine import Holder, Moment, index_name
from gpu_triage.options.config import INDEX
from gpu_triage.read.processes.slurm_jobs import JobDirectory, parse_file

NOW = Moment(0.0, 0.0)
JOB = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_GPUS": "0,3",
    "CUDA_VISIBLE_DEVICES": "0,3",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "jobs"


def run(repository: Path, which: str, folder: Path, variables: dict[str, str]) -> str:
    """What the script says; it must succeed, or Slurm drains the node."""
    script = repository / "deploy" / "slurm" / f"job-gpus-{which}.sh"
    environment = {"PATH": "/usr/bin:/bin", "JOB_GPUS_FOLDER": str(folder), **variables}
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_the_exporter_reads_what_the_prolog_writes_until_the_epilog(repository: Path, folder: Path) -> None:
    assert run(repository, "prolog", folder, JOB) == ""
    jobs = JobDirectory(folder, INDEX, 15.0, folder)
    assert jobs.refresh(NOW) == ()
    alice = Holder(slurm_job_id="4242", user="alice", account="physics")
    assert [jobs.holders({index_name(gpu)}, NOW) for gpu in (0, 1, 3)] == [{alice}, frozenset(), {alice}]
    assert run(repository, "epilog", folder, JOB) == ""
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("other", ["SLURM_JOB_USER=bob", "SLURM_JOB_ID=7", "SLURM_JOB_GPUS=0-7"])
@pytest.mark.parametrize("ending", ["\n", "\r\n\n"])
@pytest.mark.parametrize("variable", ["SLURM_JOB_USER", "SLURM_JOB_ACCOUNT"])
def test_a_line_break_sets_no_variable(repository: Path, folder: Path, variable: str, ending: str, other: str) -> None:
    run(repository, "prolog", folder, {**JOB, variable: f"{ending}x{ending}{other}{ending}"})
    text = (folder / "4242.job").read_text()
    assert sorted(line.partition("=")[0] for line in text.splitlines()) == sorted(JOB)
    named = {**JOB, variable: f"x{other}"}
    job = Holder(slurm_job_id="4242", user=named["SLURM_JOB_USER"], account=named["SLURM_JOB_ACCOUNT"])
    assert set(parse_file(text, index_name)) == {(index_name(0), job), (index_name(3), job)}


def test_a_long_name_leaves_room_for_the_rest(repository: Path, folder: Path) -> None:
    devices = ",".join(f"MIG-{number:08x}-42e4-5de3-91c7-45d71c87eb3f" for number in range(16 * 7))
    long = {"SLURM_JOB_USER": "u" * 100_000, "SLURM_JOB_ACCOUNT": "a" * 100_000, "CUDA_VISIBLE_DEVICES": devices}
    run(repository, "prolog", folder, JOB | long)
    jobs = JobDirectory(folder, INDEX, 15.0, folder)
    assert jobs.refresh(NOW) == ()
    for device in devices.split(","):
        assert jobs.holders({device}, NOW) == {Holder(slurm_job_id="4242", user="u" * 64, account="a" * 64)}


def test_everybody_may_read_it_and_nobody_but_root_write_it(repository: Path, folder: Path) -> None:
    run(repository, "prolog", folder, JOB)
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "4242.job")] == [0o755, 0o644]


def test_a_link_that_was_planted_is_replaced_and_not_written_through(repository: Path, folder: Path) -> None:
    victim = folder.parent / "victim"
    folder.mkdir(parents=True)
    victim.write_text("precious")
    (folder / ".4242").symlink_to(victim)
    (folder / "4242.job").symlink_to(folder)
    run(repository, "prolog", folder, JOB)
    assert victim.read_text() == "precious"
    assert [(path.name, path.is_symlink()) for path in folder.iterdir()] == [("4242.job", False)]


@pytest.mark.parametrize(
    "variables",
    [{}, {**JOB, "SLURM_JOB_GPUS": ""}, {**JOB, "SLURM_JOB_ID": "../../etc/passwd"}, {**JOB, "SLURM_JOB_ID": ""}],
)
def test_a_job_without_gpus_or_id_writes_nothing(repository: Path, folder: Path, variables: dict[str, str]) -> None:
    for which in ("prolog", "epilog"):
        run(repository, which, folder, variables)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_does_not_drain_the_node(repository: Path, folder: Path) -> None:
    folder.parent.write_text("a file where the folder should be")
    assert "nothing was written" in run(repository, "prolog", folder, JOB)
