"""Links above PCIe switches, by a host's sysfs; the chain is that of a DGX H100, as `lspci -tv` of captures has it."""

import pytest
from tests.host_tree import HostTree

from gpu_triage.read.host.pcie_uplinks import PCIE_UPLINKS, PcieUplinksReader, Uplink, bytes_per_second

ROOT, SWITCH = "0000:15:01.0", "0000:16:00.0"
GPU, NIC, DRIVE = "0000:18:00.0", "0000:1a:00.0", "0000:1c:00.0"
BELOW = "pci0000:15/0000:15:01.0/0000:16:00.0"


def device(
    host: HostTree, path: str, pci_class: str, link: tuple[str, str], most: tuple[str, str], *, vendor: str = "0x10de"
) -> None:
    """A device by its path below /sys/devices, with its link now and at best: speed and width."""
    texts = {
        "class": pci_class,
        "current_link_speed": link[0],
        "current_link_width": link[1],
        "max_link_speed": most[0],
        "max_link_width": most[1],
        "vendor": vendor,
    }
    host.write({f"sys/devices/{path}/{name}": f"{text}\n" for name, text in texts.items()})
    name = path.rpartition("/")[2]
    link_path = host.sysfs / "bus" / "pci" / "devices" / name
    if not link_path.is_symlink():
        host.link(f"sys/bus/pci/devices/{name}", f"../../../devices/{path}")


FULL = ("32.0 GT/s PCIe", "16")


def tray(host: HostTree, link: tuple[str, str] = FULL) -> None:
    """A switch with a GPU, an adapter and a drive behind it."""
    device(host, "pci0000:15/0000:15:01.0", "0x060400", link, FULL, vendor="0x8086")
    device(host, BELOW, "0x060400", link, FULL, vendor="0x1000")
    for port, name, pci_class, vendor in (
        ("0000:17:00.0", GPU, "0x030200", "0x10de"),
        ("0000:17:01.0", NIC, "0x020700", "0x15b3"),
        ("0000:17:02.0", DRIVE, "0x010802", "0x144d"),
        ("0000:17:03.0", "0000:1e:00.0", "0x088000", "0x1000"),
    ):
        device(host, f"{BELOW}/{port}", "0x060400", FULL, FULL, vendor="0x1000")
        device(host, f"{BELOW}/{port}/{name}", pci_class, FULL, FULL, vendor=vendor)


SHARED = (f"gpu {GPU}", f"network {NIC}", f"nvme {DRIVE}")


def test_what_shares_the_link_above_a_switch(host: HostTree) -> None:
    tray(host)
    (uplink,) = PcieUplinksReader().read(host.round())
    assert uplink == Uplink(SWITCH, ROOT, SHARED, 16, 5, 16, 5)
    assert uplink.ratio == 1.0


@pytest.mark.parametrize(
    ("link", "ratio"),
    [(("32.0 GT/s PCIe", "8"), 0.5), (("16.0 GT/s PCIe", "16"), 0.5), (("8.0 GT/s PCIe", "4"), 1 / 16)],
)
def test_an_uplink_that_trained_down(host: HostTree, link: tuple[str, str], ratio: float) -> None:
    tray(host, link)
    (uplink,) = PcieUplinksReader().read(host.round())
    assert uplink.ratio == pytest.approx(ratio)


def test_what_one_end_cannot_do_is_not_expected(host: HostTree) -> None:
    tray(host, ("16.0 GT/s PCIe", "16"))
    device(host, "pci0000:15/0000:15:01.0", "0x060400", ("16.0 GT/s PCIe", "16"), ("16.0 GT/s PCIe", "16"))
    assert PcieUplinksReader().read(host.round())[0].ratio == 1.0


def test_switches_below_a_switch_have_an_uplink_each(host: HostTree) -> None:
    tray(host)
    inner = f"{BELOW}/0000:17:04.0/0000:1f:00.0"
    for path in (f"{BELOW}/0000:17:04.0", inner, f"{inner}/0000:20:00.0"):
        device(host, path, "0x060400", FULL, FULL, vendor="0x1000")
    device(host, f"{inner}/0000:20:00.0/0000:21:00.0", "0x030200", FULL, FULL)
    uplinks = {(each.port, each.bridge): each.behind for each in PcieUplinksReader().read(host.round())}
    assert uplinks == {
        (ROOT, SWITCH): (*SHARED, "gpu 0000:21:00.0"),
        ("0000:17:04.0", "0000:1f:00.0"): ("gpu 0000:21:00.0",),
    }


def test_a_gpu_below_a_root_port_and_a_switch_without_gpus_have_none(host: HostTree) -> None:
    host.mount()
    device(host, "pci0000:60/0000:60:01.0", "0x060400", FULL, FULL)
    device(host, "pci0000:60/0000:60:01.0/0000:65:00.0", "0x030000", FULL, FULL)
    for path in ("pci0000:70/0000:70:01.0", "pci0000:70/0000:70:01.0/0000:71:00.0"):
        device(host, path, "0x060400", FULL, FULL)
    device(host, "pci0000:70/0000:70:01.0/0000:71:00.0/0000:72:00.0", "0x060400", FULL, FULL)
    device(host, "pci0000:70/0000:70:01.0/0000:71:00.0/0000:72:00.0/0000:73:00.0", "0x010802", FULL, FULL)
    assert PcieUplinksReader().read(host.round()) == ()


@pytest.mark.parametrize("width", ["63", "255", "0", ""])
def test_a_link_that_is_not_told_is_no_short_one(host: HostTree, width: str) -> None:
    tray(host, ("Unknown", width))
    assert PcieUplinksReader().read(host.round()) == ()


def test_series_of_a_healthy_uplink_are_details(host: HostTree) -> None:
    tray(host)
    samples = list(PCIE_UPLINKS.render(PcieUplinksReader().read(host.round())))
    assert [sample.spec.default_samples(sample) for sample in samples if sample.spec.default_samples] == [False, False]
    tray(host, ("32.0 GT/s PCIe", "8"))
    samples = list(PCIE_UPLINKS.render(PcieUplinksReader().read(host.round())))
    assert [sample.spec.default_samples(sample) for sample in samples if sample.spec.default_samples] == [True, False]


def test_bandwidth_is_that_of_the_specification() -> None:
    assert bytes_per_second(5, 16) == pytest.approx(63.0e9, rel=0.01)
    assert bytes_per_second(3, 8) == pytest.approx(7.88e9, rel=0.01)
    assert bytes_per_second(1, 1) == 250e6
