"""Ports whose firmware rejects each command: the ConnectX-7 that the fabric manager runs on B200 and B300 baseboards.

Captures: prometheus/node_exporter #3265 (``counters/VL15_dropped: invalid argument``) and #3434, leptonai/gpud #1164
(``mlx5_cmd_out_err … ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)``).
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from tests.host_tree import HostTree
from tests.watched_paths import watched

from gpu_triage.machine import Moment
from gpu_triage.options.config import Config, LineRate
from gpu_triage.options.values import DEVICE_PATTERN, LINE_RATE
from gpu_triage.read.host.infiniband import HostInfinibandReader, InfinibandPort
from gpu_triage.read.host.network_interfaces import (
    DEFAULTS,
    HostNetworkLinkReader,
    HostNetworkReader,
    is_chosen,
    line_rate,
)
from gpu_triage.read.metrics.rounds import HostRound

COUNTERS = {
    f"counters/{name}": "7\n"
    for name in (
        "port_rcv_data",
        "port_xmit_data",
        "symbol_error",
        "link_error_recovery",
        "port_rcv_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "port_xmit_discards",
        "link_downed",
    )
}
FILES = {
    "state": "4: ACTIVE\n",
    "phys_state": "5: LinkUp\n",
    "rate": "400 Gb/sec (4X NDR)\n",
    "link_layer": "InfiniBand\n",
    "hw_counters/local_ack_timeout_err": "3\n",
    **COUNTERS,
}
NAMES = frozenset(FILES)


class Firmware:
    """A host of ports, and the commands that their firmware got, by adapter."""

    def __init__(self, host: HostTree, config: Config = DEFAULTS) -> None:
        self.host = host
        self.reader = HostInfinibandReader(config)
        self.rejects: Collection[str] = ()
        self.commands: Counter[str] = Counter()
        for number in range(4):
            folder = f"sys/class/infiniband/mlx5_{number}"
            host.write({f"{folder}/ports/1/{name}": text for name, text in FILES.items()})

    def read(self, at: float = 0.0) -> tuple[InfinibandPort, ...]:
        """A round at this second."""
        round_ = self.host.round()
        machine = replace(round_.machine, sysfs=watched(round_.machine.sysfs, self._opened))
        round_ = HostRound(machine, Moment(monotonic=at, wall=at))
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
    assert [(port.up, port.receive_bytes, port.link_errors, port.link_downs) for port in ports] == [
        (True, None, None, 0)  # what the exporter saw itself
    ] * 4
    assert [port.timeouts for port in ports] == [3] * 4
    healthy = len(FILES) - len(COUNTERS)  # state, rate, hw_counters and their like
    firmware.commands.clear()
    for at in range(20, 3600, 20):
        firmware.read(float(at))
    rounds = len(range(20, 3600, 20))
    assert max(firmware.commands.values()) <= healthy * rounds
    firmware.rejects = ()
    assert [port.receive_bytes for port in firmware.read(3600.0)] == [28] * 4


def test_one_counter_that_is_rejected_costs_only_itself(host: HostTree) -> None:
    firmware = Firmware(host)
    firmware.rejects = {"symbol_error"}
    (first, *_) = firmware.read(0.0)
    assert (first.receive_bytes, first.link_errors) == (28, 28)  # of the four others
    firmware.rejects = ()
    assert firmware.read(3595.0)[0].link_errors == 28
    assert firmware.read(3600.0)[0].events["symbol_error"] == 0  # what it counted before does not count


def test_a_port_that_rejects_everything_is_asked_once_an_hour(host: HostTree) -> None:
    firmware = Firmware(host)
    firmware.rejects = set(FILES) | {"counters", "hw_counters"}
    firmware.read(0.0)
    firmware.commands.clear()
    ports = firmware.read(5.0)
    assert {port.up for port in ports} == {None}
    assert max(firmware.commands.values(), default=0) <= 1  # link_layer, which the kernel knows itself


@pytest.mark.parametrize(
    ("config", "read"),
    [
        (Config(network_device_exclude=("mlx5_[0-2]",)), {"mlx5_3"}),
        (Config(network_device_include=("mlx5_1", "ens*")), {"mlx5_1"}),
        (
            Config(network_device_include=("mlx5_*",), network_device_exclude=("mlx5_1",)),
            {"mlx5_0", "mlx5_2", "mlx5_3"},
        ),
    ],
)
def test_no_file_is_opened_of_a_device_that_is_not_chosen(host: HostTree, config: Config, read: set[str]) -> None:
    firmware = Firmware(host, config)
    assert {port.device for port in firmware.read()} == read
    assert set(firmware.commands) == read


def test_interfaces_are_chosen_likewise(host: HostTree) -> None:
    line = "1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n"
    host.write({"proc/net/dev": f" eth0: {line} eth1: {line}"})
    for name in ("eth0", "eth1"):
        host.write({f"sys/class/net/{name}/device/vendor": "0x15b3\n", f"sys/class/net/{name}/speed": "10000\n"})
    config = Config(network_device_exclude=("eth1",))
    assert [each.device for each in HostNetworkReader(config).read(host.round())] == ["eth0"]
    assert [each.device for each in HostNetworkLinkReader(config).read(host.round())] == ["eth0"]


def test_options_are_the_choice() -> None:
    config = Config(
        network_device_include=("mlx5_*",),
        network_device_exclude=("mlx5_4",),
        network_line_rate=(LineRate("ens5", 12_500_000_000), LineRate("ens*", 1)),
    )
    assert [is_chosen(config, name) for name in ("mlx5_0", "mlx5_4", "ens5")] == [True, False, False]
    assert [line_rate(config, name) for name in ("ens5", "ens6", "mlx5_0")] == [12_500_000_000, 1, None]


@pytest.mark.parametrize(
    ("text", "rate"), [("ens5=100G", 12_500_000_000), ("efa*=200G", 25_000_000_000), ("eth0=2500M", 312_500_000)]
)
def test_line_rates_round_trip(text: str, rate: int) -> None:
    parsed = LINE_RATE.parse(text)
    assert parsed == LineRate(text.partition("=")[0], rate)
    assert LINE_RATE.show(parsed) == text


@pytest.mark.parametrize("text", ["", "ens5", "ens5=", "ens5=100", "ens5=0G", "=100G", "ens5=100Gb", "ens 5=1G"])
def test_other_texts_are_no_line_rates(text: str) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        LINE_RATE.parse(text)


@pytest.mark.parametrize("text", ["", "eth 0", "eth0,eth1", "../eth0"])
def test_other_texts_are_no_devices(text: str) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        DEVICE_PATTERN.parse(text)
