"""Traffic, errors, downs, timeouts and rates of ports, from files as kernels write them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.captured_cards import captured
from tests.host_tree import HostTree, counter_files

from gpu_triage.options.config import Config
from gpu_triage.read.host.infiniband import EVENTS, HOST_INFINIBAND, HostInfinibandReader, InfinibandPort
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
        "rnr_nak_retry_err=0 np_cnp_sent=9 np_ecn_marked_roce_packets=11 rp_cnp_handled=13",
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


def test_what_the_adapter_refuses_to_tell_is_absent_and_no_failure(host: HostTree) -> None:
    port(host)
    (host.sysfs / "class/infiniband/mlx5_0/ports/1/counters/symbol_error").unlink()
    # The speed of the loopback interface: EINVAL, as counters that do not apply.
    host.link(f"{PORT}/counters/symbol_error", "/sys/class/net/lo/speed")
    found = read(HostInfinibandReader(), host)
    assert (found.link_errors, "symbol_error" in found.events) == (31, False)


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


def test_the_odd_one_out_of_four_alike_is_slow_from_the_start(host: HostTree) -> None:
    for number in range(4):
        port(host, f"mlx5_{number}", rate="200 Gb/sec (2X NDR)\n" if number == 2 else "400 Gb/sec (4X NDR)\n")
    assert ratios(HostInfinibandReader(), host) == [1.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("slow", "board", "ports"),
    [
        pytest.param((1, 2), "MT_0000000838\n", 5, id="two are slow alike"),
        pytest.param((1,), "MT_0000000838\n", 3, id="too few to tell"),
        pytest.param((1,), "MT_0000000223\n", 5, id="another board"),
    ],
)
def test_a_port_meant_to_be_slower_is_not_slow(host: HostTree, slow: tuple[int, ...], board: str, ports: int) -> None:
    for number in range(ports):
        port(host, f"mlx5_{number}")
        if number in slow:
            port(host, f"mlx5_{number}", rate="100 Gb/sec (2X HDR)\n")
            host.write({f"sys/class/infiniband/mlx5_{number}/board_id": board})
    assert ratios(HostInfinibandReader(), host) == [1.0] * ports


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
