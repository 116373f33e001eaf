"""The baseline in a running exporter: what it publishes, what it expects, and what it learns."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.incident_hosts import on_a_hanging_disk, stop
from tests.parts import some
from tests.rig import Rig, pair_with, rig, scenario_with

from gpu_triage.options.config import Config
from gpu_triage.read.baseline.differences import GPU_FIELDS, HOST_FIELDS
from gpu_triage.read.baseline.host_facts import read_baseline, write_baseline
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

UUID_1 = "GPU-ffffffff-1111-2222-3333-444444444444"
ALL_FIELDS = {*GPU_FIELDS, *HOST_FIELDS}
OFTEN = Config(sample_fast_seconds=5.0, sample_slow_seconds=15.0)
"""What changes on a host shows within a quarter of a minute."""
CALM = Config(sample_fast_seconds=15.0, sample_medium_seconds=15.0, baseline_from_host=True)
"""A baseline is learned of a host that has been well for minutes."""


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A file with the baseline of dual-a10 as it is at the start."""
    path = tmp_path / "baseline.json"
    with rig(load_scenario("dual-a10")) as host:
        host.run(2)
        assert host.sampler.view.limitations(well=True) is None
        write_baseline(path, host.sampler.view.facts(host.clock.now().wall))
    return path


def _rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _differing(host: Rig) -> set[tuple[str, str]]:
    """GPU ("" for the host) and field of every mismatch."""
    return {(labels["gpu"], labels["field"]) for labels, value in host.series("gpu_baseline_mismatch") if value == 1}


def _errors(host: Rig) -> dict[str, float]:
    return {labels["error"]: n for labels, n in host.series("gpu_exporter_errors_total", collector="baseline")}


def test_a_host_as_recorded_has_every_field_and_no_mismatch(baseline: Path) -> None:
    with rig(load_scenario("dual-a10"), Config(baseline_file=baseline)) as host:
        host.run(10)
        assert _differing(host) == set()
        fields = {(labels["gpu"], labels["field"]) for labels, _ in host.series("gpu_baseline_mismatch")}
        assert fields == {(gpu, field) for gpu in "01" for field in GPU_FIELDS} | {("", field) for field in HOST_FIELDS}
        assert {labels["uuid"] for labels, _ in host.series("gpu_baseline_mismatch", gpu="1")} == {UUID_1}
        (info,) = host.series("gpu_baseline_info")
        assert info[0] == {"sha256": read_baseline(baseline).sha256, "recorded": "2026-01-15T00:00:02Z"}
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 1


EVENTS = {
    "slot": (
        'gpu = 0\neffect = { kind = "slot", width = 8, node = 1 }',
        {("0", "pcie_width"), ("0", "numa_node"), ("0", "nic_affinity"), ("0", "topology"), ("1", "topology")},
    ),
    "generation": ('gpu = 1\neffect = { kind = "slot", generation = 3 }', {("1", "pcie_generation")}),
    "p2p": ('effect = { kind = "p2p", status = "chipset_not_supported" }', {("0", "p2p"), ("1", "p2p")}),
    "vbios": ('gpu = 0\neffect = { kind = "vbios", version = "1.2" }', {("0", "vbios_version")}),
    "persistence": ('gpu = 0\neffect = { kind = "persistence_mode", enabled = false }', {("0", "persistence_mode")}),
    "ecc": ('gpu = 0\neffect = { kind = "ecc_mode", enabled = false }', {("0", "ecc_mode")}),
    "power": ('gpu = 0\neffect = { kind = "power_limit", watts = 120 }', {("0", "power_limit")}),
    "clocks": ('gpu = 0\neffect = { kind = "application_clock", sm_mhz = 1200 }', {("0", "clocks")}),
}


@pytest.mark.parametrize("change", some(EVENTS, usual=("slot", "power")))
def test_what_changes_on_the_host_shows_in_its_field_alone(tmp_path: Path, baseline: Path, change: str) -> None:
    event, expected = EVENTS[change]
    scenario = scenario_with(tmp_path, "dual-a10", f'at = "18s"\n{event}')
    with rig(scenario, replace(OFTEN, baseline_file=baseline)) as host:
        host.run(15)
        assert _differing(host) == set()
        host.run(20)
        assert _differing(host) == expected


def test_another_driver_after_a_reload_is_a_mismatch_of_the_host(tmp_path: Path, baseline: Path) -> None:
    reload_ = 'at = "30s"\nuntil = "40s"\neffect = { kind = "driver_not_loaded" }'
    upgrade = 'at = "35s"\neffect = { kind = "driver_version", version = "550.54.14" }'
    with rig(scenario_with(tmp_path, "dual-a10", reload_, upgrade), replace(OFTEN, baseline_file=baseline)) as host:
        host.run(34)
        assert host.series("gpu_baseline_mismatch", field="driver_version") == []
        host.run(60)
        assert _differing(host) == {("", "driver_version")}


def test_a_gpu_that_is_lost_keeps_what_was_found_out_about_it(tmp_path: Path, baseline: Path) -> None:
    vbios = 'at = 0\ngpu = 0\neffect = { kind = "vbios", version = "1.2" }'
    lost = 'at = "30s"\ngpu = 0\neffect = { kind = "lost" }'
    with rig(scenario_with(tmp_path, "dual-a10", vbios, lost), Config(baseline_file=baseline)) as host:
        host.run(60)
        assert host.value("gpu_up", gpu="0") == 0
        assert ("0", "vbios_version") in _differing(host)
        assert len(host.series("gpu_baseline_mismatch", gpu="0")) == len(GPU_FIELDS)


@pytest.mark.parametrize("gone", ["gpu = 1", ""], ids=["one", "all"])
def test_gpus_that_are_gone_are_missed(tmp_path: Path, baseline: Path, gone: str) -> None:
    scenario = scenario_with(tmp_path, "dual-a10", f'at = 0\n{gone}\neffect = {{ kind = "removed" }}')
    with rig(scenario, Config(baseline_file=baseline)) as host:
        host.run(10)
        assert _differing(host) == {("", "gpu_count")}
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 1
        assert host.value("gpu_devices", source="expected") == 2


def test_the_link_recorded_is_the_link_expected(tmp_path: Path, baseline: Path) -> None:
    scenario = scenario_with(tmp_path, "dual-a10", 'at = 0\neffect = { kind = "slot", width = 8, generation = 3 }')
    with rig(scenario) as host:
        host.run(5)
        assert host.value("gpu_pcie_link_expected_width", gpu="0") == 8
    with rig(scenario, Config(baseline_file=baseline)) as host:
        host.run(5)
        assert host.value("gpu_pcie_link_expected_width", gpu="0") == 16
        assert host.value("gpu_pcie_link_expected_generation", gpu="0") == 4
        assert host.value("gpu_pcie_link_slot_max_width", gpu="0") == 8
        assert {("0", "pcie_width"), ("0", "pcie_generation")} <= _differing(host)


def test_what_is_declared_beats_what_was_recorded(baseline: Path) -> None:
    config = Config(baseline_file=baseline, expect_gpu_count=4, expect_p2p=False, expect_pcie_width=8)
    with rig(load_scenario("dual-a10"), config) as host:
        host.run(5)
        assert host.value("gpu_devices", source="expected") == 4
        assert host.value("gpu_p2p_expected") == 0
        assert host.value("gpu_pcie_link_expected_width", gpu="0") == 8
        assert host.value("gpu_pcie_link_expected_generation", gpu="0") == 4


@pytest.mark.parametrize(("status", "expected"), [("ok", 1.0), ("not_supported", 0.0), (None, None)])
def test_peers_are_expected_to_reach_each_other_as_they_all_did(
    baseline: Path, status: str | None, expected: float | None
) -> None:
    def change(document: Any) -> None:
        for i, gpu in enumerate(document["gpus"]):
            for peer in gpu["peers"].values():
                peer["p2p_read"] = peer["p2p_write"] = status or ("ok" if i else "not_supported")

    _rewrite(baseline, change)
    with rig(load_scenario("dual-a10"), Config(baseline_file=baseline)) as host:
        host.run(3)
        assert host.value("gpu_p2p_expected") == expected


@pytest.mark.parametrize(("text", "error"), [("{", "malformed"), ('{"format": 3}', "malformed"), (None, "missing")])
def test_a_file_that_cannot_be_used_is_one_line_and_an_error(
    tmp_path: Path, text: str | None, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with caplog.at_level(logging.INFO), rig(load_scenario("dual-a10"), Config(baseline_file=path)) as host:
        host.run(20)
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 0
        assert _errors(host) == {error: 5}
        assert host.series("gpu_baseline_mismatch") == host.series("gpu_baseline_info") == []
        assert host.value("gpu_up", gpu="0") == 1
    assert [record.message for record in caplog.records if "baseline" in record.message] == ["baseline unusable"]


def test_a_file_is_read_again_when_it_changes(baseline: Path) -> None:
    good = baseline.read_text()
    with rig(load_scenario("dual-a10"), Config(baseline_file=baseline)) as host:
        host.run(10)
        _rewrite(baseline, lambda document: document["gpus"][0].update(vbios_version="other"))
        host.run(10)
        assert _differing(host) == {("0", "vbios_version")}
        baseline.write_text("{")
        host.run(10)
        assert host.series("gpu_baseline_mismatch") == []
        assert host.value("gpu_devices", source="expected") is None
        baseline.write_text(good)
        host.run(10)
        assert _differing(host) == set()
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 1


def test_a_baseline_is_learned_once_from_a_host_that_is_well(tmp_path: Path) -> None:
    config = replace(CALM, state_directory=tmp_path)
    slot = 'at = "5m"\ngpu = 0\neffect = { kind = "slot", width = 8 }'
    scenario = scenario_with(tmp_path, "dual-a10", slot)
    with rig(scenario, config) as host:
        host.run(60)
        assert not (tmp_path / "baseline.json").exists()
        host.run(90)
        learned = read_baseline(tmp_path / "baseline.json")
        assert len(learned.facts.gpus) == 2
        host.run(240)
        assert ("0", "pcie_width") in _differing(host)
    with rig(scenario, config) as host:
        host.run(200)
        assert read_baseline(tmp_path / "baseline.json") == learned


def test_a_simulated_host_needs_no_folder_to_learn_its_baseline(tmp_path: Path) -> None:
    vbios = 'at = "5m"\ngpu = 0\neffect = { kind = "vbios", version = "1.2" }'
    with rig(scenario_with(tmp_path, "dual-a10", vbios), CALM) as host:
        host.run(200)
        assert len(host.series("gpu_baseline_info")) == 1
        assert _differing(host) == set()
        host.run(200)
        assert _differing(host) == {("0", "vbios_version")}


def test_a_baseline_on_a_disk_that_hangs_keeps_nothing_from_ending_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rig(scenario_with(tmp_path, "dual-a10"), replace(CALM, state_directory=tmp_path)) as host:
        hanging = on_a_hanging_disk(host)
        hanging.run(10)
        assert hanging.sampler.idle(), "it delays no publication"
        stop(hanging)
        assert "the disk did not answer in time; the baseline may not be written" in caplog.messages


ILL = {
    "a lost GPU": 'gpu = 1\neffect = { kind = "lost" }',
    "a denied GPU": 'gpu = 1\neffect = { kind = "denied" }',
    "a hanging GPU": 'gpu = 1\neffect = { kind = "hang" }',
    "no driver": 'effect = { kind = "driver_not_loaded" }',
}


@pytest.mark.parametrize("ill", some(ILL, usual=("a lost GPU", "no driver")))
def test_nothing_is_learned_from_a_host_that_is_not_well(tmp_path: Path, ill: str) -> None:
    scenario = scenario_with(tmp_path, "dual-a10", f"at = 0\n{ILL[ill]}")
    with rig(scenario, replace(CALM, state_directory=tmp_path)) as host:
        host.run(200)
        assert not (tmp_path / "baseline.json").exists()
        assert host.series("gpu_baseline_mismatch") == []
        assert _errors(host) == {}


def test_a_link_that_is_still_down_is_not_learned(tmp_path: Path) -> None:
    down = 'at = "2s"\nuntil = "150s"\ngpu = 0\neffect = { kind = "nvlink_down", links = [1] }'
    with rig(pair_with(tmp_path, "h100-8", down), CALM) as host:
        host.run(140)
        assert host.series("gpu_baseline_info") == []
        host.run(180)
        assert len(host.series("gpu_baseline_info")) == 1
        assert host.sampler.view.facts(0.0).gpus[0].nvlinks_up == tuple(range(18))


def test_a_baseline_that_cannot_be_kept_is_an_error_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    config = replace(CALM, state_directory=state)
    with caplog.at_level(logging.WARNING), rig(load_scenario("dual-a10"), config) as host:
        host.run(200)
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 0
        assert set(_errors(host)) == {"missing"}
        assert len([record for record in caplog.records if record.message == "baseline unusable"]) == 1
        state.mkdir()
        host.run(200)
        assert host.value("gpu_exporter_collector_success", collector="baseline") == 1
        assert _differing(host) == set()
        assert {labels["field"] for labels, _ in host.series("gpu_baseline_mismatch")} == ALL_FIELDS


def test_a_reload_reads_the_file_before_it_is_due_even_where_nothing_shows_a_change(baseline: Path) -> None:
    with rig(load_scenario("dual-a10"), Config(baseline_file=baseline)) as host:
        host.run(10)
        first = host.sampler.baseline.recorded
        host.run(1)
        assert host.sampler.baseline.recorded is first
        host.sampler.baseline.reload()
        host.run(1)
        assert host.sampler.baseline.recorded is not first
        assert _differing(host) == set()
