"""Jobs that their own cgroup's limits hold back, on hosts whose CPUs and memory are free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.judged import HOST, judged
from tests.parts import some
from tests.rig import only, scenario_with

from gpu_triage.judge.findings.finding import State
from gpu_triage.options.config import JudgeOption
from gpu_triage_simulator import Scenario

pytestmark = pytest.mark.slow

COARSE = only(
    "activity",
    "processes",
    "host_cpu",
    "host_disk",
    "host_memory",
    "host_pressure",
    "identity",
    sample_fast_seconds=10.0,
    sample_medium_seconds=10.0,
)
SLOW = 'at = 120\ngpu = 0\neffect = { kind = "load", utilization = 0.3 }'


def play(tmp_path: Path, effect: str, *more: str) -> Scenario:
    """A GPU whose job gets slow when something happens to its cgroup."""
    cgroup = f'at = 120\neffect = {{ kind = "cgroup", pids = [5120], {effect} }}'
    return scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, cgroup, *more)


def test_a_job_stopped_by_its_cpu_limit_waits_for_cpu_on_an_idle_host(tmp_path: Path) -> None:
    soon = replace(COARSE, judge=(JudgeOption("cpu.limited", "wait", "3m"),))
    with judged(play(tmp_path, "cpus = 4, throttled = 0.8"), soon) as seen:
        seen.run_to(240)
        assert seen.classes() == {"0": "cpu", "1": "compute"}
        because = seen.report.gpus[0].bottleneck.because
        assert because == "its own CPU limit of 4 CPUs stops it in 80% of the periods (session-1.scope)"
        assert seen.findings()[HOST, "cpu.limited"] is State.PENDING
        (finding,) = (each for each in seen.report.findings if each.check.code == "cpu.limited")
        assert finding.measured == f"1 GPU (0) waiting: {because}"
        assert finding.value == pytest.approx(0.8, abs=0.02)
        # One incident is one finding: the host has CPUs enough.
        assert (HOST, "cpu.starved") not in seen.findings()
        seen.run_to(120 + 480)
        assert seen.told_codes(HOST) == {"cpu.limited"}


@pytest.mark.parametrize("effect", some(["cpus = 4, throttled = 0.2", "cpus = 4", "cpu_pressure = 0.9"], {"cpus = 4"}))
def test_a_limit_that_is_seldom_reached_is_not_the_cause(tmp_path: Path, effect: str) -> None:
    with judged(play(tmp_path, effect), COARSE) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == "unattributed"
        assert (HOST, "cpu.limited") not in seen.findings()


def test_a_gpu_that_is_busy_does_not_wait_for_its_limit(tmp_path: Path) -> None:
    busy = 'at = 120\ngpu = 0\neffect = { kind = "load", utilization = 0.95 }'
    with judged(play(tmp_path, "cpus = 4, throttled = 0.8", busy), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes()["0"] == "compute"
        assert (HOST, "cpu.limited") not in seen.findings()


def test_a_job_at_its_memory_limit_waits_for_memory(tmp_path: Path) -> None:
    effect = "memory_gib = 64, memory_events_per_second = 20, memory_pressure = 0.3"
    with judged(play(tmp_path, effect), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes()["0"] == "memory"
        assert "its own memory limit stalls its tasks 30% of the time" in seen.report.gpus[0].bottleneck.because
        seen.run_to(120 + 420)
        assert seen.told_codes(HOST) == {"memory.limited"}


FULL_OF_FILES = "memory_gib = 64, memory_events_per_second = 20"
"""The page cache of a data set fills every limit."""


@pytest.mark.parametrize(
    "effect",
    some([FULL_OF_FILES, "memory_gib = 64, memory_pressure = 0.05, memory_events_per_second = 20"], {FULL_OF_FILES}),
)
def test_memory_that_is_full_of_files_is_no_shortage(tmp_path: Path, effect: str) -> None:
    with judged(play(tmp_path, effect), COARSE) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == "unattributed"
        assert (HOST, "memory.limited") not in seen.findings()


BACKUP = (
    'at = 120\neffect = { kind = "pressure", resource = "io", some = 0.9, full = 0.7 }',
    'at = 120\neffect = { kind = "cpu", user = 0.2, iowait = 0.3 }',
    'at = 120\neffect = { kind = "disk", device = "nvme0n1", busy = 1.0, reads_per_second = 900, read_seconds = 0.05 }',
)
"""Somebody reads all disks: everything that is counted of the host says that storage is scarce."""


def test_a_backup_is_not_what_a_job_waits_for_whose_own_tasks_hardly_wait(tmp_path: Path) -> None:
    """`io.pressure` of the job's cgroup, as Documentation/accounting/psi.rst has it, next to that of the host."""
    with judged(play(tmp_path, "io_pressure = 0.02", *BACKUP), COARSE) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == "unattributed"
        assert (HOST, "storage.starved") not in seen.findings()


def test_a_job_whose_own_tasks_wait_for_io_waits_for_storage(tmp_path: Path) -> None:
    with judged(play(tmp_path, "io_pressure = 0.45"), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes() == {"0": "storage", "1": "compute"}
        assert seen.report.gpus[0].bottleneck.because == "tasks of the job stalled for I/O 45% of the time"


def test_where_the_jobs_own_pressure_is_unknown_the_hosts_counts(tmp_path: Path) -> None:
    with judged(scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, *BACKUP), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes()["0"] == "storage"


def test_memory_that_others_stall_for_is_not_what_the_job_waits_for(tmp_path: Path) -> None:
    stalled = 'at = 120\neffect = { kind = "pressure", resource = "memory", some = 0.4 }'
    with judged(play(tmp_path, "memory_pressure = 0.01", stalled), COARSE) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == "unattributed"


def test_processes_killed_at_the_limit_are_told_without_the_kernel_log(tmp_path: Path) -> None:
    killed = 'at = 200\neffect = { kind = "cgroup", pids = [5120], memory_gib = 64, oom_kills = 2 }'
    with judged(play(tmp_path, "memory_gib = 64", killed), COARSE) as seen:
        seen.run_to(260)
        (finding,) = (each for each in seen.report.findings if each.check.code == "memory.limited")
        assert finding.measured == "killed at the job's own memory limit: 2 processes of session-1.scope"
