import threading
from pathlib import Path

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import driver, library

from gpu_triage.machine import CallBlocked, RealClock
from gpu_triage_simulator import simulated_machine


def event(at: str, effect: str, *, until: str = "", gpu: int | None = None) -> str:
    lines = [f'at = "{at}"', f"effect = {{ {effect} }}"]
    lines += [f'until = "{until}"'] if until else []
    lines += [f"gpu = {gpu}"] if gpu is not None else []
    return "\n".join(lines)


def test_a_lost_gpu_stays_lost_until_nvml_is_initialized_again(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "lost"', until="20s", gpu=1)
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1]) > 0
        for moment in (10, 15, 30):
            nvml.at(moment)
            with pytest.raises(pynvml.NVMLError_GpuIsLost):
                pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1])
            assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(1)) > 0


def test_initializing_while_the_gpu_is_gone_does_not_bring_it_back(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "lost"', until="60s", gpu=1)
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        nvml.at(20)
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
        nvml.at(70)
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)


def test_a_hang_is_told_to_a_virtual_clock_instead_of_waited_for(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "hang"', until="40s", gpu=0)
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        nvml.at(15)
        with pytest.raises(CallBlocked) as blocked:
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
        assert blocked.value.until == pytest.approx(nvml.clock.now().monotonic + 25)
        with pytest.raises(CallBlocked):
            pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1]) > 0
        nvml.at(40)
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0


def test_a_hang_really_blocks_the_caller_on_the_real_clock_and_nobody_else(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", event("0s", 'kind = "hang"', gpu=0))
    with simulated_machine(scenario, clock=RealClock()) as simulated, library(simulated.machine.nvml):
        pynvml.nvmlInit()
        answers: list[int] = []

        def ask() -> None:
            answers.append(pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(0)))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByIndex(1)) > 0
        assert answers == []
        simulated.host.release()
        thread.join(30)
        assert len(answers) == 1


def test_slow_calls_worth_a_second_are_told_to_a_virtual_clock(tmp_path: Path) -> None:
    slow = event("5s", 'kind = "slow", milliseconds = 2500', gpu=0)
    quick = event("0s", 'kind = "slow", milliseconds = 30', gpu=1)
    scenario = scenario_with(tmp_path, "idle-downshift", slow, quick)
    with driver(scenario) as nvml:
        nvml.at(5)
        with pytest.raises(CallBlocked) as blocked:
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
        assert blocked.value.until == pytest.approx(nvml.clock.now().monotonic + 2.5)
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1]) > 0


def test_a_function_may_be_missing_looked_up_before_or_not(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "missing_function", function = "nvmlDeviceGetPowerUsage"')
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0
        nvml.at(10)
        for _ in range(2):
            with pytest.raises(pynvml.NVMLError_FunctionNotFound):
                pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
            pynvml._nvmlGetFunctionPointer_cache.clear()
