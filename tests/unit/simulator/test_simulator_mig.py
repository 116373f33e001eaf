from pathlib import Path

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import driver

from gpu_triage.errors import ScenarioError

INVALID, UNSUPPORTED = pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported


def test_functions_refuse_handles_of_the_wrong_kind() -> None:
    with driver("h100-mig") as nvml:
        gpu = nvml.handles[0]
        instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        with pytest.raises(INVALID):
            pynvml.nvmlDeviceGetGpuInstanceId(gpu)
        with pytest.raises(INVALID):
            pynvml.nvmlDeviceGetPowerUsage(instance)
        for handle in (gpu, instance):
            with pytest.raises(UNSUPPORTED):
                pynvml.nvmlDeviceGetUtilizationRates(handle)
        with pytest.raises(UNSUPPORTED):
            pynvml.nvmlGpmSampleGet(gpu, pynvml.nvmlGpmSampleAlloc())
        with pytest.raises(UNSUPPORTED):
            pynvml.nvmlDeviceGetProcessUtilization(gpu, 0)


def test_gpm_samples_of_different_instances_do_not_mix() -> None:
    with driver("h100-mig") as nvml:
        gpu = nvml.handles[0]
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
        request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
        request.sample1 = pynvml.nvmlGpmMigSampleGet(gpu, 2, pynvml.nvmlGpmSampleAlloc())
        nvml.clock.advance(1)
        request.sample2 = pynvml.nvmlGpmMigSampleGet(gpu, 3, pynvml.nvmlGpmSampleAlloc())
        with pytest.raises(INVALID):
            pynvml.nvmlGpmMetricsGet(request)
        pynvml.nvmlGpmMigSampleGet(gpu, 2, request.sample2)
        pynvml.nvmlGpmMetricsGet(request)
        assert request.metrics[0].value == pytest.approx(72, abs=5)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlGpmMigSampleGet(gpu, 7, request.sample2)
        with pytest.raises(UNSUPPORTED):
            pynvml.nvmlGpmMigSampleGet(nvml.handles[1], 2, request.sample2)


def test_gpm_buffers_outlive_a_session_and_are_freed_once() -> None:
    with driver("h100-mig"):
        sample = pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        pynvml.nvmlGpmSampleFree(sample)
        with pytest.raises(INVALID):
            pynvml.nvmlGpmSampleFree(sample)


def test_a_handle_goes_to_the_next_instance_with_its_index(tmp_path: Path) -> None:
    later = 'at = "60s"\ngpu = 0\neffect = { kind = "mig", instances = [{ profile = "1g.10gb", gi = 7 }] }'
    with driver(scenario_with(tmp_path, "h100-mig", later)) as nvml:
        instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.handles[0], 0)
        gone = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.handles[0], 1)
        before = pynvml.nvmlDeviceGetUUID(instance)
        nvml.at(61)
        assert pynvml.nvmlDeviceGetGpuInstanceId(instance) == 7
        assert pynvml.nvmlDeviceGetUUID(instance) != before
        with pytest.raises(INVALID):
            pynvml.nvmlDeviceGetUUID(gone)
        assert pynvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.handles[0]) == []


@pytest.mark.parametrize(
    ("base", "instances", "complaint"),
    [
        ("dual-a10", "", "model without MIG"),
        ("h100-8", '{ profile = "1g.10gb", gi = 7 }, { profile = "2g.20gb", gi = 7 }', "same gi and ci"),
        ("h100-8", '{ profile = "1g.10gb", gi = 7, slot = 1 }, { profile = "1g.10gb", gi = 8 }', "slot of its own"),
        ("h100-8", '{ profile = "huge", gi = 7 }', "a MIG profile such as"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, base: str, instances: str, complaint: str) -> None:
    event = f'at = 0\ngpu = 0\neffect = {{ kind = "mig", instances = [{instances}] }}'
    with pytest.raises(ScenarioError, match=complaint):
        scenario_with(tmp_path, base, event)
