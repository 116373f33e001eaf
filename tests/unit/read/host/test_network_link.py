"""Links of network interfaces, as Documentation/ABI/testing/sysfs-class-net and net/core/net-sysfs.c have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.host_tree import HostTree
from tests.watched_paths import watched

from gpu_triage.machine import Moment
from gpu_triage.read.host.network_interfaces import (
    HostNetworkLinkReader,
    InterfaceLink,
)
from gpu_triage.read.metrics.rounds import HostRound


class LinkRounds:
    """Rounds of one reader at monotonic seconds, and the names of the interfaces whose speed they read."""

    def __init__(self, host: HostTree) -> None:
        self.host = host
        self.reader = HostNetworkLinkReader()
        self.asked: list[str] = []

    def read(self, at: float = 0.0) -> tuple[dict[str, InterfaceLink], list[str]]:
        """The links by name, and the failures of the round."""
        round_ = self.host.round()
        machine = replace(round_.machine, sysfs=watched(round_.machine.sysfs, self._opened))
        round_ = HostRound(machine, Moment(monotonic=at, wall=at))
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


def bonded_host(host: HostTree) -> None:
    """Two ports of a bond, the second down, InfiniBand, and what containers bring."""
    for name in ("lo", "docker0", "veth12ab34", "bond0.100"):
        host.write({f"sys/class/net/{name}/speed": "10000\n"})
    for name, speed in (("ens1f0np0", "100000"), ("ens1f1np1", "-1"), ("ib0", "4294967295")):
        host.write({f"sys/class/net/{name}/device/vendor": "0x15b3\n", f"sys/class/net/{name}/speed": f"{speed}\n"})
        host.write({f"sys/class/net/{name}/carrier_changes": "1\n"})
    host.write({"sys/class/net/bond0/speed": "100000\n", "sys/class/net/bond0/bonding/mode": "802.3ad 4\n"})


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


def test_lost_links_of_a_reloaded_driver_go_on(rounds: LinkRounds) -> None:
    assert [rounds.one(carrier_down_count=downs).carrier_downs for downs in ("4", "0", "1")] == [4, 4, 5]


def test_of_an_interface_that_is_a_port_too_the_port_tells(rounds: LinkRounds) -> None:
    rounds.host.write({"sys/class/net/eth0/device/infiniband/mlx5_0/board_id": "MT_0000000838\n"})
    found = rounds.one(speed="200000", carrier_down_count="3")
    assert found == InterfaceLink("eth0", 25_000_000_000)
