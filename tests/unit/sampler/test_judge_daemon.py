"""The daemon judges what it publishes; what it found outlives a restart and not the host it was found on."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gathered import every
from tests.incident_hosts import on_a_hanging_disk, restarted, stop
from tests.judged import judged
from tests.one_shot import finding
from tests.parts import some
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage.cli.measure import measure
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.sampler.lanes import InlineLane, Step
from gpu_triage.sampler.outcomes import OutcomeStore
from gpu_triage.sampler.sampler import Sampler
from gpu_triage_simulator import START_OF_TIME, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow

HOST = "rtx-4070-ti-super"
LEAN = only("power", "thermal", "throttle", "clocks", "activity", "processes", "identity")
QUICK = replace(LEAN, sample_fast_seconds=5.0)


def test_it_judges_on_the_medium_tier_and_at_once_when_a_gpu_is_lost(tmp_path: Path) -> None:
    lost = 'at = 62\ngpu = 1\neffect = { kind = "lost" }'
    with judged(scenario_with(tmp_path, HOST, lost)) as seen:
        moments = set()
        for second in range(50, 80):
            seen.run_to(second)
            latest = seen.running.judge.latest
            assert latest is not None
            moments.add(latest.at.monotonic)
        apart = [round(b - a) for a, b in pairwise(sorted(moments))]
        assert set(apart) <= {1, 2, 3, 4, 5}
        assert apart.count(5) >= 3
        assert seen.entered("1", "sick") <= 64


def raises(_self: DaemonJudge, _store: OutcomeStore, _now: Moment) -> Iterable[Sample]:
    raise ZeroDivisionError


def breaks_off(self: DaemonJudge, store: OutcomeStore, now: Moment, good: Any = DaemonJudge.judge) -> Iterator[Sample]:
    yield from list(good(self, store, now))[:3]
    raise ValueError


@pytest.mark.parametrize("broken", [raises, breaks_off])
def test_a_judge_that_fails_costs_its_own_series_and_nothing_else(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    with rig(load_scenario(HOST), LEAN) as running:
        running.run(60)
        before = len(running.series("gpu_power_watts"))
        with monkeypatch.context() as patch:
            patch.setattr(DaemonJudge, "judge", broken)
            running.run(20)
        assert running.series("gpu_bottleneck") == running.series("gpu_bottleneck_seconds_total") == []
        assert running.value("gpu_exporter_collector_success", collector="judge") == 0
        assert running.value("gpu_exporter_errors_total", collector="judge", error="exception") in (3, 4)
        assert len(running.series("gpu_power_watts")) == before
        running.run(60)
        assert running.value("gpu_exporter_collector_success", collector="judge") == 1
        if broken is raises:
            counted = sum(value for _, value in running.series("gpu_bottleneck_seconds_total", gpu="0"))
            # The time from the last judgment before to the first one after it was judged by nobody.
            assert counted == pytest.approx(120, abs=11)


def test_time_in_which_the_exporter_was_stopped_counts_for_no_class() -> None:
    with judged(load_scenario(HOST), QUICK) as seen:
        seen.run_to(100)
        spent = sum(seen.seconds("0").values())
        seen.running.clock.advance(600)  # as after SIGSTOP, or while the host slept
        seen.running.elapsed += 600
        seen.run_to(750)
        assert sum(seen.seconds("0").values()) == pytest.approx(spent + 50, abs=6)
        strip = seen.report.gpus[0].strip
        assert sum(piece.began_ago - piece.ended_ago for piece in strip) == pytest.approx(150, abs=12)


def test_a_gpu_that_moves_to_another_index_takes_its_seconds_with_it(tmp_path: Path) -> None:
    gone = 'at = 100\ngpu = 0\neffect = { kind = "removed" }'
    with judged(scenario_with(tmp_path, HOST, gone), QUICK) as seen:
        seen.run_to(90)
        (before,) = {labels["uuid"] for labels, _ in seen.running.series("gpu_bottleneck", gpu="1")}
        seen.run_to(250)
        for labels, _ in every(seen.running.series("gpu_up")):
            classes = seen.running.series("gpu_bottleneck", uuid=labels["uuid"])
            assert len(classes) == 1, "one class a GPU, whatever its index"
        counted = sum(v for _, v in seen.running.series("gpu_bottleneck_seconds_total", uuid=before))
        assert counted == pytest.approx(250, abs=10)


def test_a_driver_that_goes_and_comes_back_leaves_each_gpu_one_class(tmp_path: Path) -> None:
    reload = 'at = 100\nuntil = 450\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, HOST, reload), QUICK) as seen:
        seen.run_to(150)
        assert set(seen.classes().values()) == {"sick"}
        assert seen.report.verdict.value == "watch", "not for long enough yet"
        seen.run_to(430)
        assert seen.report.verdict.value == "drain"
        seen.run_to(650)
        assert set(seen.classes().values()) == {"compute"}
        for gpu in ("0", "1"):
            assert sum(seen.seconds(gpu).values()) == pytest.approx(650, abs=6)


def test_what_was_not_read_yet_has_no_verdict() -> None:
    with judged(load_scenario(HOST)) as seen:
        running = seen.running
        running.sampler.step()
        running.sampler.publish()
        assert running.series("gpu_verdict") == running.series("gpu_host_verdict") == []


def test_a_slower_medium_tier_is_judged_over_two_of_its_rounds() -> None:
    with judged(load_scenario(HOST), Config(sample_fast_seconds=15.0, sample_medium_seconds=60.0)) as seen:
        seen.run_to(600)
        assert set(seen.classes().values()) == {"compute"}
        assert seen.report.measured_seconds == 120


OF_TIMES = only("power", "processes", "host_kernel_log", "identity")
HOUR = 3600.0
HUNG = "INFO: task python3:77 blocked for more than 122 seconds."
XID = 'at = 20\ngpu = 1\neffect = { kind = "xid", code = 79 }'
EVENTS = (
    XID,
    f'at = 25\neffect = {{ kind = "kernel_messages", texts = ["{HUNG}"] }}',
    'at = 30\neffect = { kind = "blocked", pids = [5120] }',
)
WRONG = pytest.mark.parametrize("offset", some([2 * HOUR, -10 * 365 * 24 * HOUR], usual=[-10 * 365 * 24 * HOUR]))


def wrong_clock(seconds: float, until: int) -> str:
    """The clock is wrong until then, and is set right."""
    return f'at = 0\nuntil = {until}\neffect = {{ kind = "clock", offset_seconds = {seconds} }}'


def age(running: Rig, name: str, **labels: str) -> float:
    """How old the one timestamp of a metric is by the time that stands on the same page."""
    ((_, at),) = running.series(name, **labels)
    now = running.value("gpu_exporter_time_seconds")
    assert now is not None
    return now - at


@WRONG
def test_ages_by_the_hosts_own_time_are_right_though_its_clock_is_wrong_and_then_set(
    tmp_path: Path, offset: float
) -> None:
    with rig(scenario_with(tmp_path, HOST, *EVENTS, wrong_clock(offset, 100)), OF_TIMES) as running:
        for second in (99, 101, 160):
            running.run_to(second)
            assert age(running, "gpu_xid_last_timestamp_seconds") == pytest.approx(second - 20, abs=2)
            assert age(running, "gpu_host_kernel_event_last_timestamp_seconds") == pytest.approx(second - 25, abs=2)
            assert age(running, "gpu_process_blocked_since_timestamp_seconds") == pytest.approx(second - 30, abs=7)
            found = age(running, "gpu_finding_since_timestamp_seconds", code="xid.79")
            assert found == pytest.approx(second - 20, abs=7), "a finding keeps its beginning"
            assert running.series("gpu_exporter_collector_stale_seconds") == []


@WRONG
def test_an_xid_since_the_boot_is_never_before_the_boot(tmp_path: Path, offset: float) -> None:
    # As after a boot with an RTC that is wrong, until NTP sets the clock a minute later.
    late = XID.replace("20", "64").replace("79", "48")
    clock = VirtualClock(monotonic=30.0)
    with simulated_machine(scenario_with(tmp_path, HOST, XID, late, wrong_clock(offset, 60)), clock=clock) as simulated:
        running = Rig(simulated, clock, OF_TIMES)
        for second in (30, 59, 61, 66, 120, 130):
            running.run_to(second)
            reset = running.value("gpu_reset_timestamp_seconds", gpu="1")
            assert reset is not None
            assert min(at for _, at in running.series("gpu_xid_last_timestamp_seconds")) > reset


@WRONG
def test_a_gpu_is_sick_for_ten_minutes_after_an_xid_and_not_longer_whatever_is_done_to_the_clock(
    tmp_path: Path, offset: float
) -> None:
    scenario = scenario_with(tmp_path, HOST, XID, wrong_clock(offset, 100))
    with judged(scenario, replace(OF_TIMES, sample_fast_seconds=5.0)) as seen:
        for second in (30, 95, 105, 300, 610):
            seen.run_to(second)
            assert seen.classes()["1"] == "sick", second
        seen.run_to(640)
        assert seen.classes()["1"] != "sick"


def time_on_page(running: Rig) -> float:
    (line,) = (line for line in running.page().splitlines() if line.startswith("gpu_exporter_time_seconds "))
    return float(line.split()[1])


def test_the_page_says_what_time_it_is_at_the_scrape_though_nobody_samples_any_more(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, HOST, wrong_clock(-HOUR, 1000)), OF_TIMES) as running:
        running.run(5)
        assert time_on_page(running) == START_OF_TIME + 5 - HOUR
        running.clock.advance(100)
        assert time_on_page(running) == START_OF_TIME + 105 - HOUR
        assert running.value("gpu_exporter_last_publication_timestamp_seconds") == START_OF_TIME + 5 - HOUR


def test_the_time_of_a_page_that_is_given_again_is_no_older_than_seconds() -> None:
    # With slow sampling nothing else on it changes for minutes, and several scrapers share what was encoded.
    slow = Config(sample_fast_seconds=60.0, sample_medium_seconds=60.0)
    with rig(load_scenario(HOST), slow) as running:
        running.run(120)
        for seconds in range(40):
            assert time_on_page(running) == pytest.approx(START_OF_TIME + 120 + seconds, abs=3.5)
            running.clock.advance(1)


def test_a_metric_that_is_excluded_is_not_on_the_page_either() -> None:
    with rig(load_scenario(HOST), Config(metrics_exclude=("gpu_exporter_time_*",))) as running:
        running.run(2)
        assert "\ngpu_exporter_time_seconds" not in running.page()


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 2e9), st.floats(-0.9, 0.9))
def test_a_time_is_the_same_to_the_millisecond_until_the_clock_is_set(
    moments: list[float], ahead: float, jitter: float
) -> None:
    walls = WallTimes()
    first = walls.of(10.0, Moment(0.0, ahead))
    for now in sorted(moments):
        assert walls.of(10.0, Moment(now, now + ahead + jitter)) == first
    assert walls.of(10.0, Moment(1e6, 1e6 + ahead - 1.1)) == pytest.approx(first - 1.1, abs=0.002)


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
    assert {each.duration_seconds for each in running.sampler._saved.health(running.elapsed)} == {0.0}
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
