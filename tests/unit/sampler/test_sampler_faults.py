from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from tests.parts import some
from tests.rig import Rig, only, pair_with, rig, scenario_with, three_with

from gpu_triage.options.config import Config
from gpu_triage.read.exporter import judgment
from gpu_triage.read.incidents import incident_metrics as incidents
from gpu_triage.read.metrics.metric import declared_in
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

LEAN = only(
    "power", "thermal", "activity", "throttle", "pcie", "pcie_limits", "pcie_aer", "topology", "processes", "identity"
)


def readings_of(running: Rig, gpu: str) -> set[str]:
    """Names of the series a GPU has, less those it keeps when it is gone."""
    kept = {
        "gpu_exporter_call_inflight_seconds",
        "gpu_up",
        "gpu_error_info",
        "gpu_info",
        "gpu_xid_errors_total",
        "gpu_xid_last_timestamp_seconds",
    }
    kept |= {spec.name for own in (judgment, incidents) for spec in declared_in(own.__name__)}
    lines = (line for line in running.page().splitlines() if not line.startswith("#"))
    return {line.split("{")[0] for line in lines if f'{{gpu="{gpu}"' in line or f',gpu="{gpu}"' in line} - kept


HANGS = 'at = "20s"\nuntil = "300s"\ngpu = 1\neffect = { kind = "hang" }'


def test_a_hanging_gpu_is_stalled_within_two_fast_intervals_and_the_deadline_and_costs_the_others_nothing(
    tmp_path: Path,
) -> None:
    config = replace(LEAN, sample_deadline_seconds=2.0)
    with rig(pair_with(tmp_path, "h100-8", HANGS), config) as running:
        running.run_to(20)
        assert running.value("gpu_up", gpu="1") == 1
        running.run_to(20 + 2 * config.sample_fast_seconds + config.sample_deadline_seconds)
        assert running.value("gpu_up", gpu="1") == 0
        assert running.error_of("1") == "stalled"
        key = running.series("gpu_info", gpu="0")[0][0]["uuid"]
        for second in range(25, 50):
            running.run_to(second)
            outcome = running.sampler.store.get("power", key)
            assert outcome is not None
            age = running.clock.now().monotonic - outcome.finished_at.monotonic
            assert age < running.config.sample_fast_seconds
        assert running.value("gpu_driver_up") == 1


def test_a_stalled_gpus_values_are_withdrawn_after_three_intervals_and_its_identity_stays(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", HANGS), Config(sample_slow_seconds=15.0)) as running:
        running.run_to(22)
        assert running.value("gpu_power_watts", gpu="1") is not None
        running.run_to(25)
        assert running.value("gpu_power_watts", gpu="1") is None
        assert running.value("gpu_temperature_celsius", gpu="1", sensor="gpu") is not None
        running.run_to(40)
        assert running.value("gpu_temperature_celsius", gpu="1", sensor="gpu") is None
        running.run_to(75)
        assert readings_of(running, "1") == set()
        assert running.value("gpu_info", gpu="1") == 1
        assert running.value("gpu_up", gpu="1") == 0


def test_a_collector_that_is_switched_off_does_not_run() -> None:
    config = Config(collectors={"power": False, "host": False, "pcie_throughput": True}, metrics_profile="full")
    with rig(load_scenario("dual-a10"), config) as running:
        running.run(10)
        listed = {labels["collector"] for labels, _ in running.series("gpu_exporter_collector_interval_seconds")}
        assert "power" not in listed
        assert not any(name.startswith("host_") for name in listed)
        assert "pcie_throughput" in listed
        assert running.series("gpu_power_watts") == []
        assert len(running.series("gpu_pcie_throughput_bytes_per_second")) == 4


def test_the_path_works_without_the_identity_of_gpus() -> None:
    with rig(load_scenario("dual-a10"), Config(collectors={"identity": False})) as running:
        running.run(5)
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        assert running.series("gpu_info") == []


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
        assert not nvml_is_up(), "the driver stays released"


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
