from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.simulated_driver import driver

from gpu_triage.errors import DocumentError
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.model import MODELS, known_models, load_model, read_model
from gpu_triage_simulator.schema import read_toml

SM = 1


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """The file of a model with other values; ``thermal__slowdown`` is a key of the table ``thermal``."""
    table = read_toml(MODELS / f"{name}.toml")
    for key, value in changes.items():
        *path, last = key.split("__")
        inner = table
        for part in path:
            inner = inner[part]
        inner[last] = value
    return table


def one_card(tmp_path: Path, model: str, driver_version: str, *events: str) -> Scenario:
    """A host with one card at work."""
    path = tmp_path / "one.toml"
    path.write_text(
        f"""name = "one"
description = "One card."
[driver]
version = "{driver_version}"
cuda = "12.0"
[machine]
memory_gib = 64
memory_available_gib = 32
node = [{{ cpus = "0-7" }}]
[[gpu]]
model = "{model}"
slot = {{ bus_id = "0000:65:00.0", node = 0 }}
load = {{ utilization = 0.9, intensity = 0.5 }}
"""
        + "".join(f"\n[[event]]\n{event}\n" for event in events)
    )
    return load_scenario(path)


@pytest.mark.parametrize("name", known_models())
def test_every_model_says_where_its_facts_are_from(name: str) -> None:
    source = load_model(name).source
    assert source.kind in {"capture", "documentation"}
    assert len(source.facts) > 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_mibs": 1}, "memory_mibs: unknown key; did you mean memory_mib?"),
        ({"features": ["ecc", "nvjpeg"]}, "features[1]: "),
        ({"source": {"kind": "hearsay", "facts": "a rumour"}}, "source.kind: "),
        ({"memory_reserved_mib": 0}, "memory_reserved_mib: is 0; write what the driver reserves"),
        ({"row_remap_banks": 0}, "row_remap_banks: goes with the feature remapped_rows"),
        ({"thermal__slowdown": 99}, "thermal: needs gpu_max below slowdown below shutdown"),
        ({"power__default_limit": 1200}, "power: needs min_limit, default_limit and max_limit in this order"),
        ({"power__idle": 700}, "power.idle: needs to be below default_limit"),
        ({"clocks__sm_default": 2000}, "clocks.sm_default: is 2000, which is above the highest, 1980"),
        ({"clocks__memory_load": 2700}, "clocks.memory_load: is 2700, which is above the highest, 2619"),
        ({"nvlink_version": 0}, "nvlink_version: goes with nvlinks"),
        ({"fan_percent": 0}, "fan_percent: needs fans"),
        ({"memory_without_ecc_mib": 100}, "memory_without_ecc_mib: needs ECC that is on and takes memory"),
        ({"features": []}, "row_remap_banks: goes with"),
        ({"idle_state": 16}, "idle_state: is 16; write "),
    ],
)
def test_a_wrong_model_says_which_key_and_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    if changes.get("features") == []:
        changes = {**changes, "clocks__sm_default": 1980}
    with pytest.raises(DocumentError) as error:
        read_model(changed("h100-sxm5-80gb", **changes), "h100.toml")
    assert "h100.toml" in str(error.value)
    assert message in str(error.value) or "clocks.sm_default: goes with" in str(error.value)


def test_a_model_without_its_source_is_refused() -> None:
    table = changed("t4")
    del table["source"]
    with pytest.raises(DocumentError, match="source: is missing"):
        read_model(table, "t4.toml")


def test_application_clocks_end_with_driver_590(tmp_path: Path) -> None:
    with driver(one_card(tmp_path, "h100-sxm5-80gb", "580.95.05")) as nvml:
        assert pynvml.nvmlDeviceGetApplicationsClock(nvml.handles[0], SM) == 1980
    with driver(one_card(tmp_path, "h100-sxm5-80gb", "590.48.01")) as nvml:
        for function in (pynvml.nvmlDeviceGetApplicationsClock, pynvml.nvmlDeviceGetDefaultApplicationsClock):
            with pytest.raises(pynvml.NVMLError) as error:
                function(nvml.handles[0], SM)
            assert error.value.value == pynvml.NVML_ERROR_DEPRECATED


def test_a_default_application_clock_holds_nothing_back_and_a_lower_one_does(tmp_path: Path) -> None:
    lowered = 'at = "60s"\neffect = { kind = "application_clock", sm_mhz = 900 }'
    with driver(one_card(tmp_path, "a100-sxm4-80gb", "550.54.14", lowered)) as nvml:
        (gpu,) = nvml.handles
        assert pynvml.nvmlDeviceGetDefaultApplicationsClock(gpu, SM) == 1275
        assert pynvml.nvmlDeviceGetClockInfo(gpu, SM) == 1410
        assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0
        nvml.at(60)
        assert pynvml.nvmlDeviceGetClockInfo(gpu, SM) == 900
        reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
        assert reasons == pynvml.nvmlClocksEventReasonApplicationsClocksSetting


def test_ecc_that_is_off_counts_nothing_and_leaves_a_little_more_memory(tmp_path: Path) -> None:
    off = 'at = "60s"\neffect = { kind = "ecc_mode", enabled = false }'
    with driver(one_card(tmp_path, "a10", "550.54.14", off)) as nvml:
        (gpu,) = nvml.handles
        assert pynvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0) == 0
        assert pynvml.nvmlDeviceGetMemoryInfo(gpu).total >> 20 == 23_028
        nvml.at(60)
        assert pynvml.nvmlDeviceGetMemoryInfo(gpu).total >> 20 == 24_564
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0)


def test_an_old_driver_leaves_what_it_reserves_out_of_the_total(tmp_path: Path) -> None:
    with driver(one_card(tmp_path, "v100-sxm2-16gb", "470.256.02")) as nvml:
        memory = pynvml.nvmlDeviceGetMemoryInfo(nvml.handles[0])
        assert (memory.total >> 20, memory.used) == (16_160, 0)


def test_a_passive_card_may_report_a_fan_that_never_turns(tmp_path: Path) -> None:
    with driver(one_card(tmp_path, "a10g", "550.54.14")) as nvml:
        assert pynvml.nvmlDeviceGetNumFans(nvml.handles[0]) == 1
        assert pynvml.nvmlDeviceGetFanSpeed_v2(nvml.handles[0], 0) == 0
