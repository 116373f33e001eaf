"""A GPU that a virtual machine or another container has is not missing here."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.rig import Rig, only, rig, scenario_with, three

from gpu_triage.machine import gpus_given
from gpu_triage_simulator import VirtualClock, simulated_machine

pytestmark = pytest.mark.slow


def plug(sysfs: Path, bus_id: str) -> Path:
    """An NVIDIA GPU on the bus, without a driver; returns its directory."""
    device = sysfs / "bus" / "pci" / "devices" / bus_id
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    return device


def bind_to_vfio(sysfs: Path, device: Path) -> None:
    """Set a device aside for virtual machines."""
    driver = sysfs / "bus" / "pci" / "drivers" / "vfio-pci"
    driver.mkdir()
    (device / "driver").symlink_to(driver)


def test_a_gpu_that_is_handed_to_a_virtual_machine_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    xid = 'at = 15\ngpu = 1\neffect = { kind = "xid", code = 31 }'
    removed = 'at = 20\nuntil = 80\ngpu = 1\neffect = { kind = "removed" }'
    scenario = scenario_with(tmp_path, "idle-downshift", xid, removed)
    of_it = {"uuid": scenario.gpus[1].uuid}
    with rig(scenario) as running:
        running.run_to(40)
        assert running.value("gpu_up", **of_it) == 0
        sysfs = running.simulated.machine.sysfs
        device = plug(sysfs, scenario.gpus[1].slot.bus_id)
        running.run_to(50)
        assert running.value("gpu_devices", source="pci") == 2
        bind_to_vfio(sysfs, device)
        running.run_to(60)
        assert running.value("gpu_devices", source="pci") == 1
        # What was found of it before stays for as long as what nobody can observe.
        left = [line for line in running.page().splitlines() if of_it["uuid"] in line]
        assert [line for line in left if not line.startswith("gpu_finding")] == []
        assert len(running.series("gpu_up")) == 1
        assert caplog.messages.count("GPU does not answer") == 2, "it was lost, then missing"
        shutil.rmtree(device)
        running.run_to(120)
        assert running.value("gpu_up", **of_it) == 1
        assert running.value("gpu_temperature_celsius", sensor="gpu", **of_it) is not None
        # It was initialized anew.
        assert running.series("gpu_finding_since_timestamp_seconds", code="gpu.lost", **of_it) == []


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


@pytest.mark.parametrize(("given", "due"), [(None, 3), (2, 2), (9, 3)])
def test_of_the_bus_a_container_misses_only_what_it_was_given(given: int | None, due: int) -> None:
    clock = VirtualClock()
    with simulated_machine(three("h100-8"), clock=clock) as simulated:
        running = Rig(simulated, clock, only("power", "identity"), machine=replace(simulated.machine, gpus_given=given))
        running.run(5)
        assert running.value("gpu_devices", source="pci") == due
