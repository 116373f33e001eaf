"""Traffic, errors, downs, timeouts and rates of ports, from files as kernels write them.

Some adapters have no performance agent and count in hw_counters alone; the firmware of some ports rejects commands.

Names of counters: efa_port_stats_descs of drivers/infiniband/hw/efa/efa_verbs.c (amzn-drivers r2.13 has the last four),
bnxt_re_stat_descs of hw/bnxt_re/hw_counters.c, irdma_hw_stat_names of hw/irdma/verbs.c. ENA answers EINVAL for speed:
ena_get_link_ksettings of amzn-drivers.

Captures of the ConnectX-7 that the fabric manager runs on B200 and B300 baseboards: prometheus/node_exporter #3265
(``counters/VL15_dropped: invalid argument``) and #3434, leptonai/gpud #1164 (``mlx5_cmd_out_err … ACCESS_REG(0x805)
op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)``).
"""

import errno
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.captured_cards import captured
from tests.evidence import steady
from tests.host_tree import HostTree, counter_files

from gpu_triage.options.config import LINE_RATE, Config, LineRate
from gpu_triage.options.values import DEVICE_PATTERN
from gpu_triage.read.host import infiniband, network_interfaces
from gpu_triage.read.host.infiniband import EVENTS, HOST_INFINIBAND, HostInfinibandReader, InfinibandPort
from gpu_triage.read.host.network_interfaces import DEFAULTS, HostNetworkLinkReader, HostNetworkReader, InterfaceLink
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.selection import Selection

PORT = "sys/class/infiniband/mlx5_0/ports/1"
SDR, NO_PMA, FULL = "10 Gb/sec (4X SDR)", "N/A (no PMA)", str(2**32 - 1)
NO_LINK = {"up": False, "rate_bytes_per_second": None, "rate_expected_ratio": None}
NO_TRAFFIC = {"receive_bytes": None, "transmit_bytes": None}
PLAIN = {
    "state": "4: ACTIVE\n",
    "phys_state": "5: LinkUp\n",
    "link_layer": "InfiniBand\n",
    "rate": "400 Gb/sec (4X NDR)\n",
    "counters/port_rcv_data": "1000000\n",
    "counters/port_xmit_data": "20\n",
}
# mlx5, kernel 6.8: what a ConnectX-7 under InfiniBand has. Buffer overruns are full: they have four bits.
CONNECTX_7 = {
    **PLAIN,
    "../../board_id": "MT_0000000838\n",
    "../../hca_type": "MT4129\n",
    **counter_files(
        "counters",
        "VL15_dropped=0 excessive_buffer_overrun_errors=15 link_downed=1 link_error_recovery=2 symbol_error=100 "
        "local_link_integrity_errors=0 port_rcv_errors=14 port_xmit_discards=3",
    ),
    **counter_files(
        "hw_counters",
        "duplicate_request=0 lifespan=12 local_ack_timeout_err=7 out_of_buffer=0 out_of_sequence=4 packet_seq_err=5 "
        "rnr_nak_retry_err=0 np_cnp_sent=9 np_ecn_marked_roce_packets=11 rp_cnp_handled=13 roce_slow_restart=2",
    ),
}


def port(
    host: HostTree, device: str = "mlx5_0", number: int = 1, files: Mapping[str, str] = CONNECTX_7, **changed: str
) -> None:
    """Write a port's files, those of the adapter above it too; `__` in a name of `changed` is a slash."""
    for name, text in {**files, **{name.replace("__", "/"): text for name, text in changed.items()}}.items():
        above = name.startswith("../../")
        place = name[6:] if above else f"ports/{number}/{name}"
        host.write({f"sys/class/infiniband/{device}/{place}": text})


def read(reader: HostInfinibandReader, host: HostTree, *failures: str) -> InfinibandPort:
    """The first port, read with these failures."""
    round_ = host.round()
    found = reader.read(round_)[0]
    assert round_.failures == [*failures]
    return found


UP = InfinibandPort(
    "mlx5_0",
    "1",
    receive_bytes=4_000_000,
    transmit_bytes=80,
    rate_bytes_per_second=5e10,
    up=True,
    physical_state=5,
    rate_expected_ratio=1.0,
    link_downs=0,
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        # Without a link there is no rate.
        *(({"state": state, "rate": SDR}, NO_LINK) for state in ("1: DOWN", "2: INIT", "3: ARMED")),
        # An adapter that does not count is no failure.
        ({"counters/port_rcv_data": NO_PMA, "counters/port_xmit_data": NO_PMA}, NO_TRAFFIC),
        # A full counter of 32 bits is no reading, and those of 64 bits of old kernels come first.
        ({"counters/port_rcv_data": FULL}, {"receive_bytes": None}),
        ({"counters/port_rcv_data": FULL, "counters_ext/port_rcv_data_64": "5"}, {"receive_bytes": 20}),
    ],
)
def test_traffic_is_in_bytes_and_a_rate_in_bytes_a_second(
    host: HostTree, changed: dict[str, str], expected: dict[str, Any]
) -> None:
    port(host, files=PLAIN | {name: f"{text}\n" for name, text in changed.items()})
    assert read(HostInfinibandReader(), host) == replace(UP, **expected)


def test_an_adapter_that_does_not_answer_leaves_no_trace_in_its_counters(host: HostTree) -> None:
    reader, counts = HostInfinibandReader(), []
    for words, failures in ((1_000_000, ()), (2**64 - 1, ("malformed",)), (1_000_005, ())):
        port(host, files=PLAIN, counters__port_rcv_data=f"{words}\n")
        counts.append(read(reader, host, *failures).receive_bytes)
    assert counts == [4_000_000, None, 4_000_020]


def test_each_event_has_its_count_and_the_errors_of_the_link_their_sum(host: HostTree) -> None:
    port(host)
    found = read(HostInfinibandReader(), host)
    assert (found.link_errors, found.link_downs, found.timeouts) == (131, 1, 7)
    assert found.events == {
        "symbol_error": 100,
        "link_error_recovery": 2,
        "receive_error": 14,
        "local_link_integrity_error": 0,
        "excessive_buffer_overrun": 15,
        "transmit_discard": 3,
        "acknowledgement_timeout": 7,
        "out_of_sequence": 4,
        "packet_sequence_error": 5,
        "receiver_not_ready": 0,
        "out_of_buffer": 0,
        "ecn_marked": 11,
        "congestion_notification_sent": 9,
        "congestion_notification_received": 13,
        "slow_restart": 2,
    }
    assert set(found.events) < set(EVENTS)


def test_a_counter_that_fails_for_a_while_makes_no_errors(host: HostTree) -> None:
    port(host)
    host.spoil(f"{PORT}/counters/symbol_error")
    reader = HostInfinibandReader()
    assert read(reader, host, "io_error").link_errors == 31
    (Path(host.sysfs) / "class/infiniband/mlx5_0/ports/1/counters/symbol_error").rmdir()
    port(host)
    assert read(reader, host).link_errors == 31
    port(host, counters__symbol_error="103\n")
    assert read(reader, host).link_errors == 34
    host.spoil(f"{PORT}/counters/symbol_error")
    assert read(reader, host, "io_error").link_errors == 34


@pytest.mark.parametrize(
    ("downs", "counted"),
    [
        # The adapter's eight bits are full: those that were seen are counted on.
        (("254", "255", "255", "255", "255"), [254, 255, 255, 256, 256]),
        # It counts none.
        ((NO_PMA,) * 5, [0, 1, 1, 2, 2]),
    ],
)
def test_downs_are_counted_where_the_adapter_does_not(
    host: HostTree, downs: tuple[str, ...], counted: list[int]
) -> None:
    reader, found = HostInfinibandReader(), []
    for state, told in zip(("4: ACTIVE", "1: DOWN", "4: ACTIVE", "2: INIT", "1: DOWN"), downs, strict=True):
        port(host, state=f"{state}\n", counters__link_downed=f"{told}\n")
        found.append(read(reader, host).link_downs)
    assert found == counted


def netdev(host: HostTree, name: str, adapter: str = "mlx5_0", **changed: str) -> None:
    """Write the files of an adapter's network interface."""
    files = {"carrier_down_count": "6", "carrier_changes": "12", "dev_port": "0", "phys_port_name": "p0", **changed}
    place = f"sys/class/infiniband/{adapter}/device/net/{name}"
    host.write({f"{place}/{file}": f"{text}\n" for file, text in files.items()})


def test_the_downs_of_a_roce_port_are_those_of_its_network_interface(host: HostTree) -> None:
    port(host, link_layer="Ethernet\n", counters__link_downed="0\n")
    netdev(host, "ens1f0np0", **{"statistics/rx_crc_errors": "1000"})
    netdev(host, "ens1f0np0_0", carrier_down_count="99", phys_port_name="pf0vf0")
    found = read(HostInfinibandReader(), host)
    assert (found.link_downs, found.events["receive_error"]) == (6, 1000)


@pytest.mark.parametrize(
    ("driver", "owner", "of_device", "no_rdma"),
    [
        ("mlx5_core", "ens1f0np0", {}, {"ens1f0np0": True}),
        ("mlx5_core", "", {}, {"ens1f0np0": True}),
        # mlx5_ib_alloc_hw_stats of Linux 5.0 to 5.13: "(is_switchdev && port_num) || (!is_switchdev && !port_num)".
        ("mlx5_core", "ens1f0np0", {"../../hw_counters/out_of_buffer": "0\n"}, {"ens1f0np0": False}),
        ("bnxt_en", "ens1f0np0", {}, {"ens1f0np0": True}),
        # mlx4 has counters of the device in any mode.
        ("mlx4_core", "ens1f0np0", {"../../hw_counters/rq_num_lle": "0\n"}, {}),
        ("mlx5_core", "bond0", {}, {}),
    ],
)
def test_which_interface_counts_no_rdma(
    host: HostTree, driver: str, owner: str, of_device: dict[str, str], no_rdma: dict[str, bool]
) -> None:
    port(host, files=PLAIN | of_device, link_layer="Ethernet\n", gid_attrs__ndevs__0=f"{owner}\n")
    netdev(host, "ens1f0np0")
    host.link("sys/class/infiniband/mlx5_0/device/driver", f"../../../bus/pci/drivers/{driver}")
    assert read(HostInfinibandReader(), host).no_rdma == no_rdma


@pytest.mark.parametrize(
    ("no_rdma", "rdma", "own", "said"),
    [
        (1.0, 0.5, 0.5, "ens1f0np0 with mlx5_0:1 receives at 100% of its line rate"),
        (1.0, 0.4, 0.44, None),
        # In switchdev mode, the interface counts RDMA too.
        (0.0, 0.5, 0.5, None),
        (0.0, 0.9, 0.9, "ens1f0np0 receives at 90% of its line rate"),
        (None, 0.5, 0.5, None),
        (None, 0.9, 0.9, "; ".join(f"{each} receives at 90% of its line rate" for each in ("ens1f0np0", "mlx5_0:1"))),
    ],
)
def test_a_port_is_full_of_rdma_and_other_traffic_together(
    no_rdma: float | None, rdma: float, own: float, said: str | None
) -> None:
    device, interface = ("mlx5_0", "1"), ("ens1f0np0",)
    readings = {
        (network_interfaces.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND, interface): 5e10,
        (network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL, interface): 5e10 * own,
        (infiniband.GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND, device): 5e10,
        (infiniband.GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL, device): 5e10 * rdma,
        (infiniband.GPU_HOST_INFINIBAND_INTERFACE_EXCLUDES_RDMA, device + interface): no_rdma,
    }
    assert steady(known(readings)).scarce_network() == said


def test_an_interface_that_shows_up_later_makes_no_downs(host: HostTree) -> None:
    """As when the interface comes back from a container's network namespace."""
    port(host, link_layer="Ethernet\n", counters__link_downed="0\n")
    reader, found = HostInfinibandReader(), []
    for round_number in range(30):
        if round_number == 5:
            netdev(host, "eth1")
        if round_number == 25:
            netdev(host, "eth1", carrier_down_count="7")
        found.append(read(reader, host).link_downs)
    assert (found[0], found[24], found[-1]) == (0, 0, 1)


def test_of_an_adapter_with_two_ports_each_has_its_own_interface(host: HostTree) -> None:
    for number in (1, 2):
        port(host, "mlx4_0", number, link_layer="Ethernet\n")
        downs, place = str(number * 10), str(number - 1)
        netdev(host, f"eth{number}", "mlx4_0", carrier_down_count=downs, dev_port=place)
    assert [each.link_downs for each in HostInfinibandReader().read(host.round())] == [10, 20]


def test_a_virtual_function_has_none_of_its_adapters_errors(host: HostTree) -> None:
    port(host)
    host.link("sys/class/infiniband/mlx5_0/device/physfn", "../physical")
    found = read(HostInfinibandReader(), host)
    assert (found.up, found.link_errors, found.link_downs, found.timeouts, found.events) == (True, None, None, None, {})


def ratios(reader: HostInfinibandReader, host: HostTree) -> list[float | None]:
    return [each.rate_expected_ratio for each in reader.read(host.round())]


def test_a_rate_is_held_against_the_highest_that_was_seen(host: HostTree) -> None:
    reader, found = HostInfinibandReader(), []
    for rate in ("400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)", "400 Gb/sec (4X NDR)"):
        port(host, rate=f"{rate}\n")
        found += ratios(reader, host)
    port(host, state="1: DOWN\n", rate="10 Gb/sec (4X SDR)\n")
    assert [*found, *ratios(reader, host)] == [1.0, 0.25, 1.0, None]


@pytest.mark.parametrize(
    ("slow", "board", "expected"),
    [
        pytest.param((2,), "MT_0000000838\n", [1.0, 1.0, 0.25, 1.0], id="the odd one out of four"),
        pytest.param((1, 2), "MT_0000000838\n", [1.0] * 5, id="two are slow alike"),
        pytest.param((1,), "MT_0000000838\n", [1.0] * 3, id="too few to tell"),
        pytest.param((1,), "MT_0000000223\n", [1.0] * 5, id="another board"),
    ],
)
def test_a_port_is_slow_from_the_start_unless_it_may_be_meant_to_be(
    host: HostTree, slow: tuple[int, ...], board: str, expected: list[float]
) -> None:
    for number in range(len(expected)):
        port(host, f"mlx5_{number}")
        if number in slow:
            port(host, f"mlx5_{number}", rate="100 Gb/sec (2X HDR)\n")
            host.write({f"sys/class/infiniband/mlx5_{number}/board_id": board})
    assert ratios(HostInfinibandReader(), host) == expected


OWN, BOTH = "12", "1212"
"""RoCE versions in a port's table of GIDs: of its link-local address, and of one of a network too."""


@pytest.mark.parametrize(
    ("tables", "missing"),
    [
        ((OWN, BOTH, BOTH, BOTH), [True, False, False, False]),
        ((OWN, BOTH, BOTH), [False] * 3),  # too few to tell
        ((OWN, OWN, BOTH, BOTH, BOTH), [False] * 5),  # others have none either, as under a bridge
        ((OWN, BOTH, BOTH, BOTH, f"{OWN} down"), [True, False, False, False, None]),
        (("", BOTH, BOTH, BOTH), [True, False, False, False]),
        (("none", BOTH, BOTH, BOTH), [None, False, False, False]),  # a kernel without the table
    ],
)
def test_a_port_alone_without_an_address_among_those_of_its_kind(
    host: HostTree, tables: tuple[str, ...], missing: list[bool | None]
) -> None:
    """Kernels answer EINVAL for an empty entry of the table: show_port_gid_attr_gid_type of core/sysfs.c."""
    versions = {"1": "IB/RoCE v1\n", "2": "RoCE v2\n"}
    for number, table in enumerate(tables):
        state, folder = "1: DOWN\n" if "down" in table else "4: ACTIVE\n", f"mlx5_{number}/ports/1/gid_attrs"
        port(host, f"mlx5_{number}", link_layer="Ethernet\n", state=state)
        gids = {f"types/{place}": versions[each] for place, each in enumerate(table) if each in versions}
        files = {} if table == "none" else {"ndevs/0": "ens1\n", **gids}
        host.write({f"sys/class/infiniband/{folder}/{name}": text for name, text in files.items()})
    assert [each.gid_missing for each in HostInfinibandReader().read(host.round())] == missing


def test_a_healthy_port_shows_its_counters_and_a_sick_one_what_is_wrong(host: HostTree) -> None:
    reader = HostInfinibandReader()
    port(host)
    well = reader.read(host.round())
    port(host, phys_state="6: LinkErrorRecovery\n", rate="100 Gb/sec (1X NDR)\n")
    ill = reader.read(host.round())
    shown, rules = Selection(Config()), Selection(Config(metrics_profile="rules"))
    names = {each.spec.name for each in shown.of(HOST_INFINIBAND.render(well))}
    counters = {
        f"{name}_total" for name in ("receive_bytes", "transmit_bytes", "link_errors", "link_downs", "timeouts")
    }
    assert {each.removeprefix("gpu_host_infiniband_") for each in names} == {"rate_bytes_per_second", "up", *counters}
    more = {each.spec.name: each.value for each in shown.of(HOST_INFINIBAND.render(ill)) if each.spec.name not in names}
    assert more == {"gpu_host_infiniband_physical_state": 6.0, "gpu_host_infiniband_rate_expected_ratio": 0.25}
    assert len(tuple(rules.of(HOST_INFINIBAND.render(well)))) <= 5


def test_the_tree_of_a_real_adapter_is_read_without_failures(host: HostTree) -> None:
    for tree in captured("infiniband/h100-mlx5_0.tsv"):
        for line in tree.read_text().splitlines():
            path, _, text = line.partition("\t")
            host.write({f"sys/class/infiniband/{path}": text})
        found = read(HostInfinibandReader(), host)
        assert (found.up, found.physical_state, found.rate_bytes_per_second) == (True, 5, 5e10)
        assert (found.link_errors, found.link_downs, found.timeouts) == (29, 0, 0)


def adapter(rate: str, link_layer: str, counters: str) -> dict[str, str]:
    up = {"state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n", "link_layer": f"{link_layer}\n"}
    return {**up, "rate": f"{rate}\n", **counter_files("hw_counters", counters)}


EFA = adapter(
    "100 Gb/sec (4X EDR)",
    "Unspecified",
    "lifespan=12 tx_bytes=70000000001 tx_pkts=9000000 rx_bytes=60000000003 rx_pkts=8000000 rx_drops=3 send_bytes=500 "
    "rdma_read_bytes=600 retrans_bytes=70000 retrans_pkts=9 retrans_timeout_events=4 unresponsive_remote_events=2 "
    "impaired_remote_conn_events=1",
)
BNXT_RE = adapter(
    "400 Gb/sec (4X NDR)",
    "Ethernet",
    "rx_bytes=4001 tx_bytes=5003 rx_roce_discards=6 to_retransmits=7 rx_roce_good_bytes=3999",
)
IRDMA = adapter(
    "200 Gb/sec (4X HDR)", "Ethernet", "ip4InOctets=4000 ip6InOctets=7 ip4OutOctets=5000 ip6OutOctets=9 RetransSegs=11"
)
EFA_EVENTS = {"acknowledgement_timeout": 4, "retransmission": 9, "receive_drop": 3}
EFA_EVENTS |= {"unresponsive_remote": 2, "impaired_remote_connection": 1}
AGENT = {"counters/port_rcv_data": "1000\n", "counters/port_xmit_data": "2000\n"}
BNXT_EVENTS = {"acknowledgement_timeout": 7, "receive_drop": 6}


def port_of(host: HostTree, files: dict[str, str], config: Config = DEFAULTS) -> InfinibandPort:
    """What is read of an adapter's only port."""
    port(host, "rdmap0", files=files)
    return read(HostInfinibandReader(config), host)


@pytest.mark.parametrize(
    ("files", "received", "sent", "events"),
    [
        (EFA, 60_000_000_003, 70_000_000_001, EFA_EVENTS),
        (BNXT_RE, 4001, 5003, BNXT_EVENTS),
        (IRDMA, 4007, 5009, {"retransmission": 11}),
        # Words of the performance agent are preferred.
        (BNXT_RE | AGENT, 4000, 8000, BNXT_EVENTS),
    ],
)
def test_traffic_is_in_bytes(
    host: HostTree, files: dict[str, str], received: int, sent: int, events: dict[str, int]
) -> None:
    found = port_of(host, files)
    assert (found.receive_bytes, found.transmit_bytes, found.events) == (received, sent, events)
    assert found.timeouts == events.get("acknowledgement_timeout")


@pytest.mark.parametrize("missing", ["hw_counters/rx_bytes", "hw_counters/ip6InOctets"])
def test_an_adapter_that_counts_only_a_part_counts_nothing(host: HostTree, missing: str) -> None:
    files = dict(EFA if missing in EFA else IRDMA)
    del files[missing]
    assert port_of(host, files).receive_bytes is None


def test_the_rate_is_the_drivers_or_the_operators(host: HostTree) -> None:
    """Before r2.13, the driver of EFA said 100 Gb/s of every device."""
    assert port_of(host, EFA).rate_bytes_per_second == 12_500_000_000
    given = Config(network_line_rate=(LineRate("rdmap*", 25_000_000_000),))
    assert port_of(host, EFA, given).rate_bytes_per_second == 25_000_000_000


def ena(host: HostTree, rates: tuple[LineRate, ...], operstate: str = "up") -> tuple[InterfaceLink, ...]:
    """The link of an ENA."""
    host.write({"sys/class/net/ens5/device/vendor": "0x1d0f\n", "sys/class/net/ens5/operstate": f"{operstate}\n"})
    host.write({"sys/class/net/ens5/speed": "-1\n", "sys/class/net/ens5/carrier_changes": "2\n"})

    def opened(path: Path) -> None:
        if path.name == "speed":
            raise OSError(errno.EINVAL, "Invalid argument")

    round_ = host.round(opened=opened)
    reading = HostNetworkLinkReader(Config(network_line_rate=rates)).read(round_)
    assert round_.failures == []
    return reading


def test_the_speed_of_an_interface_that_has_none_can_be_given(host: HostTree) -> None:
    rates = (LineRate("ens*", 12_500_000_000),)
    assert ena(host, ())[0].speed_bytes_per_second is None
    assert ena(host, rates)[0].speed_bytes_per_second == 12_500_000_000
    assert ena(host, rates, "down")[0].speed_bytes_per_second is None


COUNTERS = [name for name in CONNECTX_7 if name.startswith("counters/")]
NAMES = frozenset(name for name in CONNECTX_7 if not name.startswith("../"))


class Firmware:
    """A host of ports, and the commands that their firmware got, by adapter."""

    def __init__(self, host: HostTree, config: Config = DEFAULTS) -> None:
        self.host = host
        self.reader = HostInfinibandReader(config)
        self.rejects: Collection[str] = ()
        self.commands: Counter[str] = Counter()
        for number in range(4):
            port(host, f"mlx5_{number}")

    def read(self, at: float = 0.0) -> tuple[InfinibandPort, ...]:
        """A round at this second."""
        round_ = self.host.round(at, self._opened)
        ports = self.reader.read(round_)
        assert round_.failures == []
        return ports

    def _opened(self, path: Path) -> None:
        parts = path.parts
        if "/".join(parts[-2:]) in NAMES or path.name in NAMES:
            self.commands[parts[parts.index("infiniband") + 1]] += 1
            if path.parent.name in self.rejects or path.name in self.rejects:
                raise OSError(errno.EINVAL, "Invalid argument")


def test_counters_that_the_firmware_rejects_rest_for_an_hour(host: HostTree) -> None:
    firmware = Firmware(host)
    firmware.rejects = {"counters"}
    ports = firmware.read(0.0)
    # Of downs, it has what it saw itself.
    found = {(each.up, each.receive_bytes, each.link_errors, each.link_downs, each.timeouts) for each in ports}
    assert found == {(True, None, None, 0, 7)}
    healthy = len(NAMES) - len(COUNTERS)  # state, rate, hw_counters and their like
    firmware.commands.clear()
    rounds = range(20, 3600, 20)
    for at in rounds:
        firmware.read(float(at))
    assert max(firmware.commands.values()) <= healthy * len(rounds)
    firmware.rejects = ()
    assert [each.receive_bytes for each in firmware.read(3600.0)] == [4_000_000] * 4


def test_one_counter_that_is_rejected_costs_only_itself(host: HostTree) -> None:
    firmware = Firmware(host)
    firmware.rejects = {"symbol_error"}
    (first, *_) = firmware.read(0.0)
    assert (first.receive_bytes, first.link_errors) == (4_000_000, 31)  # of the four others
    firmware.rejects = ()
    assert firmware.read(3595.0)[0].link_errors == 31
    assert firmware.read(3600.0)[0].events["symbol_error"] == 0  # what it counted before does not count


def test_a_port_that_rejects_everything_is_asked_once_an_hour(host: HostTree) -> None:
    firmware = Firmware(host)
    firmware.rejects = {*NAMES, "counters", "hw_counters"}
    firmware.read(0.0)
    firmware.commands.clear()
    ports = firmware.read(5.0)
    assert {each.up for each in ports} == {None}
    assert max(firmware.commands.values(), default=0) <= 1  # link_layer, which the kernel knows itself


@pytest.mark.parametrize(
    ("config", "read"),
    [
        (Config(network_device_exclude=("mlx5_[0-2]",)), {"mlx5_3"}),
        (Config(network_device_include=("mlx5_1", "ens*")), {"mlx5_1"}),
        (Config(network_device_include=("mlx5_*",), network_device_exclude=("mlx5_[13]",)), {"mlx5_0", "mlx5_2"}),
    ],
)
def test_no_file_is_opened_of_a_device_that_is_not_chosen(host: HostTree, config: Config, read: set[str]) -> None:
    firmware = Firmware(host, config)
    assert {each.device for each in firmware.read()} == read
    assert set(firmware.commands) == read


def test_interfaces_are_chosen_likewise(host: HostTree) -> None:
    line = "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"
    host.write({"proc/net/dev": f" eth0: {line} eth1: {line}"})
    for name in ("eth0", "eth1"):
        host.write({f"sys/class/net/{name}/device/vendor": "0x15b3\n", f"sys/class/net/{name}/speed": "10000\n"})
    config = Config(network_device_exclude=("eth1",))
    assert [each.device for each in HostNetworkReader(config).read(host.round()).interfaces] == ["eth0"]
    assert [each.device for each in HostNetworkLinkReader(config).read(host.round())] == ["eth0"]


@pytest.mark.parametrize(
    ("text", "rate"), [("ens5=100G", 12_500_000_000), ("efa*=200G", 25_000_000_000), ("eth0=2500M", 312_500_000)]
)
def test_line_rates_round_trip(text: str, rate: int) -> None:
    parsed = LINE_RATE.parse(text)
    assert parsed == LineRate(text.partition("=")[0], rate)
    assert LINE_RATE.show(parsed) == text


NO_LINE_RATES = ("", "ens5", "ens5=", "ens5=100", "ens5=0G", "=100G", "ens5=100Gb", "ens 5=1G")
NO_DEVICES = ("", "eth 0", "eth0,eth1", "../eth0")


@pytest.mark.parametrize(
    ("parse", "text"),
    [*((LINE_RATE.parse, text) for text in NO_LINE_RATES), *((DEVICE_PATTERN.parse, text) for text in NO_DEVICES)],
)
def test_other_texts_are_no_line_rates_and_no_devices(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        parse(text)
