from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree

from gpu_triage.read.host.infiniband import (
    HostInfinibandReader,
    InfinibandPort,
    parse_rate,
)
from gpu_triage.read.metrics.rounds import HostRound

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


def port(host: HostTree, device: str = "mlx5_0", number: int = 1, **files: str) -> None:
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
    port(host)
    round_ = host.round()
    assert ports(round_) == (UP,)
    assert round_.failures == []


def test_every_port_of_every_adapter_is_there_roce_too(host: HostTree) -> None:
    port(host, "mlx5_1", link_layer="Ethernet\n", rate="100 Gb/sec (4X EDR)\n")
    port(host, "mlx4_0", 1)
    port(host, "mlx4_0", 2)
    found = [(port.device, port.port, port.rate_bytes_per_second) for port in ports(host.round())]
    assert found == [("mlx4_0", "1", 5e10), ("mlx4_0", "2", 5e10), ("mlx5_1", "1", 1.25e10)]


@pytest.mark.parametrize("state", ["1: DOWN\n", "2: INIT\n", "3: ARMED\n"])
def test_a_port_that_is_not_active_is_down_and_has_no_rate(host: HostTree, state: str) -> None:
    port(host, state=state, rate="10 Gb/sec (4X SDR)\n")
    (found,) = ports(host.round())
    assert (found.up, found.rate_bytes_per_second, found.transmit_bytes) == (False, None, 80)


def test_an_adapter_that_does_not_count_is_no_failure(host: HostTree) -> None:
    port(host, counters__port_rcv_data="N/A (no PMA)\n", counters__port_xmit_data="N/A (no PMA)\n")
    round_ = host.round()
    (found,) = ports(round_)
    assert (found.receive_bytes, found.transmit_bytes, found.up) == (None, None, True)
    assert round_.failures == []


def test_a_full_32_bit_counter_is_no_reading(host: HostTree) -> None:
    port(host, counters__port_rcv_data="4294967295\n")
    (found,) = ports(host.round())
    assert (found.receive_bytes, found.transmit_bytes) == (None, 80)


def test_an_adapter_that_does_not_answer_leaves_no_trace_in_its_counters(host: HostTree) -> None:
    reader, counts = HostInfinibandReader(), []
    for words in (1_000_000, 2**64 - 1, 1_000_005):
        port(host, counters__port_rcv_data=f"{words}\n")
        round_ = host.round()
        counts.append(reader.read(round_)[0].receive_bytes)
        assert round_.failures == ([] if counts[-1] else ["malformed"])
    assert counts == [4_000_000, None, 4_000_020]


def test_64_bit_counters_of_old_kernels_come_first(host: HostTree) -> None:
    port(host, counters__port_rcv_data="4294967295\n", counters_ext__port_rcv_data_64="5000000000\n")
    (found,) = ports(host.round())
    assert (found.receive_bytes, found.transmit_bytes) == (20_000_000_000, 80)


def test_what_cannot_be_read_of_a_port_costs_only_itself(host: HostTree) -> None:
    port(host, rate="fast\n")
    host.spoil("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data")
    round_ = host.round()
    spoiled = replace(UP, transmit_bytes=None, rate_bytes_per_second=None, rate_expected_ratio=None)
    assert ports(round_) == (spoiled,)
    assert round_.failures == ["malformed", "io_error"]


@given(st.integers(0, 99_999), st.integers(0, 9), st.sampled_from(["SDR", "NDR", ""]))
def test_rates_round_trip(whole: int, tenth: int, kind: str) -> None:
    text = f"{whole}.{tenth} Gb/sec (4X {kind})\n" if tenth else f"{whole} Gb/sec (4X {kind})\n"
    assert parse_rate(text) == pytest.approx((whole * 10 + tenth) * 12_500_000)
