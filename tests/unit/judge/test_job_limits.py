"""Jobs that their own cgroup's limits hold back, on hosts whose CPUs and memory are free."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.judged import HOST, judged
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


FULL = pytest.mark.full


def cgroup(effect: str) -> str:
    return f'at = 120\neffect = {{ kind = "cgroup", pids = [5120], {effect} }}'


def play(tmp_path: Path, effect: str, *more: str) -> Scenario:
    """A GPU whose job gets slow when something happens to its cgroup."""
    return scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, cgroup(effect), *more)


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


FULL_OF_FILES = "memory_gib = 64, memory_events_per_second = 20"
"""The page cache of a data set fills every limit."""
AT_ITS_LIMIT = f"{FULL_OF_FILES}, memory_pressure"
BACKUP = (
    'at = 120\neffect = { kind = "pressure", resource = "io", some = 0.9, full = 0.7 }',
    'at = 120\neffect = { kind = "cpu", user = 0.2, iowait = 0.3 }',
    'at = 120\neffect = { kind = "disk", device = "nvme0n1", busy = 1.0, reads_per_second = 900, read_seconds = 0.05 }',
)
"""Somebody reads all disks: everything that is counted of the host says that storage is scarce."""
STALLED = 'at = 120\neffect = { kind = "pressure", resource = "memory", some = 0.4 }'
BUSY = 'at = 120\ngpu = 0\neffect = { kind = "load", utilization = 0.95 }'


@pytest.mark.parametrize(
    ("effect", "more", "name", "not_found"),
    [
        pytest.param("cpus = 4", (), "unattributed", "cpu.limited", id="never reached"),
        pytest.param("cpus = 4, throttled = 0.2", (), "unattributed", "cpu.limited", id="seldom", marks=FULL),
        pytest.param("cpu_pressure = 0.9", (), "unattributed", "cpu.limited", id="no limit", marks=FULL),
        pytest.param("cpus = 4, throttled = 0.8", (BUSY,), "compute", "cpu.limited", id="busy all the same"),
        pytest.param(FULL_OF_FILES, (), "unattributed", "memory.limited", id="full of files"),
        pytest.param(f"{AT_ITS_LIMIT} = 0.05", (), "unattributed", "memory.limited", id="few stalls", marks=FULL),
        # `io.pressure` of the job's cgroup, as Documentation/accounting/psi.rst has it, next to that of the host.
        pytest.param("io_pressure = 0.02", BACKUP, "unattributed", "storage.starved", id="somebody's backup"),
        pytest.param("memory_pressure = 0.01", (STALLED,), "unattributed", "memory.starved", id="others stall"),
    ],
)
def test_what_is_not_the_cause(tmp_path: Path, effect: str, more: tuple[str, ...], name: str, not_found: str) -> None:
    with judged(play(tmp_path, effect, *more), COARSE) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == name
        assert (HOST, not_found) not in seen.findings()


def test_a_job_at_its_memory_limit_waits_for_memory(tmp_path: Path) -> None:
    with judged(play(tmp_path, f"{AT_ITS_LIMIT} = 0.3"), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes()["0"] == "memory"
        assert "its own memory limit stalls its tasks 30% of the time" in seen.report.gpus[0].bottleneck.because
        seen.run_to(120 + 420)
        assert seen.told_codes(HOST) == {"memory.limited"}


@pytest.mark.parametrize(
    ("effects", "because"),
    [
        pytest.param((cgroup("io_pressure = 0.45"),), "tasks of the job stalled for I/O 45%", id="its own tasks wait"),
        pytest.param(BACKUP, "iowait", id="where the job's own pressure is unknown, the host's counts"),
    ],
)
def test_a_job_that_waits_for_io_waits_for_storage(tmp_path: Path, effects: tuple[str, ...], because: str) -> None:
    with judged(scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, *effects), COARSE) as seen:
        seen.run_to(240)
        assert seen.classes() == {"0": "storage", "1": "compute"}
        assert because in seen.report.gpus[0].bottleneck.because


def test_processes_killed_at_the_limit_are_told_without_the_kernel_log(tmp_path: Path) -> None:
    killed = 'at = 200\neffect = { kind = "cgroup", pids = [5120], memory_gib = 64, oom_kills = 2 }'
    with judged(play(tmp_path, "memory_gib = 64", killed), COARSE) as seen:
        seen.run_to(260)
        (finding,) = (each for each in seen.report.findings if each.check.code == "memory.limited")
        assert finding.measured == "killed at the job's own memory limit: 2 processes of session-1.scope"
