"""A GPU that a virtual machine has is not missing from this host."""

from __future__ import annotations

from pathlib import Path

from tests.rig import rig, scenario_with


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
