from __future__ import annotations

import pynvml
from tests.nvml_bench import BenchMaker
from tests.rig import rig

from gpu_triage.read.gpu.mig import read_mig_uuids
from gpu_triage_simulator import load_scenario


def test_a_gpu_in_parts_names_each_by_its_instances(bench: BenchMaker) -> None:
    nvml = bench("h100-mig")
    uuids = read_mig_uuids(nvml.round().inquiry)
    with rig(load_scenario("h100-mig")) as running:
        running.run(6)
        shown = {
            (int(labels["gi"]), int(labels["ci"])): labels["mig_uuid"] for labels, _ in running.series("gpu_mig_info")
        }
    assert uuids == shown
    assert len(uuids) > 1


def test_a_gpu_in_one_piece_has_none_and_that_is_no_failure(bench: BenchMaker) -> None:
    inquiry = bench("dual-a10").round().inquiry
    assert read_mig_uuids(inquiry) == {}
    assert inquiry.failures == []


def test_a_part_that_does_not_answer_costs_only_itself(bench: BenchMaker) -> None:
    nvml = bench("h100-mig")
    whole = read_mig_uuids(nvml.round().inquiry)
    answers = iter((pynvml.NVML_ERROR_UNKNOWN,))
    nvml.answer("nvmlDeviceGetGpuInstanceId", lambda *_arguments: next(answers, pynvml.NVML_ERROR_UNKNOWN))
    inquiry = nvml.round().inquiry
    assert read_mig_uuids(inquiry) == {}
    assert inquiry.failures == ["unknown"] * len(whole)
