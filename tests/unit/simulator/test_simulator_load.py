from pathlib import Path

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import Driver, driver

CAPPED = pynvml.nvmlClocksEventReasonSwPowerCap


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
