from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import driver, library

from gpu_triage.machine import CallBlocked, RealClock
from gpu_triage_simulator import simulated_machine

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_hang_without_end_blocks_for_ever(tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "idle-downshift", event("1s", 'kind = "hang"', gpu=1))) as nvml:
        nvml.at(1)
        with pytest.raises(CallBlocked) as blocked:
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1])
        assert blocked.value.until == math.inf


def test_the_last_moment_of_a_hang_still_hangs(tmp_path: Path) -> None:
    fault = event("1s", 'kind = "hang"', until="5s", gpu=1)
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        nvml.at(4.9)
        with pytest.raises(CallBlocked):
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[1])


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


def test_one_function_may_fail_for_a_while(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "error", function = "nvmlDeviceGetPowerUsage", code = "UNKNOWN"', until="20s", gpu=0)
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        nvml.at(10)
        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
        assert pynvml.nvmlDeviceGetTemperature(nvml.handles[0], 0) > 0
        nvml.at(20)
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0


def test_a_function_may_be_missing_looked_up_before_or_not(tmp_path: Path) -> None:
    fault = event("10s", 'kind = "missing_function", function = "nvmlDeviceGetPowerUsage"')
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0
        nvml.at(10)
        for _ in range(2):
            with pytest.raises(pynvml.NVMLError_FunctionNotFound):
                pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
            pynvml._nvmlGetFunctionPointer_cache.clear()


def test_a_denied_handle_is_counted_but_not_given(tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "idle-downshift", event("10s", 'kind = "denied"', gpu=1))) as nvml:
        nvml.at(10)
        assert pynvml.nvmlDeviceGetCount() == 2
        with pytest.raises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlDeviceGetHandleByIndex(1)


def test_a_removed_gpu_is_no_longer_counted_once_nvml_starts_again(tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "idle-downshift", event("10s", 'kind = "removed"', gpu=0))) as nvml:
        nvml.at(10)
        assert pynvml.nvmlDeviceGetCount() == 2
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1
        assert pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).busId == "00000000:B3:00.0"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("driver_not_loaded", pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        ("library_missing", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
        ("version_mismatch", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
    ],
)
def test_a_driver_that_cannot_be_used_says_why_and_may_come_back(tmp_path: Path, kind: str, code: int) -> None:
    fault = event("10s", f'kind = "{kind}"', until="20s")
    with driver(scenario_with(tmp_path, "idle-downshift", fault)) as nvml:
        nvml.at(10)
        with pytest.raises(pynvml.NVMLError) as running:
            pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0])
        with pytest.raises(pynvml.NVMLError) as starting:
            pynvml.nvmlInit()
        assert (running.value.value, starting.value.value) == (code, code)
        nvml.at(20)
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) > 0


def test_sickness_of_the_memory_and_the_link_adds_up(tmp_path: Path) -> None:
    faults = (
        event("10s", 'kind = "ecc", corrected_per_hour = 3600, uncorrected = 2', until="20s", gpu=0),
        event("10s", 'kind = "row_remap", uncorrectable = 1, pending = true', until="20s", gpu=0),
        event("10s", 'kind = "pcie_errors", replays_per_hour = 7200', until="20s", gpu=0),
        event("10s", 'kind = "recovery_action", action = 1', until="20s", gpu=0),
        event("10s", 'kind = "p2p", status = "chipset_not_supported"', gpu=0),
    )
    with driver(scenario_with(tmp_path, "idle-downshift", *faults)) as nvml:
        gpu = nvml.handles[0]
        nvml.at(15)
        assert pynvml.nvmlDeviceGetRemappedRows(gpu) == (0, 1, 1, 0)
        assert nvml.fields(0, 230) == [(0, 1)]
        assert pynvml.nvmlDeviceGetP2PStatus(gpu, nvml.handles[1], 0) == pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
        nvml.at(100)
        assert [pynvml.nvmlDeviceGetTotalEccErrors(gpu, severity, 0) for severity in (0, 1)] == [10, 2]
        assert pynvml.nvmlDeviceGetRemappedRows(gpu) == (0, 1, 0, 0)
        assert pynvml.nvmlDeviceGetPcieReplayCounter(gpu) == 20
        assert nvml.fields(0, 230) == [(0, 0)]


def test_what_holds_the_clocks_is_told_as_its_reason(tmp_path: Path) -> None:
    faults = (
        event("10s", 'kind = "power_brake", sm_clock_mhz = 900', until="20s", gpu=0),
        event("30s", 'kind = "application_clock", sm_mhz = 1200', until="40s", gpu=0),
        event("50s", 'kind = "power_limit", watts = 400', until="60s", gpu=0),
    )
    with driver(scenario_with(tmp_path, "h100-8", *faults)) as nvml:
        gpu = nvml.handles[0]
        nvml.at(15)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x88
        assert pynvml.nvmlDeviceGetClockInfo(gpu, 1) == 900
        nvml.at(35)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x2
        assert pynvml.nvmlDeviceGetApplicationsClock(gpu, 1) == 1200
        nvml.at(55)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x4
        assert pynvml.nvmlDeviceGetPowerUsage(gpu) == 400_000
        nvml.at(65)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0


def test_hot_air_makes_the_driver_slow_the_gpu_down_before_it_gets_too_hot(tmp_path: Path) -> None:
    hot = event("10s", 'kind = "ambient", celsius = 60', gpu=0)
    with driver(scenario_with(tmp_path, "h100-8", hot)) as nvml:
        gpu = nvml.handles[0]
        nvml.at(600)
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == pynvml.nvmlClocksEventReasonSwThermalSlowdown
        assert pynvml.nvmlDeviceGetClockInfo(gpu, 1) < 1980
        assert 84 <= pynvml.nvmlDeviceGetTemperature(gpu, 0) <= 88
        assert pynvml.nvmlDeviceGetMarginTemperature(gpu) <= 3


def test_processes_start_and_end_with_their_events(tmp_path: Path) -> None:
    faults = (event("10s", 'kind = "kill", pids = [41000]'), event("20s", 'kind = "start", pids = [41001]'))
    with driver(scenario_with(tmp_path, "h100-8", *faults)) as nvml:

        def pids() -> set[int]:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.handles[0])
            return {process.pid for process in running} & {41000, 41001}

        assert pids() == {41000}
        nvml.at(10)
        assert pids() == set()
        nvml.at(20)
        assert pids() == {41001}
