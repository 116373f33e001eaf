from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from tests.nvml_bench import BenchMaker, fills
from tests.one_shot import look_at
from tests.rig import only, pair_with, rig, scenario_with

from gpu_triage.read.gpu.fabric import FABRIC_FAULTS, FabricReading, read_fabric
from gpu_triage.read.gpu.modes import GPU_RECOVERY_ACTION
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario import Driver

pytestmark = pytest.mark.slow
LEAN = only("fabric", "recovery", "identity")

GPU = GpuLabels("2", "GPU-2")


def test_a_driver_without_the_summary_still_tells_the_state(bench: BenchMaker) -> None:
    older = replace(load_scenario("h100-8"), driver=Driver("550.54.14", "12.4"))
    rounds = bench(older)
    round_ = rounds.at(1)
    for _ in range(2):
        assert read_fabric(round_) == FabricReading(state=3, health=None)
    assert round_.inquiry.failures == []


@pytest.mark.parametrize(
    ("state", "health", "reading"),
    [
        (2, 0, FabricReading(state=2, health=None)),
        (3, 2, FabricReading(state=3, health=2)),
        (3, 3, FabricReading(state=3, health=3)),
        (0, 0, FabricReading(state=None, health=None)),
    ],
)
def test_a_sick_fabric_is_told(
    bench: BenchMaker, tmp_path: Path, state: int, health: int, reading: FabricReading
) -> None:
    event = f'at = "10s"\ngpu = 0\neffect = {{ kind = "fabric", state = {state}, health = {health} }}'
    rounds = bench(pair_with(tmp_path, "h100-8", event))
    assert read_fabric(rounds.at(5)) == FabricReading(state=3, health=1)
    assert read_fabric(rounds.at(15)) == reading
    assert read_fabric(rounds.at(15, gpu=1)) == FabricReading(state=3, health=1)


def joined(bench: BenchMaker, **members: int) -> FabricReading:
    """What is read of a driver that fills the struct like this."""
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetGpuFabricInfoV", fills(**members))
    return read_fabric(nvml.round())


@pytest.mark.parametrize("summary", [0, 1, 3])
def test_a_gpu_that_has_completed_joining_with_an_error_is_unhealthy(bench: BenchMaker, summary: int) -> None:
    error = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    assert joined(bench, state=3, status=error, healthSummary=summary) == FabricReading(state=3, health=2)
    # Before that, the status means nothing.
    assert joined(bench, state=2, status=error, healthSummary=0) == FabricReading(state=2, health=None)


def test_the_state_is_a_byte_whatever_stands_behind_it(bench: BenchMaker) -> None:
    assert joined(bench, state=0x7F3A5D03, status=0, healthSummary=1) == FabricReading(state=3, health=1)


@pytest.mark.parametrize(
    ("mask", "faults", "configuration"),
    [
        (0, {}, None),
        (0b01_10_0001_10_10_10_10, dict.fromkeys(FABRIC_FAULTS, False), 1),
        (0b10_10_0101_01_10_01_01, dict.fromkeys(FABRIC_FAULTS, True) | {"route_unhealthy": False}, 5),
        (0b01, {"degraded_bandwidth": True}, None),
        (0xFFFFFFFF, {}, None),
    ],
)
def test_the_mask_has_faults(bench: BenchMaker, mask: int, faults: dict[str, bool], configuration: int | None) -> None:
    found = joined(bench, state=3, status=0, healthSummary=1, healthMask=mask)
    assert (found.faults, found.configuration) == (faults, configuration)


def test_faults_are_shown_while_they_are_there(tmp_path: Path) -> None:
    event = 'at = "10s"\ngpu = 0\neffect = { kind = "fabric", faults = ["route_recovery"], configuration = 6 }'
    report = look_at(pair_with(tmp_path, "h100-8", event), 80.0)
    assert [finding.measured for finding in report.findings if finding.check.code == "fabric.degraded"] == [
        "the driver reports: route recovery, configuration: incompatible GPU firmware"
    ]


def test_the_action_the_driver_asks_for_comes_and_goes(tmp_path: Path) -> None:
    event = 'at = "20s"\nuntil = "60s"\ngpu = 1\neffect = { kind = "recovery_action", action = 2 }'
    with rig(scenario_with(tmp_path, "idle-downshift", event), LEAN) as running:
        for second, actions in ((10, [0, 0]), (30, [0, 2]), (70, [0, 0])):
            running.run_to(second)
            assert [value for _, value in running.series("gpu_recovery_action")] == actions


def test_a_check_calls_a_recovery_action_by_its_name(tmp_path: Path) -> None:
    action = max(GPU_RECOVERY_ACTION.states)
    asked = f'at = 0\ngpu = 0\neffect = {{ kind = "recovery_action", action = {action} }}'
    report = look_at(scenario_with(tmp_path, "h100-mig", asked), 30)
    (measured,) = (each.measured for each in report.findings if each.check.code.startswith("recovery."))
    assert measured == f"the driver asks for: {GPU_RECOVERY_ACTION.states[action]}"
