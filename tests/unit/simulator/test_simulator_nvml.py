import ctypes
import threading
from typing import Any

import pynvml
import pytest
from tests.simulated_driver import driver

from gpu_triage_simulator.simulated_nvml import FUNCTIONS

SM, MEMORY = 1, 2
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetSamples": (1, 0),
    "nvmlDeviceGetClockInfo": (1,),
    "nvmlDeviceGetMaxClockInfo": (1,),
    "nvmlDeviceGetApplicationsClock": (1,),
    "nvmlDeviceGetDefaultApplicationsClock": (1,),
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetTemperatureV": (0,),
    "nvmlDeviceGetTemperatureThreshold": (1,),
    "nvmlDeviceGetFanSpeed_v2": (0,),
    "nvmlDeviceGetPcieThroughput": (0,),
    "nvmlDeviceGetTotalEccErrors": (0, 1),
    "nvmlDeviceGetMemoryErrorCounter": (0, 0, 2),
    "nvmlDeviceGetRetiredPages": (0,),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetFieldValues": ([74, 230],),
    "nvmlDeviceGetNvLinkState": (0,),
    "nvmlDeviceGetMigDeviceHandleByIndex": (0,),
}
ANSWERED_OR_ABSENT = {
    pynvml.NVML_SUCCESS,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_FOUND,
}
NOT_OF_ONE_DEVICE = {
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceRegisterEvents",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
}


def device_functions() -> list[str]:
    return sorted(name for name in FUNCTIONS if name.startswith("nvmlDevice") and name not in NOT_OF_ONE_DEVICE)


def code_of(name: str, handle: Any) -> int:
    try:
        getattr(pynvml, name)(handle, *ARGUMENTS.get(name, ()))
    except pynvml.NVMLError as error:
        return int(error.value)
    return int(pynvml.NVML_SUCCESS)


@pytest.mark.parametrize(
    "scenario", ["h100-8", "dual-a10", "a100-power-capped", "rtx-4070-ti-super", "idle-downshift", "v100-old-driver"]
)
def test_every_wrapper_of_pynvml_gets_an_answer_or_is_told_that_there_is_none(scenario: str) -> None:
    with driver(scenario) as nvml:
        codes = {name: code_of(name, nvml.handles[0]) for name in device_functions()}
        answered = [name for name, code in codes.items() if code == pynvml.NVML_SUCCESS]
        assert len(answered) > 40
        assert {name: code for name, code in codes.items() if code not in ANSWERED_OR_ABSENT} == {}


def test_functions_newer_than_the_driver_are_not_exported() -> None:
    with driver("a100-power-capped") as nvml:
        (gpu,) = nvml.handles
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetTemperatureV(gpu, 0)
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetMarginTemperature(gpu)
        assert pynvml.nvmlDeviceGetTemperature(gpu, 0) == 51


def test_slowdown_counters_have_the_ids_of_the_driver() -> None:
    invalid = pynvml.NVML_ERROR_INVALID_ARGUMENT
    with driver("h100-8") as nvml:  # 580.95
        assert [code for code, _ in nvml.fields(0, 251, 269, 230, 197)] == [invalid, 0, 0, 0]
    with driver("rtx-4070-ti-super") as nvml:  # 575.64
        assert [code for code, _ in nvml.fields(0, 251, 269)] == [0, invalid]
    with driver("a100-power-capped") as nvml:  # 550.54
        assert [code for code, _ in nvml.fields(0, 251, 269, 230, 197, 186)] == [invalid] * 4 + [0]


def test_one_field_that_is_not_supported_leaves_the_others_alone() -> None:
    with driver("dual-a10") as nvml:
        codes = [code for code, _ in nvml.fields(0, 186, 82, 99_999, (165, 0))]
        unsupported = pynvml.NVML_ERROR_NOT_SUPPORTED
        assert codes == [0, unsupported, pynvml.NVML_ERROR_INVALID_ARGUMENT, unsupported]


def test_arguments_of_the_wrong_c_type_are_refused_as_by_a_real_library() -> None:
    with driver("idle-downshift") as nvml:
        first, second = nvml.handles
        with pytest.raises(ctypes.ArgumentError):
            pynvml.nvmlDeviceGetP2PStatus(first, second, pynvml.NVML_P2P_CAPS_INDEX_READ)
        status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
        with pytest.raises(ctypes.ArgumentError):
            pynvml.nvmlDeviceGetSramEccErrorStatus(first, status)


def test_handles_die_with_the_last_shutdown() -> None:
    with driver("dual-a10") as nvml:
        gpu = nvml.handles[0]
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
        assert pynvml.nvmlDeviceGetPowerUsage(gpu) > 0
        pynvml.nvmlShutdown()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetPowerUsage(gpu)
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetPowerUsage(gpu)
        again = pynvml.nvmlDeviceGetHandleByUUID(b"GPU-ffffffff-1111-2222-3333-444444444444")
        assert pynvml.nvmlDeviceGetIndex(again) == 1


def test_samples_are_those_since_the_last_one_seen() -> None:
    with driver("h100-8") as nvml:
        nvml.at(60)
        kind, samples = pynvml.nvmlDeviceGetSamples(nvml.handles[0], pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
        assert (kind, len(samples)) == (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 100)
        last = samples[-1].timeStamp
        assert last == int(nvml.clock.now().wall * 1_000_000)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetSamples(nvml.handles[0], pynvml.NVML_GPU_UTILIZATION_SAMPLES, last)
        nvml.clock.advance(1)
        _, samples = pynvml.nvmlDeviceGetSamples(nvml.handles[0], pynvml.NVML_GPU_UTILIZATION_SAMPLES, last)
        assert [sample.timeStamp - last for sample in samples] == [200_000 * n for n in range(1, 6)]
        assert {90 < sample.sampleValue.uiVal <= 100 for sample in samples} == {True}


def test_eight_threads_may_call_at_once() -> None:
    with driver("h100-8") as nvml:
        wrong: list[str] = []

        def hammer(gpu: int) -> None:
            handle = nvml.handles[gpu]
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            last = 0
            for _ in range(300):
                energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                if energy < last or pynvml.nvmlDeviceGetUUID(handle) != uuid:
                    wrong.append(uuid)
                last = energy
                if gpu == 0:
                    nvml.clock.advance(0.05)

        threads = [threading.Thread(target=hammer, args=(gpu,)) for gpu in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
