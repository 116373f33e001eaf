"""What the models say that a card has and lacks, against what such cards said themselves."""

from collections.abc import Callable, Iterator
from ctypes import byref
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest
from tests.captured_cards import FOLDER, Capture, text_captures, xml_captures
from tests.gathered import every
from tests.simulated_driver import Driver, driver

from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.model import GpuModel, known_models, load_model

pytestmark = pytest.mark.slow

REFUSALS: Final = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
SM, MEMORY, VIDEO = 1, 2, 3
AVERAGE, MARGIN, MEMORY_HEAT, LINKS = 185, 193, 82, 91


def _fabric(nvml: Driver) -> None:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = pynvml.nvmlGpuFabricInfo_v2
    pynvml.nvmlDeviceGetGpuFabricInfoV(nvml.handles[0], byref(info))


def _of(function: str, *arguments: Any) -> Callable[[Driver], Any]:
    return lambda nvml: getattr(pynvml, function)(nvml.handles[0], *arguments)


def _field(number: int) -> Callable[[Driver], Any]:
    def ask(nvml: Driver) -> Any:
        ((code, value),) = nvml.fields(0, number)
        if code:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    return ask


PROBES: Final[dict[str, Callable[[Driver], Any]]] = {
    "serial": _of("nvmlDeviceGetSerial"),
    "board_part_number": _of("nvmlDeviceGetBoardPartNumber"),
    "mig.mode.current": _of("nvmlDeviceGetMigMode"),
    "fan.speed": _of("nvmlDeviceGetFanSpeed_v2", 0),
    "pstate": _of("nvmlDeviceGetPerformanceState"),
    "memory.total": _of("nvmlDeviceGetMemoryInfo"),
    "memory.reserved": _of("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2),
    "utilization.gpu": _of("nvmlDeviceGetUtilizationRates"),
    "utilization.encoder": _of("nvmlDeviceGetEncoderUtilization"),
    "utilization.decoder": _of("nvmlDeviceGetDecoderUtilization"),
    "ecc.mode.current": _of("nvmlDeviceGetEccMode"),
    "ecc.errors.corrected.volatile.total": _of("nvmlDeviceGetTotalEccErrors", 0, 0),
    "ecc.errors.uncorrected.aggregate.total": _of("nvmlDeviceGetTotalEccErrors", 1, 1),
    "retired_pages.pending": _of("nvmlDeviceGetRetiredPagesPendingStatus"),
    "remapped_rows.correctable": _of("nvmlDeviceGetRemappedRows"),
    "remapped_rows.pending": _field(144),
    "remapped_rows.histogram.max": _of("nvmlDeviceGetRowRemapperHistogram"),
    "temperature.gpu.tlimit": _field(MARGIN),
    "temperature.shutdown": _of("nvmlDeviceGetTemperatureThreshold", 0),
    "temperature.slowdown": _of("nvmlDeviceGetTemperatureThreshold", 1),
    "temperature.gpu_max": _of("nvmlDeviceGetTemperatureThreshold", 3),
    "temperature.memory_max": _of("nvmlDeviceGetTemperatureThreshold", 2),
    "temperature.memory": _field(MEMORY_HEAT),
    "power.draw.average": _field(AVERAGE),
    "power.default_limit": _of("nvmlDeviceGetPowerManagementDefaultLimit"),
    "clocks.applications.graphics": _of("nvmlDeviceGetApplicationsClock", SM),
    "clocks.default_applications.graphics": _of("nvmlDeviceGetDefaultApplicationsClock", SM),
    "clocks.max.sm": _of("nvmlDeviceGetMaxClockInfo", SM),
    "clocks.max.video": _of("nvmlDeviceGetMaxClockInfo", VIDEO),
    "fabric.state": _fabric,
}
"""A fact to the question for which the exporter gets it, or could."""

VALUES: Final[dict[str, Callable[[GpuModel], float | None]]] = {
    "memory.total": lambda model: model.memory_mib,
    "remapped_rows.histogram.max": lambda model: model.row_remap_banks,
    "temperature.shutdown": lambda model: model.thermal.shutdown,
    "temperature.slowdown": lambda model: model.thermal.slowdown,
    "temperature.gpu_max": lambda model: model.thermal.gpu_max,
    "tlimit.shutdown": lambda model: model.thermal.gpu_max - model.thermal.shutdown,
    "tlimit.slowdown": lambda model: model.thermal.gpu_max - model.thermal.slowdown,
    "clocks.default_applications.graphics": lambda model: model.clocks.sm_default,
    "clocks.max.sm": lambda model: model.clocks.sm_max,
    "clocks.max.memory": lambda model: model.clocks.memory_max,
    "clocks.max.video": lambda model: model.clocks.video_max,
}
"""A fact to what the model has of it."""

# A driver older than the card calls it this.
MODELS: Final = {load_model(name).name: name for name in known_models()} | {"Graphics Device": "gtx-1660-ti"}


def _looks(path: Path) -> list[Capture]:
    return list((xml_captures if path.suffix == ".xml" else text_captures)(path))


def _of_models() -> list[Path]:
    """The captures of cards that there is a model of."""
    here = [*FOLDER.glob("nvidia-smi-xml/*.xml"), *FOLDER.glob("nvidia-smi-text/*.txt")]
    return sorted(path for path in here if _looks(path)[0].name in MODELS)


@pytest.fixture(scope="module", params=_of_models(), ids=lambda path: path.name)
def captures(request: pytest.FixtureRequest) -> list[Capture]:
    """What a capture says of its card, at each look at it."""
    return _looks(request.param)


def host_of(capture: Capture, tmp_path: Path) -> Scenario:
    """A host with the driver and the card of a capture, at work or idle as there."""
    instances = '[{ profile = "1g.10gb", gi = 9 }]'
    event = f'\n[[event]]\nat = 0\neffect = {{ kind = "mig", instances = {instances} }}\n' if capture.mig else ""
    load = "utilization = 0.9" if capture.working or capture.mig else ""
    path = tmp_path / "card.toml"
    path.write_text(
        f"""name = "card"
description = "One card."
[driver]
version = "{capture.driver}"
cuda = "12.0"
[machine]
memory_gib = 64
memory_available_gib = 32
node = [{{ cpus = "0-7" }}]
[[gpu]]
model = "{MODELS[capture.name]}"
slot = {{ bus_id = "0000:65:00.0", node = 0 }}
load = {{ {load} }}
{event}"""
    )
    return load_scenario(path)


def answers(nvml: Driver) -> Iterator[tuple[str, bool]]:
    """Every fact, and whether the simulated card tells it."""
    for fact, ask in PROBES.items():
        try:
            ask(nvml)
        except REFUSALS:
            yield fact, False
        except pynvml.NVMLError as error:
            yield fact, error.value not in (pynvml.NVML_ERROR_DEPRECATED, pynvml.NVML_ERROR_NOT_SUPPORTED)
        else:
            yield fact, True


def test_a_model_tells_what_the_card_tells_and_nothing_else(captures: list[Capture], tmp_path: Path) -> None:
    for capture in every(captures):
        with driver(host_of(capture, tmp_path)) as nvml:
            told = dict(answers(nvml))
            state = pynvml.nvmlDeviceGetPerformanceState(nvml.handles[0])
            clock = pynvml.nvmlDeviceGetClockInfo(nvml.handles[0], MEMORY)
            ((code, count),) = nvml.fields(0, LINKS)
            links = ((165, link) for link in range(count))  # the state of each
            states = [state for _, state in nvml.fields(0, *links)] if count else []
        asked = {fact: capture.present(fact) for fact in told if capture.present(fact) is not None}
        assert {fact: told[fact] for fact in asked} == asked
        if capture.name != "Tesla T4":  # a process held it awake
            assert (f"P{state}", clock) == (capture.facts["pstate"], capture.number("clocks.current.memory"))
        if "not supported for Devices in MIG mode" in capture.nvlink:
            assert code == pynvml.NVML_ERROR_NOT_SUPPORTED
        elif "all links are inActive" in capture.nvlink:
            assert set(states) == {0}
        elif "does not have or support" in capture.nvlink:
            assert (code, count) == (0, 0)
        elif capture.nvlink:
            assert states == [1] * capture.nvlink.count("Link ")


def test_a_model_has_the_limits_of_the_card(captures: list[Capture]) -> None:
    for capture in every(captures):
        model = load_model(MODELS[capture.name])
        old = int(capture.driver.split(".")[0]) < 510
        expected = {fact: number for fact in VALUES if (number := capture.number(fact)) is not None}
        found = {fact: VALUES[fact](model) for fact in expected}
        if old:
            found["memory.total"] = model.memory_mib - model.memory_reserved_mib
        assert found == expected
