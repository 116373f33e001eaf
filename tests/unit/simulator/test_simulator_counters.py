from pathlib import Path

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rig import scenario_with
from tests.simulated_driver import Driver, driver

pytestmark = pytest.mark.slow


def counters(nvml: Driver, gpu: int) -> tuple[int, ...]:
    handle = nvml.handles[gpu]
    energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    # Not those of PCIe bytes, which wrap at 32 bits.
    return (energy, *(value for code, value in nvml.fields(gpu, 74, 269, 270, 138, 139) if code == 0))


@settings(max_examples=5, deadline=None)
@given(st.lists(st.floats(min_value=0.0, max_value=600.0), min_size=1, max_size=12))
def test_counters_never_go_back_whenever_they_are_read(pauses: list[float]) -> None:
    with driver("h100-8-bad-night") as nvml:
        before = counters(nvml, 3)
        for pause in pauses:
            nvml.clock.advance(pause)
            after = counters(nvml, 3)
            assert all(new >= old for old, new in zip(before, after, strict=True))
            before = after


@settings(max_examples=4, deadline=None)
@given(st.lists(st.floats(min_value=0.1, max_value=100.0), min_size=1, max_size=12))
def test_counters_do_not_depend_on_how_often_they_are_read(pauses: list[float]) -> None:
    end = 1500.0
    with driver("h100-8-bad-night") as nvml:
        for pause in pauses:
            nvml.clock.advance(pause)
            counters(nvml, 3)
        nvml.at(end)
        often = counters(nvml, 3)
    with driver("h100-8-bad-night") as nvml:
        nvml.at(end)
        assert counters(nvml, 3) == often


def test_energy_is_the_integral_of_power() -> None:
    with driver("h100-8") as nvml:
        before = pynvml.nvmlDeviceGetTotalEnergyConsumption(nvml.handles[0])
        watts = 0.0
        for _ in range(120):
            watts += pynvml.nvmlDeviceGetPowerUsage(nvml.handles[0]) / 1000
            nvml.clock.advance(1)
        gained = (pynvml.nvmlDeviceGetTotalEnergyConsumption(nvml.handles[0]) - before) / 1000
        assert gained == pytest.approx(watts, rel=1e-4)


def test_byte_counters_wrap_where_the_model_says_so(tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "idle-downshift")) as nvml:
        nvml.at(1)
        assert nvml.fields(0, 197) == [(0, 0)]
    load = 'kind = "load", utilization = 1.0, pcie_receive_bytes_per_second = 1.0e9'
    busy = f"at = 0\ngpu = 0\neffect = {{ {load} }}"
    with driver(scenario_with(tmp_path, "idle-downshift", busy)) as nvml:
        readings = []
        for _ in range(12):
            readings += [value for _, value in nvml.fields(0, 198)]
            nvml.clock.advance(1)
        assert max(readings) < 2**32
        assert readings != sorted(readings)
