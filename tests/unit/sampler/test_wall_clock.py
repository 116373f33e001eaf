"""A host whose wall clock is wrong, and set while the exporter runs: ages by its own time stay right."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judged import judged
from tests.parts import some
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage.machine import Moment, WallTimes
from gpu_triage.options.config import Config
from gpu_triage_simulator import START_OF_TIME, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow

LEAN = only("power", "processes", "host_kernel_log", "identity")
HOST = "rtx-4070-ti-super"
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
    with rig(scenario_with(tmp_path, HOST, *EVENTS, wrong_clock(offset, 100)), LEAN) as running:
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
        running = Rig(simulated, clock, LEAN)
        for second in (30, 59, 61, 66, 120, 130):
            running.run_to(second)
            reset = running.value("gpu_reset_timestamp_seconds", gpu="1")
            assert reset is not None
            assert min(at for _, at in running.series("gpu_xid_last_timestamp_seconds")) > reset


@WRONG
def test_a_gpu_is_sick_for_ten_minutes_after_an_xid_and_not_longer_whatever_is_done_to_the_clock(
    tmp_path: Path, offset: float
) -> None:
    with judged(
        scenario_with(tmp_path, HOST, XID, wrong_clock(offset, 100)), replace(LEAN, sample_fast_seconds=5.0)
    ) as seen:
        for second in (30, 95, 105, 300, 610):
            seen.run_to(second)
            assert seen.classes()["1"] == "sick", second
        seen.run_to(640)
        assert seen.classes()["1"] != "sick"


def time_on_page(running: Rig) -> float:
    (line,) = (line for line in running.page().splitlines() if line.startswith("gpu_exporter_time_seconds "))
    return float(line.split()[1])


def test_the_page_says_what_time_it_is_at_the_scrape_though_nobody_samples_any_more(tmp_path: Path) -> None:
    with rig(scenario_with(tmp_path, HOST, wrong_clock(-HOUR, 1000)), LEAN) as running:
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
