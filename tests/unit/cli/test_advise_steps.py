"""The step time that `gpu-triage advise` reads from the files of a running job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.advise_hosts import look_at

from gpu_triage.cli.advise.steps import StepTime, StepWatch
from gpu_triage.cli.main import group
from gpu_triage.cli.measure import measure
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.options.run import run_cli
from gpu_triage.read.host.textfile import TEXTFILE
from gpu_triage.read.host.textfile_reader import TextFilesReader
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow


def write(folder: Path, job: str, steps: float, at: float) -> None:
    path = folder / f"{job}.prom"
    path.write_text(f'# TYPE gpu_job_steps_total counter\ngpu_job_steps_total{{job_name="{job}"}} {steps}\n')
    os.utime(path, (at, at))


def store_with(reader: TextFilesReader) -> OutcomeStore:
    store, now = OutcomeStore([TEXTFILE.name]), Moment(0.0, 0.0)
    with simulated_machine(load_scenario("no-host-pids"), clock=VirtualClock()) as simulated:
        reading = reader.read(HostRound(simulated.machine, now))
    store.put(Outcome(TEXTFILE.name, HOST, (), True, (), 0.0, now, reading=reading))  # noqa: FBT003 - success
    return store


def steps_of(contents: list[tuple[float, float]], folder: Path, host: str, *jobs: str) -> StepTime:
    """The step time that files lead to which are rewritten at these Unix seconds with these steps."""
    watch, reader = StepWatch(), TextFilesReader(folder)
    watch.note(store_with(reader))
    for at, steps in contents:
        for job in jobs or ("bert",):
            write(folder, job, steps, at)
        watch.note(store_with(reader))
    return watch.step_time(look_at(host).host)


def test_a_measurement_reads_the_step_time_of_the_job_that_runs(tmp_path: Path) -> None:
    # The job writes every tenth publication, 4 steps and 1 s further on; one GPU of this host works.
    watch, publications = StepWatch(), 0

    def job_goes_on(store: OutcomeStore) -> None:
        nonlocal publications
        watch.note(store)
        write(tmp_path, "bert", 1200 + 4 * (publications // 10), 1000 + publications // 10)
        publications += 1

    config = Config(collector_textfile_directory=tmp_path, sample_fast_seconds=0.1)
    with simulated_machine(load_scenario("no-host-pids"), clock=VirtualClock()) as simulated:
        judgment = measure(simulated.machine, config, 10.0, watch=job_goes_on)
    step = watch.step_time(judgment.host)
    assert step.seconds == pytest.approx(0.25)
    assert step.words.startswith("gpu_job_steps_total of bert: ")


def test_the_time_is_that_between_two_contents_of_the_file(tmp_path: Path) -> None:
    step = steps_of([(1000.0, 1200), (1000.0, 1200), (1010.0, 1240)], tmp_path, "2 L40S")
    assert (step.seconds, step.words) == (0.25, "gpu_job_steps_total of bert: 40 steps in 10.0 s")


@pytest.mark.parametrize(
    ("contents", "host", "jobs", "words"),
    [
        ([], "2 L40S", (), "no job writes gpu_job_steps_total"),
        ([(1000.0, 1200), (1000.0, 1200)], "2 L40S", (), "did not rise during the measurement: measure longer"),
        # The job restarted.
        ([(1000.0, 1200), (1010.0, 3)], "2 L40S", (), "did not rise during the measurement"),
        ([(1000.0, 10), (1010.0, 20)], "2 L40S", ("bert", "resnet"), "2 jobs make steps (bert; resnet): give the time"),
        # Two GPUs work: the step contains an exchange.
        ([(1000.0, 1200), (1010.0, 1240)], "2 RTX 4070 Ti", (), "but on GPU 0-1: give the time on one GPU"),
    ],
)
def test_a_counter_that_gives_no_step_time_says_why(
    contents: list[tuple[float, float]], host: str, jobs: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    step = steps_of(contents, tmp_path, host, *jobs)
    assert step.seconds is None
    assert words in step.words


def test_the_command_reads_the_counter_where_a_folder_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "bert", 1200, 1000.0)
    arguments = ["advise", "--simulate", "no-host-pids", "--params", "350M"]
    assert run_cli(group, [*arguments, "--collector.textfile.directory", str(tmp_path)]) == 0
    assert "the step time is not known: gpu_job_steps_total did not rise" in capsys.readouterr().out
