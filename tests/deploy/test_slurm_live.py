"""A real slurmctld and a real slurmd run the scripts: what becomes of the job and of its node."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.rig import scenario_with
from tests.slurm_cluster import PATIENCE_SECONDS, Cluster, cluster
from tests.slurm_node import LOST, NOBODY, exporter_of_a_repaired_gpu

from gpu_triage.machine import Moment, SlurmJob, index_name
from gpu_triage.options.config import INDEX
from gpu_triage.read.processes.slurm_jobs import JobDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REASON = "gpu-triage: GPU 1 gpu.lost, GPU 1 xid.79"
NOW = Moment(0.0, 0.0)
NO_HOLD = {"SchedulerParameters": "nohold_on_prolog_fail"}


@pytest.fixture(scope="module")
def started(repository: Path, requires_tool: RequiresTool) -> Iterator[Cluster]:
    with cluster(repository, requires_tool) as running:
        yield running


@pytest.fixture
def slurm(started: Cluster) -> Cluster:
    started.configure(**NO_HOLD)
    started.settings()
    started.idle()
    return started


def program(slurm: Cluster, scenario: str) -> str:
    path = slurm.folder / "gpu-triage"
    simulated = f"--simulate {scenario} --simulate-at 1m"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpu_triage "$@" {simulated}\n')
    path.chmod(0o755)
    return str(path)


def drained(slurm: Cluster) -> str:
    """The reason that the node is drained for, without who said it and when."""
    wait_for(lambda: "DRAIN" in slurm.node()["State"], PATIENCE_SECONDS)
    return slurm.node()["Reason"].partition(" [")[0]


def test_a_job_on_a_sick_gpu_is_requeued_while_one_on_a_healthy_gpu_runs_to_its_end(slurm: Cluster, sick: str) -> None:
    slurm.settings(NODE_CHECK_URL=sick)
    healthy = slurm.submit(1, waits=True)
    healthy.starts()
    job = slurm.submit(1)
    job.is_requeued()
    assert job["Priority"] != "0"
    assert drained(slurm) == REASON
    assert slurm.syslog() == [
        f"gpu-triage-prolog: job {job.number}: the job does not start: {REASON}",
        f"gpu-triage-prolog: job {job.number}: draining the node: {REASON}",
    ]
    slurm.go()
    healthy.completes()


def test_without_the_recommended_parameter_the_job_is_held_until_it_is_released(slurm: Cluster, sick: str) -> None:
    slurm.configure()
    slurm.settings(NODE_CHECK_URL=sick)
    job = slurm.submit(2)
    job.is_requeued()
    assert (job["Reason"], job["Priority"]) == ("launch_failed_requeued_held", "0")
    assert drained(slurm) == REASON
    slurm.scontrol("release", job.number)
    assert job["Priority"] != "0"


def test_with_the_exporter_down_the_program_finds_the_sick_gpu(slurm: Cluster, tmp_path: Path) -> None:
    scenario_with(tmp_path, "idle-downshift", LOST)
    sick = program(slurm, str(tmp_path / "idle-downshift-changed.toml"))
    slurm.settings(NODE_CHECK_URL=NOBODY, NODE_CHECK_PROGRAM=sick)
    slurm.submit(2).is_requeued()
    assert drained(slurm) == REASON


def test_with_the_exporter_down_the_program_lets_a_job_on_healthy_gpus_start(slurm: Cluster) -> None:
    slurm.settings(NODE_CHECK_URL=NOBODY, NODE_CHECK_PROGRAM=program(slurm, "idle-downshift"))
    slurm.submit(2).completes()
    assert "DRAIN" not in slurm.node()["State"]


def test_a_job_that_nobody_could_check_starts_and_syslog_says_so(slurm: Cluster) -> None:
    slurm.settings(NODE_CHECK_URL=NOBODY, NODE_CHECK_PROGRAM="/nonexistent/gpu-triage")
    job = slurm.submit(1)
    job.completes()
    said = f"nothing was checked: no verdict from {NOBODY}, and /nonexistent/gpu-triage is not installed"
    assert slurm.syslog() == [f"gpu-triage-{script}: job {job.number}: {said}" for script in ("prolog", "epilog")]
    assert "DRAIN" not in slurm.node()["State"]


def test_a_job_that_nobody_could_check_is_requeued_if_so_configured(slurm: Cluster) -> None:
    program = "/nonexistent/gpu-triage"
    slurm.settings(NODE_CHECK_URL=NOBODY, NODE_CHECK_PROGRAM=program, NODE_CHECK_UNCHECKED="drain")
    slurm.submit(1).is_requeued()
    said = f"gpu-triage: nothing was checked: no verdict from {NOBODY}, and {program} is not installed"
    assert drained(slurm) == said


def test_the_epilog_drains_the_node_after_a_job_whose_gpu_became_sick(slurm: Cluster, sick: str) -> None:
    slurm.settings(NODE_CHECK_URL=NOBODY, NODE_CHECK_PROGRAM=program(slurm, "idle-downshift"))
    job = slurm.submit(2, waits=True)
    job.starts()
    slurm.settings(NODE_CHECK_URL=sick)
    slurm.go()
    job.completes()
    assert drained(slurm) == REASON
    assert slurm.syslog() == [f"gpu-triage-epilog: job {job.number}: draining the node: {REASON}"]


def test_the_health_check_drains_an_idle_node(slurm: Cluster, sick: str) -> None:
    slurm.settings(NODE_CHECK_URL=sick)
    health_check = {"HealthCheckProgram": f"{slurm.folder}/health-check.sh", "HealthCheckInterval": "1"}
    slurm.configure(**NO_HOLD, **health_check, HealthCheckNodeState="ANY")
    assert drained(slurm) == REASON


def test_a_node_is_resumed_after_the_repair_and_stays_in_service(slurm: Cluster, tmp_path: Path) -> None:
    ran = tmp_path / "slurm-gpu-check-health-check.prom"
    with exporter_of_a_repaired_gpu(tmp_path) as (url, repair):
        slurm.settings(NODE_CHECK_URL=url, NODE_CHECK_TEXTFILE_DIRECTORY=str(tmp_path))
        health_check = {"HealthCheckProgram": f"{slurm.folder}/health-check.sh", "HealthCheckInterval": "1"}
        slurm.configure(**NO_HOLD, **health_check, HealthCheckNodeState="ANY")
        assert drained(slurm) == "gpu-triage: GPU 1 gpu.lost"
        assert f"gpu-triage: GPU 1 gpu.lost{' ' * 34} {slurm.node()['NodeName']}" in slurm.reasons()
        repair()
        slurm.scontrol("update", f"NodeName={slurm.node()['NodeName']}", "State=RESUME")
        for _ in range(2):
            ran.unlink()
            wait_for(ran.exists, PATIENCE_SECONDS)
        assert "DRAIN" not in slurm.node()["State"]


def test_the_exporter_reads_which_gpu_a_job_has_until_the_epilog(slurm: Cluster, sick: str) -> None:
    slurm.settings(NODE_CHECK_URL=sick)
    job = slurm.submit(1, waits=True)
    job.starts()
    jobs = JobDirectory(slurm.folder / "jobs", INDEX, 15.0)

    def allocations(gpu: int) -> frozenset[SlurmJob]:
        assert jobs.refresh(NOW, None) == ()
        return jobs.allocations({index_name(gpu)}, NOW)

    wait_for(lambda: allocations(0), PATIENCE_SECONDS)
    assert [list(allocations(gpu)) for gpu in (0, 1)] == [[SlurmJob(job.number, "root", "")], []]
    slurm.go()
    job.completes()
    wait_for(lambda: not allocations(0), PATIENCE_SECONDS)


def test_the_preflight_reads_what_slurmctld_runs_with(slurm: Cluster, sick: str) -> None:
    def problems() -> list[str]:
        command = [slurm.scripts / "preflight.sh"]
        environment = {**slurm.environment, "NODE_CHECK_SETTINGS": str(slurm.folder / "settings")}
        said = subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stdout
        return [line for line in said.splitlines() if line.startswith("problem: ")]

    slurm.settings(NODE_CHECK_URL=sick, NODE_CHECK_PROGRAM=program(slurm, "idle-downshift"))
    health_check = {"HealthCheckProgram": f"{slurm.folder}/health-check.sh"}
    slurm.configure(**NO_HOLD, **health_check)
    assert problems() == []
    slurm.configure(**health_check)
    assert [problem.partition(":")[2][:53] for problem in problems()] == [
        " SchedulerParameters does not contain nohold_on_prolo"
    ]
