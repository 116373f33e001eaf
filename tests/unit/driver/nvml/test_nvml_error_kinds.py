"""What each error code of the header means to whoever asks: the fault matrix stages one code of each kind only."""

from __future__ import annotations

from collections.abc import Iterator

import pynvml
import pytest
from tests.faults.kinds import CODE_OF, DRIVER_GONE, DRIVER_REPLACED, EMPTY, FAILED, GPU_GONE, KINDS, NOT_SUPPORTED
from tests.nvml_bench import Bench, fields_say

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.nvml_errors import name_of
from gpu_triage.driver.nvml.session import DeniedDevice, Session, identify
from gpu_triage.errors import DriverReplaced, DriverUnavailable, GpuUnavailable
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine

NAMES = {
    "ALREADY_INITIALIZED": "already_initialized",
    "ARGUMENT_VERSION_MISMATCH": "argument_version_mismatch",
    "CORRUPTED_INFOROM": "corrupted_inforom",
    "DEPRECATED": "deprecated",
    "DRIVER_NOT_LOADED": "driver_not_loaded",
    "FREQ_NOT_SUPPORTED": "not_supported",
    "FUNCTION_NOT_FOUND": "function_not_found",
    "GPU_IS_LOST": "lost",
    "GPU_NOT_FOUND": "gpu_not_found",
    "INSUFFICIENT_POWER": "insufficient_power",
    "INSUFFICIENT_RESOURCES": "insufficient_resources",
    "INSUFFICIENT_SIZE": "insufficient_size",
    "INVALID_ARGUMENT": "invalid_argument",
    "INVALID_STATE": "invalid_state",
    "IN_USE": "in_use",
    "IRQ_ISSUE": "irq_issue",
    "LIBRARY_NOT_FOUND": "library_not_found",
    "LIB_RM_VERSION_MISMATCH": "version_mismatch",
    "MEMORY": "memory",
    "NOT_FOUND": "not_found",
    "NOT_READY": "not_ready",
    "NOT_SUPPORTED": "not_supported",
    "NO_DATA": "no_data",
    "NO_PERMISSION": "no_permission",
    "OPERATING_SYSTEM": "operating_system",
    "RESET_REQUIRED": "reset_required",
    "RESET_TYPE_NOT_SUPPORTED": "error_30",
    "TIMEOUT": "timeout",
    "UNINITIALIZED": "uninitialized",
    "UNKNOWN": "unknown",
    "VGPU_ECC_NOT_SUPPORTED": "not_supported",
    "a code that no header lists": "error_250",
}
"""The label of each code, as dashboards and alerts know it."""

KIND_OF = {code: kind for kind in KINDS for code in kind.names}
QUESTION = "nvmlDeviceGetPowerUsage"
LIST = "nvmlDeviceGetProcessUtilization"
FIELD = 271

every_code = pytest.mark.parametrize("code", CODE_OF)


@pytest.fixture(scope="module")
def hosts_driver() -> Iterator[Bench]:
    before = (pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    clock = VirtualClock()
    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:
        yield Bench(simulated.machine, clock)
    pynvml.nvmlLib, pynvml._nvmlLib_refcount = before
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def driver(hosts_driver: Bench) -> Iterator[Bench]:
    hosts_driver.devices[0].unsupported.clear()
    yield hosts_driver
    hosts_driver.library.answers.clear()


class Asked:
    """A question to GPU 0, and what became of it."""

    def __init__(self, driver: Bench, way: str, *args: object) -> None:
        self._device = driver.devices[0]
        self._way = way
        self._args = args
        self.failures: tuple[str, ...] = ()
        self.answered = 0
        self.answer: object = None
        self.ended = ""

    def now(self) -> Asked:
        inquiry = Inquiry(self._device)
        try:
            self.answer = getattr(inquiry, self._way)(*self._args)
        except GpuUnavailable as gone:
            self.ended = f"gpu {gone.reason}"
        except DriverReplaced as gone:
            self.ended = f"restart {gone.reason}"
        except DriverUnavailable as gone:
            self.ended = f"driver {gone.reason}"
        self.failures, self.answered = tuple(inquiry.failures), inquiry.answered
        return self

    @property
    def not_asked_again(self) -> bool:
        return bool(self._device.unsupported)


def test_every_code_of_the_header_has_a_label_and_a_kind_and_no_other_number_has_a_label() -> None:
    assert NAMES.keys() == CODE_OF.keys() == KIND_OF.keys()
    assert {name_of(code) for code in (-1, 1000, 0xFFFF_FFFF)} == {"malformed"}


@every_code
def test_a_code_has_its_label(code: str) -> None:
    assert name_of(CODE_OF[code]) == NAMES[code]


@every_code
def test_a_driver_that_refuses_to_start_is_unavailable_by_the_codes_name(driver: Bench, code: str) -> None:
    driver.answer("nvmlInitWithFlags", CODE_OF[code])
    with pytest.raises(DriverUnavailable) as refused:
        Session(driver.library).open()
    assert refused.value.reason == NAMES[code]
    assert isinstance(refused.value, DriverReplaced) == (code in DRIVER_REPLACED.names)


@every_code
def test_a_driver_that_does_not_count_its_gpus_is_unavailable_by_the_codes_name(driver: Bench, code: str) -> None:
    driver.answer("nvmlDeviceGetCount_v2", CODE_OF[code])
    with pytest.raises(DriverUnavailable) as refused:
        driver.session.count()
    assert refused.value.reason == NAMES[code]
    assert isinstance(refused.value, DriverReplaced) == (code in DRIVER_REPLACED.names)


@every_code
@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_gpu_that_is_not_handed_out_is_denied_unless_the_driver_is_gone(
    driver: Bench, function: str, code: str
) -> None:
    driver.answer(function, CODE_OF[code])
    if KIND_OF[code] in (DRIVER_GONE, DRIVER_REPLACED):
        with pytest.raises(DriverUnavailable) as refused:
            identify(0)
        assert refused.value.reason == NAMES[code]
    else:
        assert identify(1) == DeniedDevice(1, NAMES[code])


@every_code
def test_a_question_is_absent_failed_or_the_end_of_the_round_as_its_kind_says(driver: Bench, code: str) -> None:
    driver.answer(QUESTION, CODE_OF[code])
    asked = Asked(driver, "ask", QUESTION).now()
    kind, name = KIND_OF[code], NAMES[code]
    ends = {GPU_GONE: f"gpu {name}", DRIVER_GONE: f"driver {name}", DRIVER_REPLACED: f"restart {name}"}
    assert asked.answer is None
    assert asked.ended == ends.get(kind, "")
    assert asked.failures == ((name,) if kind is FAILED else ())
    assert asked.answered == (1 if kind in (NOT_SUPPORTED, EMPTY) else 0)
    assert asked.not_asked_again == (kind is NOT_SUPPORTED)


@every_code
def test_a_question_about_two_gpus_blames_the_peer_for_a_gpu_that_is_gone(driver: Bench, code: str) -> None:
    function = "nvmlDeviceGetTopologyCommonAncestor"
    driver.answer(function, CODE_OF[code])
    asked = Asked(driver, "ask_pair", function, driver.devices[1]).now()
    failures = {GPU_GONE: (f"peer_{NAMES[code]}",), FAILED: (NAMES[code],)}
    assert asked.failures == failures.get(KIND_OF[code], ())
    assert bool(asked.ended) == (KIND_OF[code] in (DRIVER_GONE, DRIVER_REPLACED))


@every_code
def test_a_question_for_root_only_takes_a_refusal_for_absence_and_nothing_else(driver: Bench, code: str) -> None:
    driver.answer(QUESTION, CODE_OF[code])
    asked = Asked(driver, "ask_privileged", QUESTION).now()
    refused = code == "NO_PERMISSION"
    assert asked.failures == ((NAMES[code],) if KIND_OF[code] is FAILED and not refused else ())
    assert asked.not_asked_again == (refused or KIND_OF[code] is NOT_SUPPORTED)


@every_code
def test_a_list_with_nothing_in_it_is_empty_and_every_other_code_is_none(driver: Bench, code: str) -> None:
    driver.answer(LIST, CODE_OF[code])
    asked = Asked(driver, "many", LIST, 0).now()
    kind = KIND_OF[code]
    # A list that outgrows its buffer has its own code, and is fetched anew.
    assert asked.answer == ([] if kind is EMPTY else None)
    assert bool(asked.ended) == (kind in (GPU_GONE, DRIVER_GONE, DRIVER_REPLACED))
    assert bool(asked.failures) == (kind is FAILED)
    assert asked.not_asked_again == (kind is NOT_SUPPORTED)


@every_code
def test_a_field_is_absent_failed_or_the_end_of_the_round_as_its_kind_says(driver: Bench, code: str) -> None:
    driver.answer("nvmlDeviceGetFieldValues", fields_say({FIELD: (CODE_OF[code], "ullVal", 1)}))
    asked = Asked(driver, "fields", [FIELD]).now()
    kind, name = KIND_OF[code], NAMES[code]
    # A driver older than the field calls its id an invalid argument.
    unknown_field = code == "INVALID_ARGUMENT"
    assert asked.answer in ({}, None)
    assert bool(asked.ended) == (kind in (GPU_GONE, DRIVER_GONE, DRIVER_REPLACED))
    assert asked.failures == ((name,) if kind is FAILED and not unknown_field else ())
    assert asked.not_asked_again == (unknown_field or kind is NOT_SUPPORTED)
