from dataclasses import replace
from pathlib import Path

import pytest
from tests.nvml_bench import BenchMaker

from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine
from gpu_triage.read.gpu.topology import PciPlace, level_between, pci_chain, read_nic_topology


def place(*chain: str, node: int | None = 0) -> PciPlace:
    return PciPlace(tuple(chain), node)


# A Gen5 server: a root port, a switch below it, and devices on the switch's ports.
GPU = place("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.0")


@pytest.mark.parametrize(
    ("nic", "level"),
    [
        (place("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:19:00.0", "0000:1a:00.0"), "pix"),
        (place(*GPU.chain[:4], "0000:18:00.1"), "pix"),
        # A DPU brings a switch of its own.
        (place(*GPU.chain[:3], "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"), "pxb"),
        (place("pci0000:15", "0000:15:03.0", "0000:20:00.0"), "phb"),
        (place("pci0000:15", "0000:15:00.0"), "phb"),
        (place("pci0000:26", "0000:26:01.0", "0000:27:00.0"), "node"),
        (place("pci0001:15", "0001:15:01.0", "0001:16:00.0"), "node"),
        (place("pci0000:97", "0000:97:01.0", "0000:98:00.0", node=1), "sys"),
        (place("pci0000:97", "0000:97:01.0", "0000:98:00.0", node=None), None),
    ],
)
def test_levels_are_those_of_nvidia_smi(nic: PciPlace, level: str | None) -> None:
    assert level_between(GPU, nic, one_node=False) == level
    assert level_between(nic, GPU, one_node=False) == level


def test_on_a_host_with_one_node_no_firmware_need_name_it() -> None:
    assert level_between(place("pci0000:00", node=None), place("pci0000:80", node=None), one_node=True) == "node"


def test_two_nodes_that_the_devices_name_are_two_though_the_host_does_not_list_them() -> None:
    assert level_between(place("pci0000:00"), place("pci0000:80", node=1), one_node=True) == "sys"


@pytest.mark.parametrize(
    ("path", "chain"),
    [
        ("/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0", ("pci0000:15", "0000:15:01.0", "0000:18:00.0")),
        ("/sys/devices/pci0000:00/0000:00:05.0/virtio1", ("pci0000:00", "0000:00:05.0")),
        ("/sys/devices/platform/NVDA0001:00/pci0009:00/0009:00:00.0", ("pci0009:00", "0009:00:00.0")),
        ("/sys/devices/LNXSYSTM:00/VMBUS:00/pcic0de:00/c0de:00:00.0", ("pcic0de:00", "c0de:00:00.0")),
        ("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-11/1-11:1.0", ()),
        ("/sys/devices/LNXSYSTM:00/VMBUS:00/f8615163-df3e-46c5-913f-f2d2f965ed0e", ()),
        ("/sys/devices/pci0000:00", ()),
        ("/", ()),
    ],
)
def test_chains_begin_at_the_host_bridge(path: str, chain: tuple[str, ...]) -> None:
    assert pci_chain(path) == chain


def with_sysfs(machine: Machine, bus_id: str, nic: str, **links: str) -> None:
    for name, target in links.items():
        link = machine.sysfs / "class" / "net" / nic / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(machine.sysfs / "bus" / "pci" / "devices" / bus_id if target == "here" else target)


def test_what_is_not_on_the_bus_or_is_virtual_has_no_level(bench: BenchMaker) -> None:
    gpu = bench("a100-power-capped").round()
    with_sysfs(gpu.machine, "0000:83:00.0", "dangling", device="/nowhere")
    with_sysfs(gpu.machine, "0000:83:00.0", "looped", device="device")
    (gpu.machine.sysfs / "class" / "net" / "lo").mkdir()
    virtual = gpu.machine.sysfs / "devices" / "pci0000:80" / "0000:83:00.1"
    virtual.mkdir()
    (virtual / "physfn").symlink_to("../0000:83:00.0")
    with_sysfs(gpu.machine, "0000:83:00.1", "eth0v0", device=str(virtual))
    assert read_nic_topology(gpu).levels == {"eth0": "phb"}
    assert gpu.inquiry.failures == []


def test_where_no_sysfs_is_mounted_it_fails(bench: BenchMaker, tmp_path: Path) -> None:
    gpu = bench("rtx-4070-ti-super").round()
    unmounted = replace(gpu, machine=replace(gpu.machine, sysfs=tmp_path))
    with pytest.raises(HostReadFailed, match="missing"):
        read_nic_topology(unmounted)


def test_adapters_that_cannot_be_listed_are_a_failure(bench: BenchMaker) -> None:
    gpu = bench("rtx-4070-ti-super").round()
    infiniband = gpu.machine.sysfs / "class" / "infiniband"
    infiniband.rmdir()
    infiniband.symlink_to("infiniband")
    with pytest.raises(HostReadFailed, match="io_error"):
        read_nic_topology(gpu)
