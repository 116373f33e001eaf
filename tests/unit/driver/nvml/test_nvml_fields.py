"""nvmlDeviceGetFieldValues as drivers differ in it: refused as a whole, and signed numbers for "not available"."""

from collections.abc import Mapping
from typing import Any

import pynvml
import pytest
from tests.nvml_bench import BenchMaker, fields_say

from gpu_triage.read.gpu.power import PowerReader, read_thermal

FUNCTION = "nvmlDeviceGetFieldValues"


def strict(known: Mapping[int, int], refusal: int) -> Any:
    """A driver that refuses a call in which there is no field that it knows, as NVML's documentation allows."""

    def call(_device: Any, count: Any, out: Any) -> int:
        entries = [out._obj[i] for i in range(count.value)]
        for entry in entries:
            entry.nvmlReturn = 0 if entry.fieldId in known else pynvml.NVML_ERROR_NOT_SUPPORTED
            entry.valueType, entry.value.uiVal = 1, known.get(entry.fieldId, 0)
        return 0 if any(entry.fieldId in known for entry in entries) else refusal

    return call


def refusing_in_company(known: Mapping[int, int], refusal: int) -> Any:
    """A driver that refuses a call over any field it does not know."""
    lenient = strict(known, 0)

    def call(device: Any, count: Any, out: Any) -> int:
        unknown = any(out._obj[i].fieldId not in known for i in range(count.value))
        return int(refusal if unknown else lenient(device, count, out))

    return call


REFUSALS = [
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_call_refused_as_a_whole_speaks_for_its_own_fields_alone(bench: BenchMaker, refusal: int) -> None:
    nvml = bench()
    nvml.answer(FUNCTION, strict({186: 151_500, 82: 44}, refusal))
    inquiry = nvml.round().inquiry
    assert inquiry.fields([74, 76]) == {}
    assert inquiry.fields([91]) == {}
    assert PowerReader().read(nvml.round()).power_watts == 151.5
    assert read_thermal(nvml.round()).memory_celsius == 44
    assert inquiry.failures == []


@pytest.mark.parametrize("refusal", REFUSALS)
def test_fields_a_gpu_has_are_read_beside_one_for_which_the_call_is_refused(bench: BenchMaker, refusal: int) -> None:
    nvml = bench()
    nvml.answer(FUNCTION, refusing_in_company({186: 5, 185: 6}, refusal))
    for _ in range(2):
        inquiry = nvml.round().inquiry
        assert inquiry.fields([186, 74, 185]) == {186: 5, 185: 6}
        assert inquiry.failures == []
    # The second time it knows which to leave out, and asks once.
    assert nvml.calls(FUNCTION) == 1 + 3 + 1


@pytest.mark.parametrize(("value_type", "member"), [(4, "sllVal"), (5, "siVal")])
def test_minus_one_is_no_value(bench: BenchMaker, value_type: int, member: str) -> None:
    nvml = bench()

    def call(_device: Any, count: Any, out: Any) -> int:
        for i in range(count.value):
            out._obj[i].valueType = value_type
            setattr(out._obj[i].value, member, -1)
        return 0

    nvml.answer(FUNCTION, call)
    inquiry = nvml.round().inquiry
    assert inquiry.fields([82, 197, 91]) == {}
    assert read_thermal(nvml.round()).memory_celsius is None
    assert inquiry.failures == []


def test_a_field_without_value_is_absent_and_one_of_no_known_type_is_malformed(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetFieldValues", fields_say({186: (0, "uiVal", 0xFFFFFFFF), 74: (0, "dVal", 1.5)}))
    inquiry = nvml.round().inquiry
    assert inquiry.fields([186, 74]) == {74: 1.5}
    assert inquiry.failures == []

    def odd(_device: Any, _count: Any, out: Any) -> int:
        out._obj[0].valueType = 99
        return 0

    nvml.answer("nvmlDeviceGetFieldValues", odd)
    inquiry = nvml.round().inquiry
    assert inquiry.fields([186]) == {}
    assert inquiry.failures == ["malformed"]


def test_a_field_that_fails_costs_itself_and_one_that_is_unknown_is_not_asked_again(bench: BenchMaker) -> None:
    nvml = bench()
    codes = {185: pynvml.NVML_ERROR_UNKNOWN, 186: pynvml.NVML_ERROR_INVALID_ARGUMENT}
    nvml.answer("nvmlDeviceGetFieldValues", fields_say({i: (code, "uiVal", 1) for i, code in codes.items()}))
    inquiry = nvml.round().inquiry
    assert inquiry.fields([185, 186]) == {}
    assert inquiry.failures == ["unknown"]
    nvml.answer("nvmlDeviceGetFieldValues", fields_say({185: (0, "uiVal", 5), 186: (0, "uiVal", 6)}))
    assert nvml.round().inquiry.fields([185, 186]) == {185: 5}
