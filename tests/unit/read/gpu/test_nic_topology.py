from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


def test_every_adapter_of_the_host_has_a_level_under_each_of_its_names(bench: BenchMaker) -> None:
    found = read_nic_topology(bench("h100-8").round(1))
    assert found.levels == {
        "ens1f0np0": "node",
        "ens5f0np0": "sys",
        "ibp173s0": "sys",
        "ibp44s0": "pix",
        "mlx5_0": "node",
        "mlx5_1": "sys",
        "mlx5_2": "pix",
        "mlx5_3": "sys",
    }


def test_another_root_port_of_the_same_host_bridge_is_phb(bench: BenchMaker) -> None:
    assert read_nic_topology(bench("a100-power-capped").round()).levels == {"eth0": "phb"}


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


class Node(NamedTuple):
    """A bridge of a random tree: what it is, and the one above it."""

    kind: str
    above: int | None


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Node], int, int]:
    """A tree of host bridges, root ports and switches, and the ports that two devices are plugged into."""
    nodes = [Node("host", None) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 12))):
        above = draw(st.integers(0, len(nodes) - 1))
        if nodes[above].kind == "host":
            nodes.append(Node("port", above))
        elif nodes[above].kind == "port" and above not in [node.above for node in nodes]:
            # A port has one slot; a switch in it has ports of its own.
            nodes.append(Node("switch", above))
            nodes += [Node("port", len(nodes) - 1)] * draw(st.integers(1, 4))
    taken = {node.above for node in nodes}
    slots = [i for i, node in enumerate(nodes) if node.kind == "host" or (node.kind == "port" and i not in taken)]
    return nodes, draw(st.sampled_from(slots)), draw(st.sampled_from(slots))


def upwards(nodes: list[Node], start: int) -> list[int]:
    way = [start]
    while (above := nodes[way[-1]].above) is not None:
        way.append(above)
    return way


def oracle(nodes: list[Node], here: int, there: int) -> str | None:
    """The definition of nvidia-smi topo, by counting what the traffic between two slots passes through."""
    mine, theirs = upwards(nodes, here), upwards(nodes, there)
    meeting = next((node for node in mine if node in theirs), None)
    if meeting is None:
        return "node"
    passed = {*mine[: mine.index(meeting) + 1], *theirs[: theirs.index(meeting) + 1]}
    if nodes[meeting].kind == "host":
        return "phb"
    return "pix" if [nodes[i].kind for i in passed].count("switch") <= 1 else "pxb"


@given(trees())
def test_levels_agree_with_a_count_of_switches_on_any_tree(tree: tuple[list[Node], int, int]) -> None:
    nodes, here, there = tree

    def chain(slot: int, function: int) -> tuple[str, ...]:
        names = [f"pci0000:{i:02x}" if nodes[i].kind == "host" else f"0000:{i:02x}:00.0" for i in upwards(nodes, slot)]
        return (*reversed(names), f"0000:f{function}:00.{function}")

    level = level_between(place(*chain(here, 0)), place(*chain(there, 1)), one_node=False)
    assert level == oracle(nodes, here, there)


@given(st.text())
def test_any_path_has_a_chain_or_none(text: str) -> None:
    assert len(pci_chain(f"/sys/devices/pci0000:00/{text}")) != 1
