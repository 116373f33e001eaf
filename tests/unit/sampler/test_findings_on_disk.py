"""The states of findings on disk, on a virtual clock: what they are after a restart, and when they are not used."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.incident_hosts import on_a_hanging_disk, restarted, stop
from tests.one_shot import finding
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage.cli.measure import measure
from gpu_triage.judge.findings.finding import State
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane, Step
from gpu_triage.sampler.sampler import Sampler

pytestmark = pytest.mark.slow

HOST = "rtx-4070-ti-super"
CODE = "thermal.hw"
WAIT, HOLD = 200, 160
JUDGE = (JudgeOption(CODE, "wait", f"{WAIT}s"), JudgeOption(CODE, "hold", f"{HOLD}s"))
ONSET, HOURS = 50, 3600
PENDING, CONFIRMED = 1.0, 2.0
STEP = 5.0
COLLECTORS = ("throttle", "thermal", "power", "clocks", "activity", "identity")


def hot(until: int = 100 * HOURS) -> str:
    effect = '{ kind = "thermal_throttle", source = "hw", sm_clock_mhz = 900 }'
    return f"at = {ONSET}\nuntil = {until}\ngpu = 1\neffect = {effect}"


def sleeps(at: int, seconds: int) -> str:
    """The host is suspended for so long: the monotonic clock stands still, and the time of day is later by it."""
    return f'at = {at}\neffect = {{ kind = "clock", offset_seconds = {seconds} }}'


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of an exporter with a state directory."""
    folder = tmp_path / "state"
    folder.mkdir()
    return only(*COLLECTORS, state_directory=folder, sample_fast_seconds=STEP, judge=JUDGE)


@pytest.fixture
def running(tmp_path: Path, config: Config) -> Iterator[Rig]:
    """An exporter on a host on which one GPU is too hot from ONSET on."""
    with rig(scenario_with(tmp_path, HOST, hot()), config) as running:
        yield running


def path(config: Config) -> Path:
    assert config.state_directory is not None
    return config.state_directory / "findings.json"


def document(config: Config) -> Any:
    return json.loads(path(config).read_text())


def state(running: Rig) -> float | None:
    return running.value("gpu_finding", code=CODE)


def lasted(running: Rig) -> float:
    seconds = running.value("gpu_finding_lasted_seconds", code=CODE)
    assert seconds is not None
    return seconds


def began(running: Rig) -> float:
    """Scenario second at which it began, as is published."""
    since = running.value("gpu_finding_since_timestamp_seconds", code=CODE)
    assert since is not None
    return since - (running.clock.now().wall - running.elapsed)


def killed(running: Rig) -> Rig:
    """The exporter ended by SIGKILL and started again: it wrote nothing at its end, and the kernel freed its lock."""
    assert running.sampler._state is not None
    running.sampler._state.release()
    again = Rig(running.simulated, running.clock, running.config)
    again.elapsed = running.elapsed
    return again


@pytest.mark.parametrize("end", [restarted, killed])
def test_a_restart_in_the_middle_of_a_wait_does_not_begin_it_anew(running: Rig, end: Any) -> None:
    running.run_to(ONSET + 100)
    assert state(running) == PENDING
    onset = began(running)
    again = end(running)
    again.run(STEP)
    assert state(again) == PENDING
    assert began(again) == pytest.approx(onset, abs=0.01)
    again.run(4 * STEP)
    assert state(again) == PENDING, "its share of the last minute is not known yet"
    while state(again) != CONFIRMED:
        assert again.elapsed < onset + WAIT + 2 * STEP
        again.run(STEP)
    assert again.elapsed >= onset + WAIT
    assert lasted(again) == pytest.approx(WAIT, abs=60)


def test_a_confirmed_finding_is_never_anything_else_over_a_restart(running: Rig) -> None:
    running.run_to(ONSET + 60 + WAIT)
    assert state(running) == CONFIRMED
    again = restarted(running)
    again.run(STEP)
    for _ in range(15):
        again.run(0)
        assert state(again) == CONFIRMED
        assert again.value("gpu_verdict", gpu="1") == 2
        again.clock.advance(STEP)
        again.elapsed += STEP


def test_a_suspend_counts_for_nothing(tmp_path: Path, config: Config) -> None:
    with rig(scenario_with(tmp_path, HOST, hot(), sleeps(110, 8 * HOURS)), config) as running:
        running.run_to(100)
        before = lasted(running)
        running.run_to(120)
        assert lasted(running) == pytest.approx(before + 20, abs=STEP)
        again = restarted(running)
        again.run(90)
        assert state(again) == PENDING
        assert lasted(again) == pytest.approx(before + 110, abs=2 * STEP)


def test_another_boot_knows_nothing_of_it(running: Rig, config: Config, caplog: pytest.LogCaptureFixture) -> None:
    running.run_to(ONSET + 60 + WAIT)
    stop(running)
    path(config).write_text(json.dumps(document(config) | {"boot": "00000000-0000-4000-8000-000000000000"}))
    again = Rig(running.simulated, running.clock, running.config)
    again.run(90)
    assert state(again) == PENDING
    assert lasted(again) < 90
    boot_id = running.simulated.machine.procfs / "sys/kernel/random/boot_id"
    assert document(config)["boot"] == boot_id.read_text().strip()
    assert [record for record in caplog.records if "findings" in record.message] == []


def test_a_disk_that_hangs_delays_the_first_judgment_by_seconds_and_nothing_else(running: Rig) -> None:
    running.run_to(ONSET + 100)
    stop(running)
    hanging = on_a_hanging_disk(running)
    hanging.run(STEP)
    assert hanging.judge.latest is None
    assert len(hanging.series("gpu_power_watts")) == 2
    hanging.run(2 * STEP)
    assert hanging.judge.latest is not None
    hanging.run(90)
    assert state(hanging) == PENDING
    assert lasted(hanging) < 120
    assert hanging.value("gpu_exporter_state_saved") == 0
    assert hanging.value("gpu_exporter_collector_success", collector="findings") == 0
    assert lines_about_the_state_directory(hanging) == 0, "it is there, and its reader says what is wrong"


def lines_about_the_state_directory(running: Rig) -> int:
    return sum("state directory" in line for line in running.report.not_read)


def test_without_a_state_directory_it_says_so_and_a_wait_begins_anew(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, HOST, hot()), only(*COLLECTORS, sample_fast_seconds=STEP, judge=JUDGE)) as running:
        running.run_to(ONSET + 100)
        assert running.value("gpu_exporter_state_saved") == 0
        assert running.series("gpu_exporter_collector_success", collector="findings") == []
        assert lines_about_the_state_directory(running) == 1
        again = restarted(running)
        again.run(90)
        assert lasted(again) < 90


def test_with_one_it_says_so_and_one_that_only_looks_says_nothing(running: Rig, config: Config) -> None:
    running.run_to(30)
    assert running.value("gpu_exporter_state_saved") == 1
    running.run_to(ONSET + 100)
    assert lines_about_the_state_directory(running) == 0
    looking = Sampler(
        running.simulated.machine,
        config,
        lambda name: InlineLane(running.clock, name),
        GPU_COLLECTORS,
        HOST_COLLECTORS,
        judge=running.judge,
    )
    looking.step()
    looking.publish()
    outcome = looking.store.get("exporter", "")
    assert outcome is not None
    assert "gpu_exporter_state_saved" not in {sample.spec.name for sample in outcome.samples}


def test_a_single_check_has_its_own_look_and_writes_nothing(running: Rig, config: Config) -> None:
    running.run_to(ONSET + 60 + WAIT)
    assert state(running) == CONFIRMED
    stop(running)
    written = path(config).read_bytes()
    found = finding(measure(running.simulated.machine, config, 30.0).report, CODE)
    assert (found.state, found.lasted_seconds) == (State.PENDING, 0)
    assert path(config).read_bytes() == written


def test_at_the_end_incidents_come_before_findings_in_the_one_lane_of_all_files(tmp_path: Path, config: Config) -> None:
    lanes: list[str] = []
    visited: list[str] = []

    class WatchedLane(InlineLane):
        def mark(self, step: Step | None = None) -> None:
            super().mark(step)
            visited.extend(() if step is None else (step.collector,))

    folder = config.state_directory
    every_file = only(*COLLECTORS, state_directory=folder, baseline_from_host=True, judge=JUDGE)
    xids = (f'at = {at}\ngpu = 0\neffect = {{ kind = "xid", code = {code} }}' for at, code in ((80, 48), (82, 95)))
    with rig(scenario_with(tmp_path, HOST, hot(), *xids), every_file) as host:

        def make(name: str) -> InlineLane:
            lanes.append(name)
            return (WatchedLane if name == "incidents" else InlineLane)(host.clock, name)

        watched = Rig(host.simulated, host.clock, every_file, make_lane=make)
        watched.run_to(83)  # the first is saved at once, and the next save is 5 s later
        visited.clear()
        watched.sampler.save_incidents()
        assert visited == ["incidents"]
        stop(watched)
    assert visited == ["incidents", "findings"]
    assert {"incidents", "findings", "baseline"} & set(lanes) == {"incidents"}
