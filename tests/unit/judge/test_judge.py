"""Which class a GPU is in, how soon, and for how long: the judge in the daemon, on a virtual clock.

Jobs that their own cgroup's limits hold back, on hosts whose CPUs and memory are free.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.judged import HOST, Judged, judged
from tests.rig import Rig, only, pair_with, rig, scenario_with

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, EXIT_SOUND, Verdict
from gpu_triage.judge.report.machine_readable import render_lines
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator import Scenario, load_scenario

pytestmark = pytest.mark.slow

BUSY_PAIR = "rtx-4070-ti-super"
LEAN = only(
    "activity",
    "memory",
    "clocks",
    "power",
    "throttle",
    "processes",
    "host_cpu",
    "host_disk",
    "host_memory",
    "host_network",
    "host_network_link",
    "host_pressure",
    "identity",
)
"""What classes are made of."""
QUICK = replace(LEAN, sample_fast_seconds=5.0)
COARSE = replace(LEAN, sample_fast_seconds=15.0, sample_medium_seconds=15.0)
MINUTELY = replace(LEAN, sample_fast_seconds=60.0, sample_medium_seconds=60.0, sample_slow_seconds=600.0)


def play(tmp_path: Path, *events: str) -> Scenario:
    """Two busy GPUs and what happens to them."""
    return scenario_with(tmp_path, BUSY_PAIR, *events)


def rest(at: int, until: int, gpu: int = 0) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = {gpu}\neffect = {{ kind = "load", utilization = 0.0 }}'


def host(at: int, until: int, effect: str) -> str:
    return f"at = {at}\nuntil = {until}\neffect = {{ {effect} }}"


def test_every_class_counts_from_0_and_all_add_up_to_the_time_judged(tmp_path: Path) -> None:
    slow = host(100, 250, 'kind = "cpu", iowait = 0.3')
    half = host(100, 250, 'kind = "load", utilization = 0.3')
    with judged(play(tmp_path, slow, half), QUICK) as seen:
        seen.run_to(1)
        first = seen.running.series("gpu_bottleneck_seconds_total", gpu="0")
        assert [labels["class"] for labels, _ in first] == list(BOTTLENECK_CLASSES)
        assert sum(value for _, value in first) <= 1
        seen.run_to(360)
        for gpu in ("0", "1"):
            spent = seen.seconds(gpu)
            assert sum(spent.values()) == pytest.approx(360, abs=5)
            assert spent["storage"] == pytest.approx(150, abs=60)
        for verdict in seen.report.gpus:
            spent, lately = seen.seconds(verdict.gpu), verdict.bottleneck.lately
            assert sum(lately.values()) == pytest.approx(1)
            assert lately["storage"] == pytest.approx(spent["storage"] / sum(spent.values()), abs=0.03)


@pytest.mark.full
def test_storage_that_nobody_writes_to_is_waited_for_even_at_a_standstill(tmp_path: Path) -> None:
    dead = (rest(300, 8000), host(300, 8000, 'kind = "pressure", resource = "io", some = 0.95, full = 0.9'))
    with judged(play(tmp_path, *dead), MINUTELY) as seen:
        seen.run_to(5000)
        assert seen.entered("0", "storage") <= 420
        assert {name for at, name in seen.changes["0"] if at > 420} <= {"storage"}, "never hung, however long"


def test_a_job_that_stops_is_hung_within_five_minutes_and_never_one_that_never_worked(tmp_path: Path) -> None:
    with judged(play(tmp_path, rest(300, 900), rest(0, 2000, gpu=1)), COARSE) as seen:
        seen.run_to(890)
        assert 520 < seen.entered("0", "hung") <= 600
        assert [name for at, name in seen.changes["0"] if at > 600] == []
        assert "work.hung" in seen.report.gpus[0].codes
        assert seen.report.gpus[0].verdict.value == "watch"
        seen.run_to(1500)
        assert seen.entered("0", "compute", after=900) <= 990
        assert [name for at, name in seen.changes["0"] if at > 900] == ["compute"], "in its true class at once"
        assert "hung" not in {name for _, name in seen.changes["1"]}


@pytest.mark.full
def test_a_hang_stays_one_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    """Longer than the two hours after which nobody remembers that it worked."""
    hours = 3600
    with judged(play(tmp_path, rest(300, 4 * hours)), MINUTELY) as seen:
        seen.run_to(2.5 * hours)
        assert seen.entered("0", "hung") <= 660
        assert [name for at, name in seen.changes["0"] if at > 660] == []
        assert seen.seconds("0")["hung"] > 2 * hours
        assert "work.hung" in seen.report.gpus[0].codes


def test_a_released_gpu_is_idle_and_has_no_verdict() -> None:
    with judged(load_scenario(BUSY_PAIR), LEAN) as seen:
        seen.run_to(100)
        seen.running.sampler.release()
        seen.run_to(106)
        assert set(seen.classes().values()) == {"idle"}
        assert seen.running.value("gpu_verdict", gpu="0") is None
        assert seen.running.value("gpu_host_verdict") is None
        seen.running.sampler.acquire()
        seen.run_to(110)
        assert seen.report.findings == ()
        seen.run_to(260)
        assert set(seen.classes().values()) == {"compute"}
        assert seen.running.value("gpu_host_verdict") == 0


def test_a_gpu_that_works_for_nobody_listed_is_not_idle_and_no_free_sibling() -> None:
    with judged(load_scenario("dual-a10"), QUICK) as seen:
        seen.run_to(120)
        assert seen.classes()["1"] == "compute"
        assert "work.imbalance" not in {finding.check.code for finding in seen.report.findings}


def test_an_xid_of_before_the_exporter_started_is_of_its_gpu_from_the_first_judgment_on(tmp_path: Path) -> None:
    """Before the GPUs have said who they are, it is of a slot, and a page of its own."""
    xid = 'at = 20\ngpu = 1\neffect = { kind = "xid", code = 119 }'
    with rig(play(tmp_path, xid)) as first:
        first.run(60)
        restarted = Judged(Rig(first.simulated, first.clock, Config(), machine=first.simulated.for_another_process()))
        restarted.run_to(30)
    assert {subject for subject, code in restarted.lives if code.startswith("xid.")} == {"1"}


def test_a_driver_that_is_loaded_anew_has_lost_no_gpu(tmp_path: Path) -> None:
    away = 'at = 60\nuntil = 120\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, BUSY_PAIR, away), Config(sample_fast_seconds=5.0)) as seen:
        seen.run_to(180)
        assert seen.running.value("gpu_up", gpu="0") == 1
        assert [key for key in seen.lives if key[1] == "gpu.lost"] == []


GPUS_ALONE = only("power", "activity", "identity")
SOON = 47
"""Seconds after a repair in which a node is given back."""


def hang(at: int, until: int) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = 1\neffect = {{ kind = "hang" }}'


def lost(running: Rig) -> Finding:
    (found,) = (each for each in running.report.findings if each.check.code == "gpu.lost")
    return found


def acts(running: Rig) -> bool:
    """Whether anything that acts would take the GPU out of service; all of them agree."""
    report = running.report
    severities = [line.split("\t")[3] for line in render_lines(report).splitlines() if line.startswith("finding\t")]
    drains = report.verdict is Verdict.DRAIN
    assert report.exit_code(Severity.CRITICAL) == (EXIT_FINDINGS if drains else EXIT_SOUND)
    assert ("critical" in severities) == drains
    assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.DRAIN if drains else Verdict.WATCH]
    assert (running.value("gpu_verdict", gpu="1"), running.value("gpu_host_verdict")) == (1 + drains, 1 + drains)
    return drains


def test_a_repaired_gpu_is_not_drained_again_while_its_page_is_held(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", hang(60, 300)), GPUS_ALONE) as running:
        running.run_to(290)
        assert (lost(running).holds, acts(running)) == (True, True)
        running.run_to(300 + SOON)
        assert running.value("gpu_finding", code="gpu.lost") == State.CONFIRMED
        assert (lost(running).holds, acts(running)) == (False, False)
        running.run_to(300 + BY_CODE["gpu.lost"].hold_seconds + 30)
        assert running.value("gpu_finding", code="gpu.lost") == State.ENDED


def test_a_gpu_that_flaps_is_acted_on_whenever_it_fails_and_is_one_incident(tmp_path: Path) -> None:
    falls = [(60 + 240 * number, 120 + 240 * number) for number in range(3)]
    with rig(pair_with(tmp_path, "h100-8", *(hang(*fall) for fall in falls)), GPUS_ALONE) as running:
        for begin, end in falls:
            running.run_to(begin + 30)
            assert acts(running)
            running.run_to(end + SOON)
            assert not acts(running)
        since = lost(running).since
        assert since is not None
        assert since - (running.clock.now().wall - running.elapsed) == pytest.approx(falls[0][0], abs=15)


def test_what_nobody_can_observe_now_is_not_acted_on(tmp_path: Path) -> None:
    gone = 'at = 60\ngpu = 1\neffect = { kind = "removed" }'
    with rig(pair_with(tmp_path, "h100-8", gone), GPUS_ALONE) as running:
        running.run_to(120)
        assert acts(running)
        running.sampler.release()
        running.run(SOON)
        assert [each.holds for each in running.report.findings if each.check.code == "gpu.lost"] == [None]
        assert running.report.verdict is not Verdict.DRAIN


OF_JOBS = only(
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


def limited(tmp_path: Path, effect: str, *more: str) -> Scenario:
    """A GPU whose job gets slow when something happens to its cgroup."""
    return scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, cgroup(effect), *more)


def test_a_job_stopped_by_its_cpu_limit_waits_for_cpu_on_an_idle_host(tmp_path: Path) -> None:
    soon = replace(OF_JOBS, judge=(JudgeOption("cpu.limited", "wait", "3m"),))
    with judged(limited(tmp_path, "cpus = 4, throttled = 0.8"), soon) as seen:
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
    with judged(limited(tmp_path, effect, *more), OF_JOBS) as seen:
        seen.run_to(340)
        assert seen.classes()["0"] == name
        assert (HOST, not_found) not in seen.findings()


def test_a_job_at_its_memory_limit_waits_for_memory(tmp_path: Path) -> None:
    with judged(limited(tmp_path, f"{AT_ITS_LIMIT} = 0.3"), OF_JOBS) as seen:
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
    with judged(scenario_with(tmp_path, "rtx-4070-ti-super", SLOW, *effects), OF_JOBS) as seen:
        seen.run_to(240)
        assert seen.classes() == {"0": "storage", "1": "compute"}
        assert because in seen.report.gpus[0].bottleneck.because


def test_processes_killed_at_the_limit_are_told_without_the_kernel_log(tmp_path: Path) -> None:
    killed = 'at = 200\neffect = { kind = "cgroup", pids = [5120], memory_gib = 64, oom_kills = 2 }'
    with judged(limited(tmp_path, "memory_gib = 64", killed), OF_JOBS) as seen:
        seen.run_to(260)
        (finding,) = (each for each in seen.report.findings if each.check.code == "memory.limited")
        assert finding.measured == "killed at the job's own memory limit: 2 processes of session-1.scope"
