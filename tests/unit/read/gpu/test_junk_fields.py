"""A field value that cannot be costs that field: the rest of its collector is published."""

from typing import Any

import pytest
from tests.nvml_bench import BenchMaker, says

from gpu_triage.read.gpu.device_memory import read_device_memory
from gpu_triage.read.gpu.nvlink import NvlinkReader
from gpu_triage.read.gpu.power import PowerReader

pytestmark = pytest.mark.slow

REPLAYS_FIELD = 161
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def make_junk(entry: Any, member: str, value: float) -> None:
    """Put a value into an entry of nvmlDeviceGetFieldValues."""
    entry.nvmlReturn, entry.valueType = 0, MEMBERS.index(member)
    entry.value.ullVal = 0
    setattr(entry.value, member, value)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("dVal", float("nan")),
        ("dVal", float("inf")),
        ("dVal", -1e300),
        ("dVal", 5e-324),
        ("dVal", -7.0),
        ("siVal", -7),
        ("sllVal", -(1 << 62)),
        ("ullVal", (1 << 64) - 2),
    ],
)
def test_junk_in_one_field_costs_that_field(bench: BenchMaker, member: str, value: float) -> None:
    nvml, reader = bench("h100-8"), NvlinkReader()
    healthy = reader.read(nvml.round()).links[0]
    nvml.change_fields(lambda entry: make_junk(entry, member, value) if entry.fieldId == REPLAYS_FIELD else None)
    link = reader.read(nvml.round()).links[0]
    assert set(link.errors) == set(healthy.errors) - {"replay"}
    assert (link.is_up, link.transmit_bytes is None) == (True, False)


def test_power_falls_back_to_the_call_where_the_field_is_no_number(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetPowerUsage", says(88_000))
    nvml.change_fields(lambda entry: make_junk(entry, "dVal", float("nan")))
    round_ = nvml.round()
    assert PowerReader().read(round_).power_watts == 88.0
    assert round_.inquiry.failures == ["malformed"] * 6  # each field of power


def test_used_memory_beyond_the_total_is_not_published(bench: BenchMaker) -> None:
    nvml = bench()

    def memory(_device: Any, out: Any) -> int:
        out._obj.total, out._obj.used, out._obj.free = 24 << 30, 25 << 30, 26 << 30
        return 0

    def bar1(_device: Any, out: Any) -> int:
        out._obj.bar1Total, out._obj.bar1Used = 1 << 28, 1 << 29
        return 0

    nvml.answer("nvmlDeviceGetMemoryInfo_v2", memory)
    nvml.answer("nvmlDeviceGetBAR1MemoryInfo", bar1)
    round_ = nvml.round()
    reading = read_device_memory(round_)
    assert (reading.total_bytes, reading.used_bytes, reading.free_bytes) == (24 << 30, None, None)
    assert (reading.bar1_total_bytes, reading.bar1_used_bytes) == (1 << 28, None)
    assert set(round_.inquiry.failures) == {"implausible"}
