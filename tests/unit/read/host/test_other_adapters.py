"""Adapters without a performance agent, which count in hw_counters alone, and interfaces that do not tell their speed.

Names of counters: efa_port_stats_descs of drivers/infiniband/hw/efa/efa_verbs.c (amzn-drivers r2.13 has the last four),
bnxt_re_stat_descs of hw/bnxt_re/hw_counters.c, irdma_hw_stat_names of hw/irdma/verbs.c. ENA answers EINVAL for speed:
ena_get_link_ksettings of amzn-drivers.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from tests.evidence import evidence_of
from tests.host_tree import HostTree
from tests.watched_paths import watched

from gpu_triage.options.config import Config, LineRate
from gpu_triage.read.host.infiniband import HOST_INFINIBAND, HostInfinibandReader, InfinibandPort
from gpu_triage.read.host.network_interfaces import (
    DEFAULTS,
    HOST_NETWORK,
    HOST_NETWORK_LINK,
    HostNetworkLinkReader,
    InterfaceLink,
    NetworkInterface,
)
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.metrics.rounds import HostRound

EFA = {
    "rate": "100 Gb/sec (4X EDR)\n",
    "link_layer": "Unspecified\n",
    "hw_counters/lifespan": "12\n",
    "hw_counters/tx_bytes": "70000000001\n",
    "hw_counters/tx_pkts": "9000000\n",
    "hw_counters/rx_bytes": "60000000003\n",
    "hw_counters/rx_pkts": "8000000\n",
    "hw_counters/rx_drops": "3\n",
    "hw_counters/send_bytes": "500\n",
    "hw_counters/rdma_read_bytes": "600\n",
    "hw_counters/retrans_bytes": "70000\n",
    "hw_counters/retrans_pkts": "9\n",
    "hw_counters/retrans_timeout_events": "4\n",
    "hw_counters/unresponsive_remote_events": "2\n",
    "hw_counters/impaired_remote_conn_events": "1\n",
}
BNXT_RE = {
    "rate": "400 Gb/sec (4X NDR)\n",
    "link_layer": "Ethernet\n",
    "hw_counters/rx_bytes": "4001\n",
    "hw_counters/tx_bytes": "5003\n",
    "hw_counters/rx_roce_discards": "6\n",
    "hw_counters/to_retransmits": "7\n",
    "hw_counters/rx_roce_good_bytes": "3999\n",
}
IRDMA = {
    "rate": "200 Gb/sec (4X HDR)\n",
    "link_layer": "Ethernet\n",
    "hw_counters/ip4InOctets": "4000\n",
    "hw_counters/ip6InOctets": "7\n",
    "hw_counters/ip4OutOctets": "5000\n",
    "hw_counters/ip6OutOctets": "9\n",
    "hw_counters/RetransSegs": "11\n",
}


def port_of(host: HostTree, files: dict[str, str], config: Config = DEFAULTS) -> InfinibandPort:
    """What is read of an adapter's only port."""
    up = {"state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n"}
    host.write({f"sys/class/infiniband/rdmap0/ports/1/{name}": text for name, text in (up | files).items()})
    round_ = host.round()
    (port,) = HostInfinibandReader(config).read(round_)
    assert round_.failures == []
    return port


@pytest.mark.parametrize(
    ("files", "received", "sent", "events"),
    [
        (
            EFA,
            60_000_000_003,
            70_000_000_001,
            {
                "acknowledgement_timeout": 4,
                "retransmission": 9,
                "receive_drop": 3,
                "unresponsive_remote": 2,
                "impaired_remote_connection": 1,
            },
        ),
        (BNXT_RE, 4001, 5003, {"acknowledgement_timeout": 7, "receive_drop": 6}),
        (IRDMA, 4007, 5009, {"retransmission": 11}),
    ],
    ids=["efa", "bnxt_re", "irdma"],
)
def test_traffic_is_what_the_driver_counts_in_bytes(
    host: HostTree, files: dict[str, str], received: int, sent: int, events: dict[str, int]
) -> None:
    port = port_of(host, files)
    assert (port.receive_bytes, port.transmit_bytes) == (received, sent)
    assert port.events == events
    assert port.timeouts == events.get("acknowledgement_timeout")


def test_words_of_the_performance_agent_are_preferred(host: HostTree) -> None:
    files = BNXT_RE | {"counters/port_rcv_data": "1000\n", "counters/port_xmit_data": "2000\n"}
    port = port_of(host, files)
    assert (port.receive_bytes, port.transmit_bytes) == (4000, 8000)


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

    round_ = host.round()
    machine = replace(round_.machine, sysfs=watched(round_.machine.sysfs, opened))
    reading = HostNetworkLinkReader(Config(network_line_rate=rates)).read(
        HostRound(machine, round_.at, round_.failures)
    )
    assert round_.failures == []
    return reading


def test_the_speed_of_an_interface_that_has_none_can_be_given(host: HostTree) -> None:
    rates = (LineRate("ens*", 12_500_000_000),)
    assert ena(host, ())[0].speed_bytes_per_second is None
    assert ena(host, rates)[0].speed_bytes_per_second == 12_500_000_000
    assert ena(host, rates, "down")[0].speed_bytes_per_second is None


def test_full_efa_and_ena_are_scarce_network(host: HostTree) -> None:
    rates = (LineRate("ens5", 12_500_000_000),)
    link, port = ena(host, rates), port_of(host, EFA)

    def samples(share: float, seconds: float) -> list[Sample]:
        carried = round(12_500_000_000 * share * seconds)
        interface = NetworkInterface("ens5", carried, 0, 0, 0, 0, 0, None)
        return [
            *HOST_INFINIBAND.render((replace(port, receive_bytes=carried),)),
            *HOST_NETWORK.render((interface,)),
            *HOST_NETWORK_LINK.render(link),
        ]

    full = evidence_of(*((at, samples(0.9, at)) for at in (0.0, 30.0)))
    assert full.scarce_network() == ("ens5 receives at 90% of its line rate; rdmap0:1 receives at 90% of its line rate")
    idle = evidence_of(*((at, samples(0.5, at)) for at in (0.0, 30.0)))
    assert idle.scarce_network() is None
