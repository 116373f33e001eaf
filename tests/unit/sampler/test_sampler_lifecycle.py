from __future__ import annotations

from pathlib import Path

import pynvml
import pytest
from tests.rig import only, rig, scenario_with

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

LEAN = only("power", "activity", "identity", "host_cpu")


def nvml_is_up() -> bool:
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return False
    return True


def test_release_shuts_nvml_down_and_says_so() -> None:
    with rig(load_scenario("dual-a10"), LEAN) as running:
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
    with rig(load_scenario("dual-a10"), LEAN) as running:
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
    with rig(scenario_with(tmp_path, "dual-a10", event), LEAN) as running:
        running.run(25)
        running.sampler.release()
        running.run(20)
        assert running.value("gpu_exporter_gpus_released") == 0
        running.run(30)
        assert running.value("gpu_exporter_gpus_released") == 1


@pytest.mark.parametrize("at", [30, 33])
def test_a_driver_upgraded_underneath_asks_for_a_restart(tmp_path: Path, at: int) -> None:
    event = f'at = "{at}s"\neffect = {{ kind = "version_mismatch" }}'
    with rig(scenario_with(tmp_path, "dual-a10", event), LEAN) as running:
        running.run(29)
        assert running.sampler.fatal is None
        running.run(11)
        assert running.sampler.fatal is not None
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == "version_mismatch"


def test_a_mismatch_from_the_start_is_waited_out(tmp_path: Path) -> None:
    event = 'at = "0s"\nuntil = "50s"\neffect = { kind = "version_mismatch" }'
    with rig(scenario_with(tmp_path, "dual-a10", event), LEAN) as running:
        running.run(40)
        assert running.sampler.fatal is None
        running.run(90)
        assert running.value("gpu_driver_up") == 1
