"""What each error code of the header means to whoever asks: the fault matrix stages one code of each kind only."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pynvml
import pytest
from tests.faults.kinds import CODE_OF, DRIVER_GONE, DRIVER_REPLACED, EMPTY, FAILED, GPU_GONE, KINDS, NOT_SUPPORTED
from tests.nvml_bench import Bench, fields_say

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.nvml_errors import name_of
from gpu_triage.errors import DriverReplaced, DriverUnavailable, GpuUnavailable
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine

NAMES = {code: code.lower() for code in CODE_OF} | {
    "FREQ_NOT_SUPPORTED": "not_supported",
    "GPU_IS_LOST": "lost",
    "LIB_RM_VERSION_MISMATCH": "version_mismatch",
    "RESET_TYPE_NOT_SUPPORTED": "error_30",
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


class Asked(NamedTuple):
    """What became of a question to GPU 0."""

    answer: object
    ended: str
    failures: list[str]
    answered: int
    not_asked_again: bool


def ask(driver: Bench, way: str, *args: object) -> Asked:
    inquiry, answer, ended = Inquiry(driver.devices[0]), None, ""
    try:
        answer = getattr(inquiry, way)(*args)
    except (GpuUnavailable, DriverUnavailable) as gone:
        kinds = {GpuUnavailable: "gpu", DriverUnavailable: "driver", DriverReplaced: "restart"}
        ended = f"{kinds[type(gone)]} {gone.reason}"
    return Asked(answer, ended, inquiry.failures, inquiry.answered, bool(driver.devices[0].unsupported))


def test_every_code_of_the_header_has_a_label_and_a_kind_and_no_other_number_has_a_label() -> None:
    assert CODE_OF.keys() == KIND_OF.keys()
    assert {code: name_of(number) for code, number in CODE_OF.items()} == NAMES
    assert {name_of(code) for code in (-1, 1000, 0xFFFF_FFFF)} == {"malformed"}


WAYS: dict[str, tuple[str, tuple[object, ...], frozenset[str], object]] = {
    # A question for root only takes a refusal for absence, and a driver older than a field calls its id invalid.
    "ask": (QUESTION, (QUESTION,), frozenset(), None),
    "ask_privileged": (QUESTION, (QUESTION,), frozenset({"NO_PERMISSION"}), None),
    "many": (LIST, (LIST, 0), frozenset(), []),
    "fields": ("nvmlDeviceGetFieldValues", ([FIELD],), frozenset({"INVALID_ARGUMENT"}), {}),
}
"""Way to ask: the function, the arguments, codes that mean absence here alone, and the answer without any data."""


@every_code
@pytest.mark.parametrize("way", WAYS)
def test_a_question_is_absent_failed_or_ends_the_round_as_its_kind_says(driver: Bench, way: str, code: str) -> None:
    function, arguments, absent, empty = WAYS[way]
    answer: Any = CODE_OF[code]
    driver.answer(function, fields_say({FIELD: (answer, "ullVal", 1)}) if way == "fields" else answer)
    asked = ask(driver, way, *arguments)
    kind, name = KIND_OF[code], NAMES[code]
    ends = {GPU_GONE: f"gpu {name}", DRIVER_GONE: f"driver {name}", DRIVER_REPLACED: f"restart {name}"}
    assert asked.ended == ends.get(kind, "")
    assert asked.failures == ([name] if kind is FAILED and code not in absent else [])
    assert asked.not_asked_again == (kind is NOT_SUPPORTED or code in absent)
    assert asked.answer == (None if asked.ended else empty if kind is EMPTY or way == "fields" else None)
    if way == "ask":
        assert asked.answered == (1 if kind in (NOT_SUPPORTED, EMPTY) else 0)


@every_code
def test_a_question_about_two_gpus_blames_the_peer_for_a_gpu_that_is_gone(driver: Bench, code: str) -> None:
    function = "nvmlDeviceGetTopologyCommonAncestor"
    driver.answer(function, CODE_OF[code])
    asked = ask(driver, "ask_pair", function, driver.devices[1])
    failures = {GPU_GONE: [f"peer_{NAMES[code]}"], FAILED: [NAMES[code]]}
    assert asked.failures == failures.get(KIND_OF[code], [])
    assert bool(asked.ended) == (KIND_OF[code] in (DRIVER_GONE, DRIVER_REPLACED))
