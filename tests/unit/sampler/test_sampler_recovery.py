"""NVML shut down, initialized again and lost: on request, for GPUs that come back, and by a driver that changes."""

from pathlib import Path

import pynvml
import pytest
from tests.parts import some
from tests.rig import only, rig, scenario_with, three_with

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

LEAN = only("power", "thermal", "activity", "topology", "identity")


MISMATCH_OF_A_HANDLE = (
    '{ kind = "error", function = "nvmlDeviceGetHandleByIndex_v2", code = "LIB_RM_VERSION_MISMATCH" }'
)
HOST_TOO = only("power", "activity", "identity", "host_cpu")


def nvml_is_up() -> bool:
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return False
    return True


@pytest.mark.parametrize(
    "event",
    some(
        [
            'effect = { kind = "driver_not_loaded" }',
            'gpu = 0\neffect = { kind = "reset_required" }',
            'gpu = 0\neffect = { kind = "error", function = "nvmlDeviceGetHandleByIndex_v2", code = "TIMEOUT" }',
        ],
        usual=['effect = { kind = "driver_not_loaded" }'],
    ),
)
def test_peers_are_asked_about_again_as_soon_as_they_are_back(tmp_path: Path, event: str) -> None:
    # The sample of the slow tier at second 60 must fall into the fault, where it says nothing of absent peers.
    with rig(three_with(tmp_path, "h100-8", f'at = "55s"\nuntil = "65s"\n{event}'), LEAN) as running:
        running.run_to(50)
        peers = sorted(running.series("gpu_p2p_peers"), key=str)
        running.run_to(85)
        assert {value for _, value in running.series("gpu_up")} == {1.0}
        assert sorted(running.series("gpu_p2p_peers"), key=str) == peers


def test_release_shuts_nvml_down_after_a_session_that_failed(tmp_path: Path) -> None:
    effect = '{ kind = "error", function = "nvmlDeviceGetUtilizationRates", code = "DRIVER_NOT_LOADED" }'
    event = f'at = "20s"\nuntil = "21s"\ngpu = 0\neffect = {effect}'
    with rig(scenario_with(tmp_path, "dual-a10", event), LEAN) as running:
        running.run_to(60)
        assert running.value("gpu_driver_up") == 1
        running.sampler.release()
        running.run(3)
        assert running.value("gpu_exporter_gpus_released") == 1
        assert not nvml_is_up()


@pytest.mark.parametrize("gone", some(["lost", "removed"], usual=["lost"]))
@pytest.mark.parametrize("function", ["", ', function = "nvmlEventSetWait_v2"'])
def test_a_call_that_hangs_while_a_gpu_is_gone_costs_the_others_nothing(
    tmp_path: Path, gone: str, function: str
) -> None:
    # Only a new session could bring the one back, and only once the other's call returns: nobody else may wait for it.
    hang = f'at = "18s"\nuntil = "130s"\ngpu = 2\neffect = {{ kind = "hang"{function} }}'
    lost = f'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = {{ kind = "{gone}" }}'
    with rig(three_with(tmp_path, "h100-8", hang, lost), LEAN) as running:
        for second in (40, 60, 90, 125):
            running.run_to(second)
            assert running.value("gpu_power_watts", gpu="0") is not None, second
            assert running.value("gpu_temperature_celsius", gpu="0", sensor="gpu") is not None, second
        running.run_to(160)
        assert {value for _, value in running.series("gpu_up")} == {1.0}


@pytest.mark.parametrize(
    "function", some(["nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2"], usual=["nvmlInitWithFlags"])
)
def test_a_look_for_a_lost_gpu_that_hangs_costs_the_others_nothing(tmp_path: Path, function: str) -> None:
    lost = 'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = { kind = "lost" }'
    hang = f'at = "25s"\nuntil = "130s"\ngpu = 1\neffect = {{ kind = "hang", function = "{function}" }}'
    with rig(three_with(tmp_path, "h100-8", lost, hang), LEAN) as running:
        for second in (40, 60, 90, 125):
            running.run_to(second)
            assert running.value("gpu_driver_up") == 1
            assert running.value("gpu_up", gpu="0") == 1
            assert running.value("gpu_power_watts", gpu="0") is not None, second
        running.run_to(210)
        assert {value for _, value in running.series("gpu_up")} == {1.0}


@pytest.mark.parametrize("function", some(["nvmlShutdown", "nvmlInitWithFlags"], usual=["nvmlInitWithFlags"]))
def test_a_session_that_does_not_come_back_is_a_stalled_driver(tmp_path: Path, function: str) -> None:
    # Another process has seen the GPU that was lost, so NVML is initialized again: nobody is asked meanwhile.
    lost = 'at = "20s"\nuntil = "30s"\ngpu = 1\neffect = { kind = "lost" }'
    hang = f'at = "36s"\nuntil = "130s"\neffect = {{ kind = "hang", function = "{function}" }}'
    with rig(three_with(tmp_path, "h100-8", lost, hang), LEAN) as running:
        running.run_to(60)
        assert running.value("gpu_power_watts", gpu="0") is None
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "stalled"
        assert {value for _, value in running.series("gpu_up")} == {0.0}
        assert (running.error_of("0"), running.error_of("1")) == ("stalled", "lost")
        assert running.value("gpu_exporter_call_inflight_seconds", collector="driver", function=function) == 24
        running.run_to(140)
        assert running.value("gpu_driver_up") == 1
        assert running.value("gpu_up", gpu="0") == 1
        assert running.value("gpu_power_watts", gpu="0") is not None


def test_a_call_lost_in_a_driver_that_answers_others_asks_for_a_restart(tmp_path: Path) -> None:
    lost = 'at = "20s"\nuntil = "30s"\ngpu = 1\neffect = { kind = "lost" }'
    hang = 'at = "36s"\nuntil = "2h"\neffect = { kind = "hang", function = "nvmlShutdown" }'
    with rig(three_with(tmp_path, "h100-8", lost, hang), LEAN) as running:
        running.run_to(90)
        assert running.sampler.fatal is None
        running.run_to(160)
        assert running.sampler.fatal is not None


def test_release_shuts_nvml_down_and_says_so() -> None:
    with rig(load_scenario("dual-a10"), HOST_TOO) as running:
        running.run(10)
        assert nvml_is_up()
        running.sampler.release()
        running.run(3)
        assert not nvml_is_up()
        assert running.value("gpu_exporter_gpus_released") == 1
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "released"
        assert {running.error_of("0"), running.error_of("1")} == {"released"}
        assert running.series("gpu_power_watts") == []
        assert len(running.series("gpu_info")) == 2
        assert running.series("gpu_host_load1") != []
        listed = {labels["collector"] for labels, _ in running.series("gpu_exporter_collector_success")}
        assert "power" not in listed
        running.run(60)
        assert not nvml_is_up(), "until it is told to"


def test_acquire_takes_the_gpus_back_and_counters_go_on() -> None:
    with rig(load_scenario("dual-a10"), HOST_TOO) as running:
        running.run(60)
        before = running.value("gpu_busy_seconds_total", gpu="0")
        running.sampler.release()
        running.run(30)
        running.sampler.acquire()
        running.run(10)
        assert running.value("gpu_exporter_gpus_released") == 0
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        after = running.value("gpu_busy_seconds_total", gpu="0")
        assert before is not None
        assert after is not None
        # Of the time in between, what the driver's own sample buffer still holds is counted, and no more.
        assert before <= after <= before + 40


def test_release_waits_for_a_call_that_hangs(tmp_path: Path) -> None:
    event = 'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = { kind = "hang" }'
    with rig(scenario_with(tmp_path, "dual-a10", event), HOST_TOO) as running:
        running.run(25)
        running.sampler.release()
        running.run(20)
        assert running.value("gpu_exporter_gpus_released") == 0
        running.run(30)
        assert running.value("gpu_exporter_gpus_released") == 1


@pytest.mark.parametrize(
    "event",
    [
        'at = "30s"\neffect = { kind = "version_mismatch" }',
        'at = "33s"\neffect = { kind = "version_mismatch" }',
        f'at = "30s"\ngpu = 0\neffect = {MISMATCH_OF_A_HANDLE}',
    ],
)
def test_a_driver_upgraded_underneath_asks_for_a_restart(tmp_path: Path, event: str) -> None:
    with rig(scenario_with(tmp_path, "dual-a10", event), HOST_TOO) as running:
        running.run(29)
        assert running.sampler.fatal is None
        running.run(11)
        assert running.sampler.fatal is not None
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "version_mismatch"


def test_a_mismatch_from_the_start_is_waited_out(tmp_path: Path) -> None:
    event = 'at = "0s"\nuntil = "50s"\neffect = { kind = "version_mismatch" }'
    with rig(scenario_with(tmp_path, "dual-a10", event), HOST_TOO) as running:
        running.run(40)
        assert running.sampler.fatal is None
        running.run(90)
        assert running.value("gpu_driver_up") == 1
