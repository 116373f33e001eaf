from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gathered import every
from tests.host_tree import HostTree

from gpu_triage.read.host.network_interfaces import (
    HostNetworkReader,
    NetworkInterface,
    is_named_like_hardware,
    parse_interface,
)

HEADER = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)
NET_DEV = f"""{HEADER}\
    lo: 3193 29 0 0 0 0 0 0 3193 29 0 0 0 0 0 0
ens1f0np0: 9000 60 1 2 0 1 0 10 8000 50 3 4 0 0 3 0
ens1f1np1: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
 bond0: 9010 61 1 2 0 1 0 10 8020 51 3 4 0 0 3 0
docker0:       0       0    0    0    0     0          0         0        0 0 0 0 0 0 0 0
veth12ab34:700 7 0 0 0 0 0 0 800 8 0 0 0 0 0 0
bond0.100: 500 5 0 0 0 0 0 0 600 6 0 0 0 0 0 0
  ib0: 18446744073709551615 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
"""


def bonded_host(host: HostTree) -> None:
    """Two ports of a bond, the second down, InfiniBand, and what containers bring."""
    host.write({"proc/net/dev": NET_DEV})
    for name in ("lo", "docker0", "veth12ab34", "bond0.100"):
        host.write({f"sys/class/net/{name}/operstate": "unknown\n"})
    for name, node in (("ens1f0np0", "1"), ("ens1f1np1", "1"), ("ib0", "-1")):
        host.write({f"sys/devices/pci0000:00/{name}/numa_node": f"{node}\n"})
        host.link(f"sys/class/net/{name}/device", f"../../../devices/pci0000:00/{name}")
    host.write({"sys/class/net/bond0/bonding/mode": "802.3ad 4\n"})


def test_physical_interfaces_and_bonds_are_read_and_nothing_virtual(host: HostTree) -> None:
    bonded_host(host)
    round_ = host.round()
    assert HostNetworkReader().read(round_) == (
        (
            NetworkInterface("bond0", 9010, 8020, 1, 3, 2, 4, None),
            NetworkInterface("ens1f0np0", 9000, 8000, 1, 3, 2, 4, 1),
            NetworkInterface("ens1f1np1", 10, 20, 0, 0, 0, 0, 1),
            NetworkInterface("ib0", 18446744073709551615, 1, 0, 0, 0, 0, None),
        )
    )
    assert round_.failures == []


def test_the_hosts_own_network_namespace_is_preferred_to_the_readers(host: HostTree) -> None:
    host.write({"proc/net/dev": f"{HEADER}  eth0: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n", "proc/1/net/dev": NET_DEV})
    devices = [interface.device for interface in HostNetworkReader().read(host.round())]
    assert devices == ["bond0", "ens1f0np0", "ens1f1np1", "ib0"]


def test_interfaces_of_a_host_whose_sysfs_is_not_there_are_told_by_their_names(host: HostTree) -> None:
    """A container without the host's network: /proc/1/net/dev is the host's, /sys/class/net the container's."""
    host.write({"proc/1/net/dev": NET_DEV})
    for name in ("lo", "eth0"):
        host.write({f"sys/class/net/{name}/operstate": "up\n"})
    devices = [interface.device for interface in HostNetworkReader().read(host.round())]
    assert devices == ["bond0", "ens1f0np0", "ens1f1np1", "ib0"]


def test_inner_ports_of_an_adapters_switch_carry_no_data_of_the_host(host: HostTree) -> None:
    line = "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"
    names = ("enp8s0f0np0", "enp8s0f0npf0vf1", "enp8s0f0npf0sf88", "pf0")
    host.write({"proc/net/dev": "".join(f"{name}: {line}" for name in names)})
    for name in names:
        host.write({f"sys/class/net/{name}/device/vendor": "0x15b3\n"})
    devices = [interface.device for interface in HostNetworkReader().read(host.round())]
    assert devices == ["enp8s0f0np0", "pf0"]


def test_an_exporter_that_may_not_look_at_process_1_reads_its_own_namespace(host: HostTree) -> None:
    host.write({"proc/net/dev": f"{HEADER}  eth0: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"})
    host.spoil("proc/1/net/dev")
    round_ = host.round()
    assert [interface.device for interface in HostNetworkReader().read(round_)] == ["eth0"]
    assert round_.failures == []


def test_counters_of_a_reloaded_driver_go_on(host: HostTree) -> None:
    reader = HostNetworkReader()
    host.write({"proc/net/dev": f"{HEADER}  eth0: 5000 0 3 0 0 0 0 0 1 0 0 0 0 0 0 0\n"})
    reader.read(host.round())
    host.write({"proc/net/dev": f"{HEADER}  eth0: 70 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"})
    (interface,) = reader.read(host.round())
    assert (interface.receive_bytes, interface.receive_errors, interface.transmit_bytes) == (5070, 3, 1)


@pytest.mark.parametrize(
    ("names", "is_hardware"),
    [
        ("eth0 ens1f0np0 enP2p1s0 ib0 bond0 usb0 wlan0", True),
        ("lo veth12ab34 docker0 br-1a2b cni0 flannel.1 cali123 virbr0 tun0 tap1 eth0.100", False),
    ],
)
def test_names_that_hardware_gets(names: str, *, is_hardware: bool) -> None:
    assert [name for name in every(names.split()) if is_named_like_hardware(name) is not is_hardware] == []


@given(st.lists(st.integers(0, 2**64 - 1), min_size=16, max_size=16), st.booleans())
def test_lines_round_trip_with_and_without_a_space_after_the_name(numbers: list[int], spaced: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    line = f" eth0:{' ' if spaced else ''}{' '.join(map(str, numbers))}"
    expected = (numbers[0], numbers[8], numbers[2], numbers[10], numbers[3], numbers[11])
    assert parse_interface(line) == ("eth0", expected)
