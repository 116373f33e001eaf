"""What only newer GPUs and modules have: C2C links, bank repair, errors by memory.

Field ids from nvml.h (CUDA 13.3) and nvidia-ml-py 13.615: NVML_FI_DEV_C2C_LINK_* (170-172, 231-233), bank remapper
(303-307). Memories from nvmlMemoryLocation_t: DRAM 2, SRAM 7.
"""

from collections.abc import Iterator
from typing import Any

import pynvml
from tests.fed import GPU, MINUTE, Fed, loaded
from tests.nvml_bench import BenchMaker, shown

from gpu_triage.read.gpu import power as power_profiles
from gpu_triage.read.gpu.ecc import EccReader
from gpu_triage.read.gpu.fabric import read_fabric
from gpu_triage.read.gpu.nvlink import GPU_C2C_LINKS, GPU_C2C_LINKS_UP, C2cReader, C2cReading
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.metrics.rendering import samples

LABELS = GpuLabels("0", "GPU-a")


def test_a_card_without_c2c_has_none_and_is_asked_once(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), C2cReader()
    for _ in range(3):
        round_ = nvml.round()
        assert reader.read(round_) == C2cReading(None, None, {}, None)
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetFieldValues") == 1


def test_a_c2c_link_that_is_down_is_found() -> None:
    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at, 1.0)
        yield GPU_C2C_LINKS.sample(10, *GPU)
        yield GPU_C2C_LINKS_UP.sample(10 if at < 600 else 9, *GPU)

    fed = Fed()
    fed.run(9 * MINUTE, samples)
    assert fed.codes() == set()
    fed.run(30 * MINUTE, samples)
    assert fed.state("c2c.down") == "confirmed"
    assert fed.finding("c2c.down").measured == "9 of 10 links are up"


def test_a_profile_without_a_name_has_its_number() -> None:
    named = [power_profiles.name_of(number) for number in (0, 14, 15, 200)]
    assert named == ["max_p", "mig", "profile_15", "profile_200"]


def test_the_fabric_of_a_driver_that_knows_version_4_alone(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetGpuFabricInfoV", pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

    def version_4(_device: Any, out: Any) -> int:
        info = out._obj
        info.state, info.healthSummary, info.numCliques = 3, 1, 2
        info.clusterUuid[:] = range(1, 17)
        for clique, (kind, number) in zip(info.cliques, ((1, 9), (0, 5)), strict=False):
            clique.type, clique.id = kind, number
        return int(pynvml.NVML_SUCCESS)

    nvml.answer("nvmlDeviceGetGpuFabricInfo_v4", version_4)
    round_ = nvml.round()
    reading = read_fabric(round_)
    assert (reading.state, reading.health, reading.clique) == (3, 1, 5)
    assert reading.cluster_uuid == "01020304-0506-0708-090a-0b0c0d0e0f10"
    assert round_.inquiry.failures == []


def test_errors_are_told_by_memory_once_there_are_any(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8", 'at = 30\neffect = { kind = "ecc", uncorrected = 3 }'), EccReader()
    assert reader.read(nvml.round()).memory_errors == {}
    assert nvml.calls("nvmlDeviceGetMemoryErrorCounter") == 0
    nvml.clock.advance(60)

    def counter(_device: Any, severity: Any, kind: Any, memory: Any, out: Any) -> int:
        assert (severity.value, kind.value) == (1, 0)
        out._obj.value = {2: 1, 7: 2}[memory.value]
        return int(pynvml.NVML_SUCCESS)

    nvml.answer("nvmlDeviceGetMemoryErrorCounter", counter)
    reading = reader.read(nvml.round())
    assert reading.memory_errors == {("uncorrected", "dram"): 1, ("uncorrected", "sram"): 2}
    assert shown(samples(reading, LABELS))[-2:] == [
        'gpu_ecc_memory_errors_total{gpu="0",uuid="GPU-a",severity="uncorrected",memory="dram"} 1.0',
        'gpu_ecc_memory_errors_total{gpu="0",uuid="GPU-a",severity="uncorrected",memory="sram"} 2.0',
    ]
