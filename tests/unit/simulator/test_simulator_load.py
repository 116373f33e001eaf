from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import Driver, driver

if TYPE_CHECKING:
    from pathlib import Path

CAPPED = pynvml.nvmlClocksEventReasonSwPowerCap
IDLE = pynvml.nvmlClocksEventReasonGpuIdle


def event(effect: str, *, at: str = "0s", gpu: int = 0) -> str:
    return f'at = "{at}"\ngpu = {gpu}\neffect = {{ {effect} }}'


def utilization(nvml: Driver, gpu: int = 0) -> int:
    return int(pynvml.nvmlDeviceGetUtilizationRates(nvml.handles[gpu]).gpu)


def capped_seconds(nvml: Driver, gpu: int = 0) -> float:
    ((code, value),) = nvml.fields(gpu, 74)
    assert code == 0
    return float(value) / 1e9


def test_a_counter_of_capped_time_may_grow_for_nothing(tmp_path: Path) -> None:
    lying = event('kind = "miscounted_power_cap", share = 0.45', at="10s")
    with driver(scenario_with(tmp_path, "rtx-4070-ti-super", lying)) as nvml:
        before = [capped_seconds(nvml, gpu) for gpu in (0, 1)]
        nvml.at(110)
        assert [capped_seconds(nvml, gpu) - old for gpu, old in enumerate(before)] == pytest.approx([45.0, 0.0])
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(nvml.handles[0])
        assert not reasons & CAPPED
        nvml.at(110.5)
        assert capped_seconds(nvml) - before[0] == pytest.approx(45.225)


def test_a_counter_that_grows_for_nothing_never_outruns_time_at_the_cap(tmp_path: Path) -> None:
    lying = event('kind = "miscounted_power_cap", share = 0.45')
    capped = event('kind = "power_limit", watts = 110')
    with driver(scenario_with(tmp_path, "rtx-4070-ti-super", lying, capped)) as nvml:
        before = capped_seconds(nvml)
        nvml.at(100)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(nvml.handles[0]) & CAPPED
        assert capped_seconds(nvml) - before == pytest.approx(100.0)


def test_a_counter_of_a_throttle_reason_may_stand_still_while_its_bit_is_set(tmp_path: Path) -> None:
    frozen = event('kind = "frozen_throttle_counter", reason = "sw_power_cap"')
    capped = event('kind = "power_limit", watts = 110')
    with driver(scenario_with(tmp_path, "rtx-4070-ti-super", frozen, capped)) as nvml:
        before = capped_seconds(nvml)
        nvml.at(100.5)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(nvml.handles[0]) & CAPPED
        assert capped_seconds(nvml) == before


def test_video_engines_wander_and_keep_the_clocks_up_without_a_kernel(tmp_path: Path) -> None:
    streams = 'kind = "load", utilization = 0.0, encoder = 0.8, decoder = 0.2, video_jitter = 0.27'
    with driver(scenario_with(tmp_path, "idle-downshift", event(streams))) as nvml:
        encoder, decoder = [], []
        for _ in range(300):
            encoder.append(pynvml.nvmlDeviceGetEncoderUtilization(nvml.handles[0])[0])
            decoder.append(pynvml.nvmlDeviceGetDecoderUtilization(nvml.handles[0])[0])
            nvml.clock.advance(1)
        assert 58 <= min(encoder) < 65
        assert 95 < max(encoder) <= 100
        assert 4 < pynvml.nvmlDeviceGetEncoderStats(nvml.handles[0])[0] <= 8
        assert 14 <= min(decoder) < max(decoder) <= 26
        assert utilization(nvml) == 0
        assert pynvml.nvmlDeviceGetPerformanceState(nvml.handles[0]) == 0
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(nvml.handles[0]) & IDLE == 0
        assert pynvml.nvmlDeviceGetPerformanceState(nvml.handles[1]) == 8


def test_bursts_come_once_a_period_on_all_gpus_at_once_and_the_clocks_stay_up_between_them(tmp_path: Path) -> None:
    bursts = 'kind = "load", utilization = 1.0, intensity = 0.8, resting_watts = 60, '
    bursts += "burst_period_seconds = 26, burst_duty = 0.77"
    both = [event(bursts, gpu=gpu) for gpu in (0, 1)]
    with driver(scenario_with(tmp_path, "idle-downshift", *both)) as nvml:
        seen = []
        for second in range(52):
            nvml.at(second + 0.5)
            seen.append(utilization(nvml))
            assert utilization(nvml, 1) == seen[-1]
            assert pynvml.nvmlDeviceGetPerformanceState(nvml.handles[0]) == 0
            watts = pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) / 1000
            assert (watts == pytest.approx(60, rel=0.03)) is (seen[-1] == 0)
        assert seen == ([100] * 21 + [0] * 5) * 2


def test_a_duty_of_one_makes_an_end_of_bursts(tmp_path: Path) -> None:
    bursts = event('kind = "load", utilization = 1.0, burst_period_seconds = 10, burst_duty = 0.5')
    over = event('kind = "load", burst_duty = 1.0', at="20s")
    with driver(scenario_with(tmp_path, "idle-downshift", bursts, over)) as nvml:
        seen = []
        for second in range(40):
            nvml.at(second + 0.5)
            seen.append(utilization(nvml))
        assert seen == [100] * 5 + [0] * 5 + [100] * 5 + [0] * 5 + [100] * 20


def test_a_gpu_that_a_process_keeps_awake_rests_with_its_clocks_up(tmp_path: Path) -> None:
    held = event('kind = "load", resting_watts = 60')
    with driver(scenario_with(tmp_path, "idle-downshift", held)) as nvml:
        awake, asleep = nvml.handles
        assert [pynvml.nvmlDeviceGetPerformanceState(gpu) for gpu in nvml.handles] == [0, 8]
        assert [pynvml.nvmlDeviceGetClockInfo(gpu, 1) for gpu in nvml.handles] == [1710, 210]
        assert [pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) for gpu in nvml.handles] == [4, 1]
        assert pynvml.nvmlDeviceGetPowerUsage(awake) / 1000 == pytest.approx(60, rel=0.03)
        for gpu in (awake, asleep):
            assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == IDLE
