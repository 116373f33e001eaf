"""Interfaces and their links, as Documentation/ABI/testing/sysfs-class-net and net/core/net-sysfs.c have them."""

from pathlib import Path

import pytest
from tests.gathered import every
from tests.host_tree import HostTree, kernel_file

from gpu_triage.read.host.network_interfaces import (
    HostNetworkLinkReader,
    HostNetworkReader,
    HostNetworkReading,
    InterfaceLink,
    NetworkInterface,
    is_named_like_hardware,
)

NET_DEV = kernel_file("net-dev")
HEADER = NET_DEV.partition("    lo:")[0]


def bonded_host(host: HostTree) -> None:
    """Two ports of a bond, the second down, InfiniBand, and what containers bring."""
    host.write({"proc/net/dev": NET_DEV})
    for name in ("lo", "docker0", "veth12ab34", "bond0.100"):
        host.write({f"sys/class/net/{name}/speed": "10000\n"})
    for name, node, speed in (("ens1f0np0", 1, "100000"), ("ens1f1np1", 1, "-1"), ("ib0", -1, "4294967295")):
        host.write({f"sys/devices/pci0000:00/{name}/numa_node": f"{node}\n"})
        host.link(f"sys/class/net/{name}/device", f"../../../devices/pci0000:00/{name}")
        host.write({f"sys/class/net/{name}/speed": f"{speed}\n", f"sys/class/net/{name}/carrier_changes": "1\n"})
    host.write({"sys/class/net/bond0/speed": "100000\n", "sys/class/net/bond0/bonding/mode": "802.3ad 4\n"})


def test_physical_interfaces_and_bonds_are_read_and_nothing_virtual(host: HostTree) -> None:
    bonded_host(host)
    round_ = host.round()
    assert HostNetworkReader().read(round_) == HostNetworkReading(
        (
            NetworkInterface("bond0", 9010, 8020, 1, 3, 2, 4, None),
            NetworkInterface("ens1f0np0", 9000, 8000, 1, 3, 2, 4, 1),
            NetworkInterface("ens1f1np1", 10, 20, 0, 0, 0, 0, 1),
            NetworkInterface("ib0", 18446744073709551615, 1, 0, 0, 0, 0, None),
        )
    )
    assert round_.failures == []


@pytest.mark.parametrize("in_sysfs", [(), ("lo", "eth0")])
def test_the_hosts_own_network_namespace_is_preferred_to_the_readers(host: HostTree, in_sysfs: tuple[str, ...]) -> None:
    """In a container, /proc/1/net/dev is the host's and /sys/class/net the container's: names tell interfaces apart."""
    host.write({"proc/net/dev": f"{HEADER}  eth0: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n", "proc/1/net/dev": NET_DEV})
    host.write({f"sys/class/net/{name}/operstate": "up\n" for name in in_sysfs})
    devices = [interface.device for interface in HostNetworkReader().read(host.round()).interfaces]
    assert devices == ["bond0", "ens1f0np0", "ens1f1np1", "ib0"]


def test_inner_ports_of_an_adapters_switch_carry_no_data_of_the_host(host: HostTree) -> None:
    line = "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"
    names = ("enp8s0f0np0", "enp8s0f0npf0vf1", "enp8s0f0npf0sf88", "pf0")
    host.write({"proc/net/dev": "".join(f"{name}: {line}" for name in names)})
    for name in names:
        host.write({f"sys/class/net/{name}/device/vendor": "0x15b3\n"})
    devices = [interface.device for interface in HostNetworkReader().read(host.round()).interfaces]
    assert devices == ["enp8s0f0np0", "pf0"]


def test_an_exporter_that_may_not_look_at_process_1_reads_its_own_namespace(host: HostTree) -> None:
    host.write({"proc/net/dev": f"{HEADER}  eth0: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"})
    host.spoil("proc/1/net/dev")
    round_ = host.round()
    assert [interface.device for interface in HostNetworkReader().read(round_).interfaces] == ["eth0"]
    assert round_.failures == []


SNMP = kernel_file("net-snmp")
"""Of Linux 6.18, without its long lines about ICMP; see snmp_seq_show of net/ipv4/proc.c."""


def test_tcp_segments_are_those_of_the_hosts_own_network_namespace(host: HostTree) -> None:
    fewer = SNMP.replace("7172062 3758", "5 0")
    host.write({"proc/net/dev": f"{HEADER}  eth0: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n", "proc/net/snmp": fewer})
    own = HostNetworkReader().read(host.round())
    assert (own.segments_sent, own.segments_retransmitted) == (5, 0)
    host.write({"proc/1/net/dev": NET_DEV, "proc/1/net/snmp": SNMP})
    hosts = HostNetworkReader().read(host.round())
    assert (hosts.segments_sent, hosts.segments_retransmitted) == (7172062, 3758)


@pytest.mark.parametrize(
    ("names", "is_hardware"),
    [
        ("eth0 ens1f0np0 enP2p1s0 ib0 bond0 usb0 wlan0", True),
        ("lo veth12ab34 docker0 br-1a2b cni0 flannel.1 cali123 virbr0 tun0 tap1 eth0.100", False),
    ],
)
def test_names_that_hardware_gets(names: str, *, is_hardware: bool) -> None:
    assert [name for name in every(names.split()) if is_named_like_hardware(name) is not is_hardware] == []


class LinkRounds:
    """Rounds of one reader at monotonic seconds, and the names of the interfaces whose speed they read."""

    def __init__(self, host: HostTree) -> None:
        self.host = host
        self.reader = HostNetworkLinkReader()
        self.asked: list[str] = []

    def read(self, at: float = 0.0) -> tuple[dict[str, InterfaceLink], list[str]]:
        """The links by name, and the failures of the round."""
        round_ = self.host.round(at, self._opened)
        links = self.reader.read(round_)
        return {link.device: link for link in links}, round_.failures

    def one(self, at: float = 0.0, **files: str) -> InterfaceLink:
        """The link of eth0 after its files were written."""
        self.host.write({"sys/class/net/eth0/device/numa_node": "0\n"})
        self.host.write({f"sys/class/net/eth0/{name}": f"{text}\n" for name, text in files.items()})
        links, _ = self.read(at)
        return links["eth0"]

    def _opened(self, path: Path) -> None:
        if path.name == "speed":
            self.asked.append(path.parent.name)


@pytest.fixture
def rounds(host: HostTree) -> LinkRounds:
    return LinkRounds(host)


def test_links_of_physical_interfaces_and_bonds_are_read(rounds: LinkRounds) -> None:
    bonded_host(rounds.host)
    links, failures = rounds.read()
    assert links == {
        "bond0": InterfaceLink("bond0", 12_500_000_000, 1.0),
        "ens1f0np0": InterfaceLink("ens1f0np0", 12_500_000_000, 1.0, 0),
        "ens1f1np1": InterfaceLink("ens1f1np1", None, None, 0),
        "ib0": InterfaceLink("ib0", None, None, 0),
    }
    assert failures == []


def test_a_speed_is_read_again_when_the_carrier_changed_and_every_ten_minutes(rounds: LinkRounds) -> None:
    for at in range(0, 600, 5):
        assert rounds.one(at, speed="25000", carrier_changes="1").speed_bytes_per_second == 25_000 * 125_000
    assert rounds.asked == ["eth0"]
    assert rounds.one(600).speed_bytes_per_second == 25_000 * 125_000
    assert rounds.asked == ["eth0"] * 2
    changed = rounds.one(605, speed="10000", carrier_changes="3")
    assert (changed.speed_bytes_per_second, changed.speed_expected_ratio) == (10_000 * 125_000, 0.4)
    assert rounds.asked == ["eth0"] * 3


def test_a_speed_that_the_driver_does_not_know_is_asked_for_every_minute(rounds: LinkRounds) -> None:
    """A carrier may come before its speed; ENA has none, and answers EINVAL."""
    for at in range(0, 60, 5):
        assert rounds.one(at, speed="-1", carrier_changes="1").speed_bytes_per_second is None
    assert rounds.asked == ["eth0"]
    assert rounds.one(60, speed="100000").speed_bytes_per_second == 100_000 * 125_000


def test_a_bond_is_read_again_when_a_member_changed(rounds: LinkRounds) -> None:
    """A bond's speed is that of its members together, and its own carrier stays while one is left."""
    bonded_host(rounds.host)
    rounds.read(0.0)
    rounds.host.write({"sys/class/net/bond0/speed": "200000\n", "sys/class/net/ens1f1np1/speed": "100000\n"})
    rounds.host.write({"sys/class/net/ens1f1np1/carrier_changes": "2\n"})
    rounds.asked.clear()
    links, _ = rounds.read(5.0)
    assert links["bond0"].speed_bytes_per_second == 25_000_000_000
    assert rounds.asked == ["bond0", "ens1f1np1"]


def test_an_unreadable_speed_costs_only_itself_and_is_tried_again(rounds: LinkRounds) -> None:
    bonded_host(rounds.host)
    rounds.host.write({"sys/class/net/ib0/speed": "fast\n"})
    rounds.host.spoil("sys/class/net/ens1f0np0/speed")
    links, failures = rounds.read(0.0)
    assert links["ens1f0np0"].speed_bytes_per_second is None
    assert links["bond0"].speed_bytes_per_second == 12_500_000_000
    assert failures == ["io_error", "malformed"]
    (rounds.host.sysfs / "class/net/ens1f0np0/speed").rmdir()
    rounds.host.write({"sys/class/net/ens1f0np0/speed": "100000\n"})
    links, failures = rounds.read(5.0)
    assert links["ens1f0np0"].speed_bytes_per_second == 12_500_000_000
    assert failures == ["malformed"]


@pytest.mark.parametrize(
    ("files", "downs"),
    [
        ({"carrier_down_count": "3", "carrier_changes": "7"}, 3),
        ({"carrier_changes": "7"}, 3),  # before Linux 4.16
        ({}, None),
    ],
)
def test_lost_links_are_counted(rounds: LinkRounds, files: dict[str, str], downs: int | None) -> None:
    assert rounds.one(0.0, **files).carrier_downs == downs


def test_of_an_interface_that_is_a_port_too_the_port_tells(rounds: LinkRounds) -> None:
    rounds.host.write({"sys/class/net/eth0/device/infiniband/mlx5_0/board_id": "MT_0000000838\n"})
    found = rounds.one(speed="200000", carrier_down_count="3")
    assert found == InterfaceLink("eth0", 25_000_000_000)
