"""Traffic, errors, downs, timeouts and rates of ports, from files as kernels write them."""

from pathlib import Path

import pytest
from tests.captured_cards import captured
from tests.host_tree import HostTree

from gpu_triage.options.config import Config
from gpu_triage.read.host.infiniband import EVENTS, HOST_INFINIBAND, HostInfinibandReader, InfinibandPort
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage.read.selection import Selection

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


def plain_port(host: HostTree, device: str = "mlx5_0", number: int = 1, **files: str) -> None:
    whole = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "link_layer": "InfiniBand\n",
        "rate": "400 Gb/sec (4X NDR)\n",
        "counters/port_rcv_data": "1000000\n",
        "counters/port_xmit_data": "20\n",
    } | {name.replace("__", "/"): text for name, text in files.items()}
    host.write({f"sys/class/infiniband/{device}/ports/{number}/{name}": text for name, text in whole.items()})


def ports(round_: HostRound) -> tuple[InfinibandPort, ...]:
    return HostInfinibandReader().read(round_)


def test_words_become_bytes_and_gigabits_bytes_a_second(host: HostTree) -> None:
    plain_port(host)
    round_ = host.round()
    assert ports(round_) == (UP,)
    assert round_.failures == []


@pytest.mark.parametrize("state", ["1: DOWN\n", "2: INIT\n", "3: ARMED\n"])
def test_a_port_that_is_not_active_is_down_and_has_no_rate(host: HostTree, state: str) -> None:
    plain_port(host, state=state, rate="10 Gb/sec (4X SDR)\n")
    (found,) = ports(host.round())
    assert (found.up, found.rate_bytes_per_second, found.transmit_bytes) == (False, None, 80)


def test_an_adapter_that_does_not_count_is_no_failure(host: HostTree) -> None:
    plain_port(host, counters__port_rcv_data="N/A (no PMA)\n", counters__port_xmit_data="N/A (no PMA)\n")
    round_ = host.round()
    (found,) = ports(round_)
    assert (found.receive_bytes, found.transmit_bytes, found.up) == (None, None, True)
    assert round_.failures == []


def test_a_full_32_bit_counter_is_no_reading(host: HostTree) -> None:
    plain_port(host, counters__port_rcv_data="4294967295\n")
    (found,) = ports(host.round())
    assert (found.receive_bytes, found.transmit_bytes) == (None, 80)


def test_an_adapter_that_does_not_answer_leaves_no_trace_in_its_counters(host: HostTree) -> None:
    reader, counts = HostInfinibandReader(), []
    for words in (1_000_000, 2**64 - 1, 1_000_005):
        plain_port(host, counters__port_rcv_data=f"{words}\n")
        round_ = host.round()
        counts.append(reader.read(round_)[0].receive_bytes)
        assert round_.failures == ([] if counts[-1] else ["malformed"])
    assert counts == [4_000_000, None, 4_000_020]


def test_64_bit_counters_of_old_kernels_come_first(host: HostTree) -> None:
    plain_port(host, counters__port_rcv_data="4294967295\n", counters_ext__port_rcv_data_64="5000000000\n")
    (found,) = ports(host.round())
    assert (found.receive_bytes, found.transmit_bytes) == (20_000_000_000, 80)


PORT = "sys/class/infiniband/mlx5_0/ports/1"

# mlx5, kernel 6.8: what a ConnectX-7 under InfiniBand has. Buffer overruns are full: they have four bits.
CONNECTX_7 = {
    "../../board_id": "MT_0000000838\n",
    "../../hca_type": "MT4129\n",
    "link_layer": "InfiniBand\n",
    "state": "4: ACTIVE\n",
    "phys_state": "5: LinkUp\n",
    "rate": "400 Gb/sec (4X NDR)\n",
    "counters/VL15_dropped": "0\n",
    "counters/excessive_buffer_overrun_errors": "15\n",
    "counters/link_downed": "1\n",
    "counters/link_error_recovery": "2\n",
    "counters/local_link_integrity_errors": "0\n",
    "counters/port_rcv_data": "230539874932483\n",
    "counters/port_rcv_errors": "14\n",
    "counters/port_xmit_data": "230442669431839\n",
    "counters/port_xmit_discards": "3\n",
    "counters/symbol_error": "100\n",
    "hw_counters/duplicate_request": "0\n",
    "hw_counters/lifespan": "12\n",
    "hw_counters/local_ack_timeout_err": "7\n",
    "hw_counters/out_of_buffer": "0\n",
    "hw_counters/out_of_sequence": "4\n",
    "hw_counters/packet_seq_err": "5\n",
    "hw_counters/rnr_nak_retry_err": "0\n",
    "hw_counters/np_cnp_sent": "9\n",
    "hw_counters/np_ecn_marked_roce_packets": "11\n",
    "hw_counters/rp_cnp_handled": "13\n",
}


def port(host: HostTree, device: str = "mlx5_0", number: int = 1, **changed: str) -> None:
    files = CONNECTX_7 | {name.replace("__", "/"): text for name, text in changed.items()}
    folder = f"sys/class/infiniband/{device}/ports/{number}"
    for name, text in files.items():
        above = name.startswith("../../")
        host.write({f"sys/class/infiniband/{device}/{name[6:]}" if above else f"{folder}/{name}": text})


def read(reader: HostInfinibandReader, host: HostTree) -> InfinibandPort:
    return reader.read(host.round())[0]


def test_each_event_has_its_count_and_the_errors_of_the_link_their_sum(host: HostTree) -> None:
    port(host)
    round_ = host.round()
    found = HostInfinibandReader().read(round_)[0]
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
    assert round_.failures == []


def test_a_counter_that_fails_for_a_while_makes_no_errors(host: HostTree) -> None:
    port(host)
    host.spoil(f"{PORT}/counters/symbol_error")
    reader = HostInfinibandReader()
    assert read(reader, host).link_errors == 31
    (Path(host.sysfs) / "class/infiniband/mlx5_0/ports/1/counters/symbol_error").rmdir()
    port(host)
    assert read(reader, host).link_errors == 31
    port(host, counters__symbol_error="103\n")
    assert read(reader, host).link_errors == 34
    host.spoil(f"{PORT}/counters/symbol_error")
    assert read(reader, host).link_errors == 34


def test_downs_are_counted_on_where_the_adapters_eight_bits_are_full(host: HostTree) -> None:
    reader, counts = HostInfinibandReader(), []
    for state, downs in (("4: ACTIVE", 254), ("1: DOWN", 255), ("4: ACTIVE", 255), ("2: INIT", 255), ("1: DOWN", 255)):
        port(host, state=f"{state}\n", counters__link_downed=f"{downs}\n")
        counts.append(read(reader, host).link_downs)
    assert counts == [254, 255, 255, 256, 256]


def test_an_adapter_that_counts_no_downs_has_those_that_were_seen(host: HostTree) -> None:
    reader, counts = HostInfinibandReader(), []
    for state in ("4: ACTIVE", "1: DOWN", "4: ACTIVE", "1: DOWN"):
        port(host, state=f"{state}\n", counters__link_downed="N/A (no PMA)\n")
        counts.append(read(reader, host).link_downs)
    assert counts == [0, 1, 1, 2]


def test_the_downs_of_a_roce_port_are_those_of_its_network_interface(host: HostTree) -> None:
    port(host, link_layer="Ethernet\n", counters__link_downed="0\n")
    net = "sys/class/infiniband/mlx5_0/device/net"
    host.write({f"{net}/ens1f0np0/{name}": f"{text}\n" for name, text in NETDEV.items()})
    representor = NETDEV | {"carrier_down_count": "99", "phys_port_name": "pf0vf0"}
    host.write({f"{net}/ens1f0np0_0/{name}": f"{text}\n" for name, text in representor.items()})
    host.write({f"{net}/ens1f0np0/statistics/rx_crc_errors": "1000\n"})
    found = read(HostInfinibandReader(), host)
    assert (found.link_downs, found.events["receive_error"]) == (6, 1000)


def test_an_interface_that_shows_up_later_makes_no_downs(host: HostTree) -> None:
    """As when the interface comes back from a container's network namespace."""
    port(host, link_layer="Ethernet\n", counters__link_downed="0\n")
    reader, found = HostInfinibandReader(), []
    for round_number in range(30):
        if round_number == 5:
            files = NETDEV.items()
            host.write({f"sys/class/infiniband/mlx5_0/device/net/eth1/{name}": f"{text}\n" for name, text in files})
        if round_number == 25:
            host.write({"sys/class/infiniband/mlx5_0/device/net/eth1/carrier_down_count": "7\n"})
        found.append(read(reader, host).link_downs)
    assert (found[0], found[24], found[-1]) == (0, 0, 1)


NETDEV = {"carrier_down_count": "6", "carrier_changes": "12", "dev_port": "0", "phys_port_name": "p0"}


def test_of_an_adapter_with_two_ports_each_has_its_own_interface(host: HostTree) -> None:
    for number in (1, 2):
        port(host, "mlx4_0", number, link_layer="Ethernet\n")
        interface = NETDEV | {"carrier_down_count": str(number * 10), "dev_port": str(number - 1)}
        host.write({f"sys/class/infiniband/mlx4_0/device/net/eth{number}/{n}": f"{t}\n" for n, t in interface.items()})
    assert [each.link_downs for each in HostInfinibandReader().read(host.round())] == [10, 20]


def test_what_the_adapter_refuses_to_tell_is_absent_and_no_failure(host: HostTree) -> None:
    port(host)
    (host.sysfs / "class/infiniband/mlx5_0/ports/1/counters/symbol_error").unlink()
    # The speed of the loopback interface: EINVAL, as counters that do not apply.
    host.link(f"{PORT}/counters/symbol_error", "/sys/class/net/lo/speed")
    round_ = host.round()
    found = HostInfinibandReader().read(round_)[0]
    assert (found.link_errors, "symbol_error" in found.events) == (31, False)
    assert round_.failures == []


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
    assert {name.removeprefix("gpu_host_infiniband_") for name in names} == {
        "receive_bytes_total",
        "transmit_bytes_total",
        "rate_bytes_per_second",
        "up",
        "link_errors_total",
        "link_downs_total",
        "timeouts_total",
    }
    more = {each.spec.name: each.value for each in shown.of(HOST_INFINIBAND.render(ill)) if each.spec.name not in names}
    assert more == {"gpu_host_infiniband_physical_state": 6.0, "gpu_host_infiniband_rate_expected_ratio": 0.25}
    assert len(tuple(rules.of(HOST_INFINIBAND.render(well)))) <= 5


def test_the_tree_of_a_real_adapter_is_read_without_failures(host: HostTree) -> None:
    for tree in captured("infiniband/h100-mlx5_0.tsv"):
        for line in tree.read_text().splitlines():
            path, _, text = line.partition("\t")
            host.write({f"sys/class/infiniband/{path}": text})
        round_ = host.round()
        found = HostInfinibandReader().read(round_)[0]
        assert (found.up, found.physical_state, found.rate_bytes_per_second) == (True, 5, 5e10)
        assert (found.link_errors, found.link_downs, found.timeouts) == (29, 0, 0)
        assert round_.failures == []
