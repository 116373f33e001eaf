"""Whose power it is, and temperatures as margins.

Fields and scopes from nvml.h (CUDA 13.3): NVML_FI_DEV_POWER_*, scope 0 the GPU and 1 "the module (e.g. CPU + GPU)";
NVML_FI_DEV_TEMPERATURE_*_TLIMIT, which supersede nvmlDeviceGetTemperatureThreshold on Ada and later. Values from the
nvidia-smi output of a GB200 (NVIDIA/k8s-test-infra, qx-gb200.xml) and of an H100 (utkuozdemir/nvidia_gpu_exporter).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
from tests.nvml_bench import BenchMaker, says, shown

from gpu_triage.read.gpu.clocks_and_limits import LIMITS, read_limits
from gpu_triage.read.gpu.power import PowerReader
from gpu_triage.read.metrics.contract import GpuLabels

GB200 = Path(__file__).parents[3] / "golden" / "gb200-fabric.toml"
GPU = GpuLabels("0", "GPU-a")
H100_MARGINS = {"shutdown": -8.0, "slowdown": -2.0, "memory_max": 0.0, "gpu_max": 0.0}


def scoped(values: dict[tuple[int, int], tuple[str, int]]) -> Any:
    """nvmlDeviceGetFieldValues of these fields and scopes: the member of the value, and the value."""
    types = {"uiVal": 1, "siVal": 5}

    def call(_device: Any, count: Any, out: Any) -> int:
        for entry in out._obj[: count.value]:
            member, value = values.get((entry.fieldId, entry.scopeId), ("", 0))
            entry.nvmlReturn = 0 if member else pynvml.NVML_ERROR_NOT_SUPPORTED
            if member:
                entry.valueType = types[member]
                setattr(entry.value, member, value)
        return 0

    return call


def test_the_module_of_a_gb200_has_its_own_power_and_cap(bench: BenchMaker) -> None:
    nvml = bench()
    milliwatts = {(186, 0): 165_930, (186, 1): 467_680, (190, 1): 2_500_000, (192, 0): 1_200_000}
    nvml.answer("nvmlDeviceGetFieldValues", scoped({key: ("uiVal", value) for key, value in milliwatts.items()}))
    nvml.answer("nvmlDeviceGetEnforcedPowerLimit", says(1_200_000))
    reading = PowerReader().read(nvml.round())
    assert (reading.power_watts, reading.limit_watts) == (165.93, 1200)
    assert (reading.module_watts, reading.module_limit_watts) == (467.68, 2500)
    assert reading.requested_limit_watts is None


def test_a_driver_that_looks_at_no_scope_invents_no_module(bench: BenchMaker) -> None:
    nvml = bench()
    told = {(field, scope): ("uiVal", 300_000) for field in (186, 190) for scope in (0, 1)}
    nvml.answer("nvmlDeviceGetFieldValues", scoped(told))
    nvml.answer("nvmlDeviceGetEnforcedPowerLimit", says(300_000))
    reading = PowerReader().read(nvml.round())
    assert (reading.module_watts, reading.module_limit_watts) == (None, None)


def test_a_limit_that_was_asked_for_shows_where_another_one_applies(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetFieldValues", scoped({(192, 0): ("uiVal", 500_000)}))
    nvml.answer("nvmlDeviceGetEnforcedPowerLimit", says(400_000))
    assert PowerReader().read(nvml.round()).requested_limit_watts == 500


def test_a_driver_that_no_longer_tells_thresholds_tells_margins(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetTemperatureThreshold", pynvml.NVML_ERROR_NOT_SUPPORTED)
    fields = zip((193, 194, 195, 196), H100_MARGINS.values(), strict=True)
    nvml.answer("nvmlDeviceGetFieldValues", scoped({(field, 0): ("siVal", int(value)) for field, value in fields}))
    round_ = nvml.round()
    reading = read_limits(round_)
    assert (reading.threshold_celsius, reading.margin_threshold_celsius) == ({}, H100_MARGINS)
    assert round_.inquiry.failures == []
    assert shown(LIMITS.render(reading, GPU))[-4:] == [
        f'gpu_temperature_margin_threshold_celsius{{gpu="0",uuid="GPU-a",threshold="{name}"}} {value}'
        for name, value in H100_MARGINS.items()
    ]


def test_a_driver_that_tells_thresholds_is_not_asked_for_margins(bench: BenchMaker) -> None:
    reading = read_limits(bench("h100-8").round())
    assert reading.threshold_celsius["slowdown"] == 89
    assert reading.margin_threshold_celsius == {}
