"""Conditions that come and go for hours are one incident each: the judge in the daemon, on a virtual clock.

Rules over the raw series made 12 and 26 pages of the first two, and none of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from tests.judged import HOST, judged
from tests.rig import pair_with, scenario_with
from tests.unit.read.gpu.test_passed_through import bind_to_vfio, plug

from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.options.config import Config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

BUSY_PAIR = "rtx-4070-ti-super"
MINUTE, HOUR = 60, 3600
HALF_MINUTELY = Config(sample_fast_seconds=30.0, sample_medium_seconds=30.0, sample_slow_seconds=600.0)
MINUTELY = Config(sample_fast_seconds=60.0, sample_medium_seconds=60.0, sample_slow_seconds=600.0)
FIVE_MINUTELY = Config(sample_fast_seconds=300.0, sample_medium_seconds=300.0, sample_slow_seconds=600.0)
"""For what takes hours and changes little: each step costs a look at both GPUs and a judgment."""
ONGOING = math.inf


def event(effect: str, *, gpu: int, at: int = 300) -> str:
    """What begins after five minutes and stays."""
    return f"at = {at}\ngpu = {gpu}\neffect = {{ {effect} }}"


def again_and_again(effect: str, *, gpu: int, every: int, lasts: int, until: int) -> str:
    """What comes back until it is over; times in seconds."""
    return f"until = {until}\nevery = {every}\nlasts = {lasts}\n{event(effect, gpu=gpu)}"


def links_of(codes: set[str]) -> set[str]:
    """Of these codes, those about links of a GPU that somebody is told of."""
    return {code for code in codes if code.startswith(("pcie.", "nvlink.")) and is_told(code)}


def is_told(code: str) -> bool:
    """Whether a ticket or a page is made of it."""
    return BY_CODE[code].severity is not Severity.INFO and BY_CODE[code].alert is not None


def over_within(code: str) -> float:
    """Seconds within which an incident is over: its hold, and what the judge looks back."""
    return BY_CODE[code].hold_seconds + 10 * MINUTE


def test_heat_and_brakes_that_come_and_go_for_hours_are_one_incident_each(tmp_path: Path) -> None:
    hot_until, braked_until = 2 * HOUR, 300 + 13 * 420
    heat = again_and_again(
        'kind = "thermal_throttle", source = "hw", sm_clock_mhz = 1200', gpu=0, every=1350, lasts=840, until=hot_until
    )
    peaks = again_and_again('kind = "power_brake", sm_clock_mhz = 600', gpu=1, every=420, lasts=90, until=braked_until)
    with judged(scenario_with(tmp_path, BUSY_PAIR, heat, peaks), MINUTELY) as seen:
        seen.run_to(hot_until + over_within("thermal.hw"))
        ((hot, cool),) = seen.told("0", "thermal.hw")
        ((braked, free),) = seen.told("1", "power.brake")
    assert hot <= 300 + 840
    assert hot_until - 1350 <= cool <= hot_until + over_within("thermal.hw")
    assert braked <= 300 + 1800
    assert braked_until - 420 <= free <= braked_until + over_within("power.brake")


@pytest.mark.full
def test_links_that_come_and_go_under_load_are_told_and_stay_told(tmp_path: Path) -> None:
    narrow = again_and_again('kind = "link", width = 8', gpu=0, every=360, lasts=180, until=2 * HOUR)
    down = again_and_again('kind = "nvlink_down", links = [4]', gpu=1, every=600, lasts=240, until=2 * HOUR)
    with judged(pair_with(tmp_path, "h100-8", narrow, down), MINUTELY) as seen:
        seen.run_to(2 * HOUR)
        for gpu in ("0", "1"):
            told = {code: seen.told(gpu, code) for code in links_of(seen.told_codes(gpu))}
            lasting = {code for code, incidents in told.items() if [end for _, end in incidents] == [ONGOING]}
            assert lasting, (gpu, told)


@pytest.mark.full
def test_a_link_at_generation_1_at_low_load_for_three_hours_is_told(tmp_path: Path) -> None:
    light = event('kind = "load", utilization = 0.12', gpu=0, at=0)
    slow = event('kind = "link", generation = 1', gpu=0)
    with judged(pair_with(tmp_path, "h100-8", light, slow), MINUTELY) as seen:
        seen.run_to(3 * HOUR)
        assert seen.running.value("gpu_performance_state", gpu="0") == 0
        assert links_of(seen.told_codes("0"))
        assert links_of(seen.told_codes("1")) == set()


def test_a_gpu_that_is_handed_to_a_virtual_machine_is_told_to_nobody(tmp_path: Path) -> None:
    """The exporter was asked to release the GPUs, without which the driver does not let go of one."""
    scenario = scenario_with(tmp_path, BUSY_PAIR, event('kind = "removed"', gpu=1, at=1200))
    with judged(scenario, MINUTELY) as seen:
        seen.run_to(1140)
        seen.running.sampler.release()
        seen.run_to(1260)
        sysfs = seen.running.simulated.machine.sysfs
        bind_to_vfio(sysfs, plug(sysfs, scenario.gpus[1].slot.bus_id))
        seen.running.sampler.acquire()
        seen.run_to(2 * HOUR)
        assert seen.running.value("gpu_devices", source="nvml") == 1
        told = seen.told_codes(HOST) | seen.told_codes("1")
    assert {code for code in told if is_told(code)} == set()


@pytest.mark.full
def test_a_gpu_that_is_missing_is_told_for_as_long_as_it_is(tmp_path: Path) -> None:
    """Longer than the six hours that rules looked back, without a baseline that says how many there are."""
    gone = event('kind = "removed"', gpu=1, at=1200)
    with judged(scenario_with(tmp_path, BUSY_PAIR, gone), FIVE_MINUTELY) as seen:
        seen.run_to(1200 + 7 * HOUR)
        assert [until for _, until in seen.told(HOST, "gpu.missing")] == [ONGOING]


def test_a_brake_that_came_once_is_over_with_its_window(tmp_path: Path) -> None:
    brake = 'kind = "power_brake", sm_clock_mhz = 600'
    once = f"until = 390\n{event(brake, gpu=0)}"
    with judged(scenario_with(tmp_path, BUSY_PAIR, once), HALF_MINUTELY) as seen:
        seen.run_to(HOUR)
        assert seen.lives["0", "power.brake"][-1][1] is None
        assert seen.told("0", "power.brake") == []


def test_a_driver_that_is_loaded_anew_has_lost_no_gpu(tmp_path: Path) -> None:
    away = 'at = 300\nuntil = 360\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, BUSY_PAIR, away), Config(sample_fast_seconds=5.0)) as seen:
        seen.run_to(420)
        assert seen.running.value("gpu_up", gpu="0") == 1
        assert [key for key in seen.lives if key[1] == "gpu.lost"] == []
