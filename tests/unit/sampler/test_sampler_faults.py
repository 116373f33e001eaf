from dataclasses import replace
from pathlib import Path

import pytest
from tests.gathered import every
from tests.rig import Rig, only, pair_with, rig, three_with

from gpu_triage.options.config import Config
from gpu_triage.read.exporter import judgment
from gpu_triage.read.incidents import incident_metrics as incidents
from gpu_triage.read.metrics.metric import declared_in
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

LEAN = only(
    "power", "thermal", "activity", "throttle", "pcie", "pcie_limits", "pcie_aer", "topology", "processes", "identity"
)
QUICK = replace(LEAN, sample_fast_seconds=5.0)


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


def test_a_lost_gpu_keeps_its_identity_and_loses_its_readings_at_once(tmp_path: Path) -> None:
    scenario = pair_with(tmp_path, "h100-8", 'at = "20s"\ngpu = 1\neffect = { kind = "lost" }')
    with rig(scenario) as running:
        running.run_to(22)
        assert running.value("gpu_up", gpu="1") == 0
        assert running.error_of("1") == "lost"
        assert running.value("gpu_info", gpu="1") == 1
        assert readings_of(running, "1") == set()
        assert running.value("gpu_power_watts", gpu="0") is not None
        assert running.value("gpu_devices", source="nvml") == 2


def test_a_gpu_that_was_lost_comes_back_without_a_restart_and_its_counters_go_on(tmp_path: Path) -> None:
    scenario = pair_with(tmp_path, "h100-8", 'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = { kind = "lost" }')
    counters = ("gpu_busy_seconds_total", "gpu_energy_joules_total", "gpu_throttle_seconds_total")
    with rig(scenario, QUICK) as running:
        last: dict[tuple[str, ...], float] = {}
        for second in range(10, 210, 10):
            running.run_to(second)
            uuid = running.series("gpu_info", gpu="1")[0][0]["uuid"]
            assert (running.error_of("1") if second == 50 else "lost") == "lost"
            for name in counters:
                for labels, value in every(running.series(name)):
                    series = (name, *sorted(labels.values()))
                    assert value >= last.get(series, 0.0), series
                    last[series] = value
        assert running.value("gpu_up", gpu="1", uuid=uuid) == 1
        assert running.value("gpu_power_watts", gpu="1", uuid=uuid) is not None


def test_a_gpu_that_leaves_the_bus_is_missing_until_it_is_back(tmp_path: Path) -> None:
    scenario = pair_with(tmp_path, "h100-8", 'at = "20s"\nuntil = "120s"\ngpu = 1\neffect = { kind = "removed" }')
    with rig(scenario, QUICK) as running:
        running.run_to(10)
        uuid = running.series("gpu_info", gpu="1")[0][0]["uuid"]
        assert running.series("gpu_pcie_aer_errors_total", uuid=uuid) != []
        running.run_to(60)
        assert running.value("gpu_devices", source="nvml") == 1
        assert running.value("gpu_up", uuid=uuid) == 0
        assert running.error_of("1") == "missing"
        assert running.series("gpu_pcie_aer_errors_total", uuid=uuid) == []
        running.run_to(300)
        assert running.value("gpu_devices", source="nvml") == 2
        assert running.value("gpu_up", uuid=uuid) == 1


def test_indices_that_move_do_not_mix_gpus_up(tmp_path: Path) -> None:
    scenario = three_with(tmp_path, "h100-8", 'at = "20s"\ngpu = 0\neffect = { kind = "removed" }')
    with rig(scenario, LEAN) as running:
        running.run_to(10)
        uuids = {labels["gpu"]: labels["uuid"] for labels, _ in running.series("gpu_up")}
        running.run_to(90)
        up = {labels["uuid"]: (labels["gpu"], value) for labels, value in running.series("gpu_up")}
        assert up[uuids["0"]] == ("0", 0.0)
        assert [up[uuids[str(was)]] for was in range(1, 3)] == [(str(was - 1), 1.0) for was in range(1, 3)]
        names = [labels for labels, _ in running.series("gpu_power_watts")]
        assert sorted(labels["gpu"] for labels in names) == [str(i) for i in range(2)]


def test_a_denied_handle_is_a_gpu_that_is_not_up(tmp_path: Path) -> None:
    scenario = three_with(tmp_path, "h100-8", 'at = "0s"\ngpu = 1\neffect = { kind = "denied" }')
    with rig(scenario, LEAN) as running:
        running.run(10)
        assert running.value("gpu_devices", source="nvml") == 3
        assert running.value("gpu_up", gpu="1") == 0
        assert running.error_of("1") == "no_permission"
        assert len([value for _, value in running.series("gpu_up") if value == 1]) == 2


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        ('{ kind = "driver_not_loaded" }', "driver_not_loaded"),
        ('{ kind = "library_missing" }', "library_not_found"),
        ('{ kind = "version_mismatch" }', "version_mismatch"),
    ],
)
def test_a_driver_that_appears_later_is_used_without_a_restart(tmp_path: Path, effect: str, reason: str) -> None:
    scenario = pair_with(tmp_path, "h100-8", f'at = "0s"\nuntil = "30s"\neffect = {effect}')
    with rig(scenario, only("power", "identity")) as running:
        running.run_to(10)
        assert running.value("gpu_driver_up") == 0
        assert running.series("gpu_driver_error_info")[0][0]["error"] == reason
        assert running.value("gpu_devices", source="nvml") is None
        assert running.value("gpu_devices", source="pci") == 2
        assert {v for _, v in running.series("gpu_exporter_collector_success", collector="power")} == {0.0}
        running.run_to(100)
        assert running.value("gpu_driver_up") == 1
        assert running.series("gpu_driver_error_info") == []
        assert [value for _, value in running.series("gpu_up")] == [1.0] * 2


def test_a_power_call_that_fails_costs_power_alone(tmp_path: Path) -> None:
    events = [
        f'at = "20s"\ngpu = 1\neffect = {{ kind = "error", function = "{function}", code = "UNKNOWN" }}'
        for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues")
    ]
    with rig(pair_with(tmp_path, "h100-8", *events)) as running:
        running.run_to(30)
        assert running.value("gpu_power_watts", gpu="1") is None
        assert running.value("gpu_power_limit_watts", gpu="1") is not None
        assert running.value("gpu_energy_joules_total", gpu="1") is not None
        assert running.value("gpu_sm_utilization_ratio", gpu="1") is not None
        assert running.value("gpu_up", gpu="1") == 1
        assert running.value("gpu_power_watts", gpu="0") is not None
        assert (running.value("gpu_exporter_errors_total", collector="power", error="unknown") or 0) > 0


def test_a_call_the_driver_lacks_is_absent_and_no_error(tmp_path: Path) -> None:
    event = 'at = "0s"\neffect = { kind = "missing_function", function = "nvmlDeviceGetMarginTemperature" }'
    with rig(pair_with(tmp_path, "h100-8", event)) as running:
        running.run(10)
        assert running.series("gpu_temperature_margin_celsius") == []
        assert len(running.series("gpu_temperature_celsius", sensor="gpu")) == 2
        assert running.series("gpu_exporter_errors_total") == []


def test_processes_that_end_leave_no_series_behind(tmp_path: Path) -> None:
    pids = [41000 + 100 * gpu + worker for gpu in range(2) for worker in range(4)]
    event = f'at = "20s"\neffect = {{ kind = "kill", pids = {pids} }}'
    with rig(pair_with(tmp_path, "h100-8", event), LEAN) as running:
        running.run_to(19)
        assert len(running.series("gpu_process_info")) == 16
        running.run_to(30)
        left = {labels["pid"] for labels, _ in running.series("gpu_process_info")}
        assert left.isdisjoint(map(str, pids))
        assert len(left) == 8
        assert running.series("gpu_exporter_errors_total") == []


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
