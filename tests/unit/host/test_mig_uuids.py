from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest
from tests.rig import rig

from gpu_triage.errors import ScenarioError
from gpu_triage.hardware.mig_uuids import read_mig_uuids
from gpu_triage.simulator import load_scenario
from gpu_triage.simulator.scenario_file import SCENARIOS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nvml_bench import BenchMaker

ONE = "MIG-11111111-2222-3333-4444-555555555555"
TWO = "MIG-66666666-7777-8888-9999-000000000000"


def divided(tmp_path: Path, *, mig: int = 1) -> str:
    """Path of a scenario with one A100 in two parts and a process in each."""
    text = (SCENARIOS / "a100-power-capped.toml").read_text()
    parts = f'[{{ uuid = "{ONE}", gpu_instance = 1 }}, {{ uuid = "{TWO}", gpu_instance = 2, compute_instance = 3 }}]'
    text = text.replace("power_limit_watts = 180\n", f"power_limit_watts = 180\nmig = {parts}\n")
    pod = "/kubepods.slice/kubepods-pod1f0c0a2e_77d4_4c0b_9a6e_3b5d8c1e0000.slice"
    for pid, number in ((70, 0), (71, mig)):
        text += (
            f'\n[[process]]\ngpu = 0\npid = {pid}\nname = "python"\nmemory_mib = 9\nmig = {number}\ncgroup = "{pod}"\n'
            f'pod = {{ name = "train-{number}", namespace = "research", container = "main" }}\n'
        )
    path = tmp_path / "divided.toml"
    path.write_text(text)
    return str(path)


def test_the_parts_of_a_gpu_are_known_by_their_instances(tmp_path: Path, bench: BenchMaker) -> None:
    assert read_mig_uuids(bench(divided(tmp_path)).round().inquiry) == {(1, 0): ONE, (2, 3): TWO}


def test_a_gpu_that_is_whole_or_cannot_be_divided_has_no_parts(bench: BenchMaker) -> None:
    for scenario in ("a100-power-capped", "dual-a10"):
        gpu = bench(scenario).round()
        assert read_mig_uuids(gpu.inquiry) == {}
        assert gpu.inquiry.failures == []


def test_a_count_of_parts_that_no_gpu_has_is_not_followed(bench: BenchMaker) -> None:
    machine = bench("a100-power-capped")

    def absurd(_handle: object, out: object) -> int:
        out._obj.value = 4_000_000_000  # type: ignore[attr-defined]  # ctypes.byref keeps its object there
        return 0

    machine.answer("nvmlDeviceGetMaxMigDeviceCount", absurd)
    gpu = machine.round()
    assert read_mig_uuids(gpu.inquiry) == {}
    assert gpu.inquiry.failures == ["implausible"]


def test_a_part_that_does_not_tell_what_it_is_is_left_out_and_counted(tmp_path: Path, bench: BenchMaker) -> None:
    machine = bench(divided(tmp_path))
    machine.answer("nvmlDeviceGetComputeInstanceId", pynvml.NVML_ERROR_UNKNOWN)
    gpu = machine.round()
    assert read_mig_uuids(gpu.inquiry) == {}
    assert gpu.inquiry.failures == ["unknown", "unknown"]


def test_a_process_in_a_part_bears_the_name_of_who_holds_that_part(tmp_path: Path) -> None:
    with rig(load_scenario(divided(tmp_path))) as host:
        host.run(3)
        names = {labels["pid"]: labels["workload_pod"] for labels, _ in host.series("gpu_process_info")}
    assert (names["70"], names["71"]) == ("train-0", "train-1")


def test_a_scenario_cannot_use_a_part_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"mig: GPU 0 has no MIG device 2"):
        load_scenario(divided(tmp_path, mig=2))
