import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.pci_bus import (
    BusEvents,
    PcieLink,
    PciGpu,
    link_of,
    normalize_bus_id,
    numa_node_of,
    parse_link_speed,
    parse_link_width,
    port_above,
    read_pci_gpus,
)
from gpu_triage.errors import HostReadFailed

GPU = "0000:65:00.0"
PORT = "0000:64:00.0"


def device(host: HostTree, path: str, vendor: str, class_: str, **attributes: str) -> None:
    """One PCI device at its place in the tree, and its link under bus/pci."""
    files = {"vendor": vendor, "class": class_, **attributes}
    host.write({f"sys/devices/{path}/{name}": f"{text}\n" for name, text in files.items()})
    host.link(f"sys/bus/pci/devices/{path.rpartition('/')[2]}", f"../../../devices/{path}")


def gpu_server(host: HostTree) -> None:
    """A GPU behind a root port, another passed through to a guest, one without a driver, and their kin."""
    link = {"max_link_width": "16", "current_link_speed": "2.5 GT/s PCIe", "current_link_width": "8"}
    below = f"pci0000:64/{PORT}"
    device(host, below, "0x8086", "0x060400", max_link_speed="16.0 GT/s PCIe", **link)
    device(host, f"{below}/{GPU}", "0x10de", "0x030200", max_link_speed="32.0 GT/s PCIe", numa_node="1", **link)
    host.link(f"sys/devices/{below}/{GPU}/driver", "../../../../bus/pci/drivers/nvidia")
    device(host, f"{below}/0000:65:00.1", "0x10de", "0x040300")
    device(host, "pci0000:00/0000:00:05.0", "0x10de", "0x030000", numa_node="-1")
    host.link("sys/devices/pci0000:00/0000:00:05.0/driver", "../../../bus/pci/drivers/vfio-pci")
    device(host, "pci10000:00/10000:01:00.0", "0x10de", "0x030200", numa_node="junk")
    device(host, "pci0000:80/0000:c1:00.0", "0x10de", "0x068000")
    device(host, "pci0000:80/0000:03:00.0", "0x1a03", "0x030000")


def test_gpus_are_told_from_bridges_sound_and_other_vendors(host: HostTree) -> None:
    assert read_pci_gpus(host.sysfs, []) is None  # a host without a PCI bus is not one without GPUs
    device(host, "pci0000:00/0000:02:00.0", "0x1a03", "0x030000")
    assert read_pci_gpus(host.sysfs, []) == ()
    gpu_server(host)
    found = (PciGpu("0000:00:05.0", "vfio-pci"), PciGpu(GPU, "nvidia"), PciGpu("10000:01:00.0", None))
    assert read_pci_gpus(host.sysfs, []) == found
    # A device that cannot be read costs only itself.
    host.spoil(f"sys/devices/pci0000:64/{PORT}/{GPU}/class")
    failures: list[str] = []
    assert read_pci_gpus(host.sysfs, failures) == (found[0], found[2])
    assert failures == ["io_error"]


def test_a_bus_that_cannot_be_read_is_a_failure(host: HostTree) -> None:
    host.link("sys/bus/pci/devices", "devices")  # a loop
    with pytest.raises(HostReadFailed, match="io_error"):
        read_pci_gpus(host.sysfs, [])


def test_links_of_the_gpu_and_of_the_port_above_it(host: HostTree) -> None:
    gpu_server(host)
    assert link_of(host.sysfs, GPU) == PcieLink(1, 8, 5, 16)
    # A device on the host bridge, or that is not there, has no port to see.
    above = {bus_id: port_above(host.sysfs, bus_id) for bus_id in (GPU, "0000:00:05.0", "0000:ff:00.0")}
    assert above == {GPU: PORT, "0000:00:05.0": None, "0000:ff:00.0": None}
    assert link_of(host.sysfs, PORT) == PcieLink(1, 8, 4, 16)


def test_a_device_that_left_or_reads_all_ones_has_no_link(host: HostTree) -> None:
    nothing = PcieLink(None, None, None, None)
    assert link_of(host.sysfs, GPU) == nothing
    dead = dict.fromkeys(("current_link_speed", "max_link_speed"), "Unknown")
    device(host, f"pci0000:64/{GPU}", "0x10de", "0x030200", **dead, current_link_width="63", max_link_width="255")
    assert link_of(host.sysfs, GPU) == nothing
    host.spoil(f"sys/devices/pci0000:64/{GPU}/current_link_speed")
    assert link_of(host.sysfs, GPU) == nothing


def test_numa_nodes_keep_minus_1_and_refuse_junk(host: HostTree) -> None:
    gpu_server(host)
    gpus = (GPU, "0000:00:05.0", "10000:01:00.0", "0000:65:00.1")
    assert [numa_node_of(host.sysfs, bus_id) for bus_id in gpus] == [1, -1, None, None]


@pytest.mark.parametrize(
    ("nvml", "sysfs"),
    [
        ("00000000:65:00.0", "0000:65:00.0"),
        ("00000000:CA:00.0", "0000:ca:00.0"),
        ("0000:ca:1f.7", "0000:ca:1f.7"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
    ],
)
def test_bus_ids_as_sysfs_writes_them(nvml: str, sysfs: str) -> None:
    assert normalize_bus_id(nvml) == sysfs


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        *(
            (f"{speed} GT/s PCIe\n", i)
            for i, speed in enumerate(("2.5", "5.0", "8.0", "16.0", "32.0", "64.0", "128.0"), 1)
        ),
        *(("5 GT/s\n", 2), ("16 GT/s\n", 4)),
        *((text, None) for text in ("Unknown\n", "Unknown speed\n", "66 MHz PCI\n", "")),
    ],
)
def test_generations_of_speeds(text: str, generation: int | None) -> None:
    assert parse_link_speed(text) == generation


@pytest.mark.parametrize(("text", "width"), [("16\n", 16), ("1", 1), ("0", None), ("63", None), ("255", None)])
def test_widths_a_link_can_have(text: str, width: int | None) -> None:
    assert parse_link_width(text) == width


def test_no_event_is_no_hint_and_asking_never_waits() -> None:
    events = BusEvents()
    assert [events.seen() for _ in range(100)] == [False] * 100
