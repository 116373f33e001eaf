"""A GPU that a virtual machine or another container has is not missing here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.rig import Rig, rig, scenario_with

from gpu_triage.config import Config
from gpu_triage.machine import gpus_given
from gpu_triage.simulator import VirtualClock, load_scenario, simulated_machine


def test_a_gpu_bound_to_vfio_is_not_counted_as_this_hosts(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", 'at = 0\ngpu = 1\neffect = { kind = "removed" }')
    with rig(scenario) as running:
        devices = running.simulated.machine.sysfs / "bus" / "pci" / "devices"
        driver = running.simulated.machine.sysfs / "bus" / "pci" / "drivers" / "vfio-pci"
        driver.mkdir()
        lent = devices / "0000:f1:00.0"
        lent.mkdir()
        (lent / "vendor").write_text("0x10de\n")
        (lent / "class").write_text("0x030200\n")
        running.run(10)
        assert running.value("gpu_devices", source="pci") == 2
        (lent / "driver").symlink_to(driver)
        running.run(10)
        assert running.value("gpu_devices", source="nvml") == 1
        assert running.value("gpu_devices", source="pci") == 1


@pytest.mark.parametrize(
    ("visible", "given"),
    [
        ("", None),
        ("all", None),
        ("void", None),
        ("none", 0),
        ("3", 1),
        ("0, 1,1,", 2),
        ("GPU-2a5c9a1e-0001,GPU-2a5c9a1e-0002", 2),
        ("0:0,0:1,4:0", 2),
        ("MIG-2a5c9a1e-0001,MIG-2a5c9a1e-0002", 1),
    ],
)
def test_how_many_gpus_a_container_was_given(visible: str, given: int | None) -> None:
    assert gpus_given(visible) == given


@pytest.mark.parametrize(("given", "due"), [(None, 8), (2, 2), (9, 8)])
def test_of_the_bus_a_container_misses_only_what_it_was_given(given: int | None, due: int) -> None:
    clock = VirtualClock()
    with simulated_machine(load_scenario("h100-8"), clock=clock) as simulated:
        running = Rig(simulated, clock, Config(), machine=replace(simulated.machine, gpus_given=given))
        running.run(5)
        assert running.value("gpu_devices", source="pci") == due
