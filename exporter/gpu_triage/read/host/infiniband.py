"""InfiniBand and RoCE ports: traffic, state, rate, link errors, link downs, timeouts and other events.

Sources: https://docs.kernel.org/admin-guide/abi-stable.html (``state``, ``rate``, ``phys_state``, ``counters``) and
drivers/infiniband/core/sysfs.c.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, NamedTuple, TypeVar

from gpu_triage.driver.kernel.files import (
    REJECTED,
    HostInquiry,
    is_present,
    names_in,
    parse_count,
    parsing,
    read_names,
    read_text,
    target_of,
    text_of,
)
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.host.network_interfaces import DEFAULTS, is_chosen, line_rate
from gpu_triage.read.metrics.bounds import MOST_DEVICES, Bound, is_virtual_function
from gpu_triage.read.metrics.contract import HostCollector, HostRound, known
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, no_sample
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rendering import each

T = TypeVar("T")

_LINK_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "symbol_error": ("symbol_error",),
    "link_error_recovery": ("link_error_recovery",),
    "receive_error": ("port_rcv_errors",),
    "local_link_integrity_error": ("local_link_integrity_errors",),
    "excessive_buffer_overrun": ("excessive_buffer_overrun_errors",),
}
"""Link errors by event, and the files that count them.

Most of these counters belong to the performance management agent (PMA): 4 to 32 bits wide, they saturate at their
maximum, and privileged users can reset them to 0 (``perfquery -R``).
"""

_TIMEOUT: Final = "acknowledgement_timeout"
_OTHER_EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "transmit_discard": ("port_xmit_discards",),
    # For mlx5, bnxt_re, irdma and EFA.
    _TIMEOUT: ("local_ack_timeout_err", "to_retransmits", "retrans_timeout_events"),
    "out_of_sequence": ("out_of_sequence", "oos_drop_count"),
    "packet_sequence_error": ("packet_seq_err", "seq_err_naks_rcvd"),
    "receiver_not_ready": ("rnr_nak_retry_err", "rnr_naks_rcvd"),
    "out_of_buffer": ("out_of_buffer",),
    # For EFA, bnxt_re and irdma.
    "retransmission": ("retrans_pkts", "RetransSegs", "tcpRetransSegs"),
    "slow_restart": ("roce_slow_restart",),  # of RoCE senders after a loss
    "receive_drop": ("rx_drops", "rx_roce_discards", "ip4InDiscards"),
    # For EFA: a peer that does not respond, and a connection that is worse than the others.
    "unresponsive_remote": ("unresponsive_remote_events",),
    "impaired_remote_connection": ("impaired_remote_conn_events",),
    "ecn_marked": ("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"),
    "congestion_notification_sent": ("np_cnp_sent", "tx_cnp_pkts", "cnpSent"),
    "congestion_notification_received": ("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"),
}
"""Other events of port and queue pairs, and their files: packets lost, retransmitted or marked for congestion."""

_RECEIVED: Final = (
    ("port_rcv_data_64",),  # kernels before 4.5
    ("port_rcv_data",),
    ("rx_bytes",),  # EFA and bnxt_re
    ("ip4InOctets", "ip6InOctets"),  # irdma
)
_SENT: Final = (("port_xmit_data_64",), ("port_xmit_data",), ("tx_bytes",), ("ip4OutOctets", "ip6OutOctets"))
"""Traffic counters: the first group with all files present is used, and summed.

Without a performance agent (process_mad), there is no ``counters`` folder, and ``hw_counters`` has bytes, not words.
"""

EVENTS: Final = {**_LINK_ERRORS, **_OTHER_EVENTS}

_ON_ETHERNET: Final = "receive_error"  # the link error that also exists on Ethernet: packets with an invalid checksum
_LINK_DOWNS: Final = ("link_downed", "carrier_down_count")
"""Counters of link downs: of the adapter, and for RoCE of the network interface."""

_LINK_DOWNED_FULL: Final = 0xFF  # ``link_downed`` has 8 bits
_TRAFFIC_FULL: Final = 0xFFFFFFFF  # value at which a 32-bit counter of an older adapter saturates until it is reset
_NO_ANSWER: Final = (1 << 64) - 1  # value read from a device that fell off the bus
_BYTES_PER_WORD: Final = 4  # unit of port_rcv_data and port_xmit_data, according to the InfiniBand specification
_BYTES_PER_SECOND_PER_GIGABIT: Final = 1_000_000_000 / 8
_WORDS, _BYTES = "counters", "hw_counters"
_RDMA_APART: Final = frozenset({"mlx5_core", "bnxt_en", "ice"})
"""Drivers with RoCE ports that count RDMA alone, and interfaces that count what the kernel's queues carry.

Sources: ``pma_cnt_ext_assign`` of mlx5, ``bnxt_get_ring_stats``, ``ice_get_stats64``. In switchdev mode, mlx5 counts
all that is on the wire for the interface (``mlx5e_get_stats``), and has hw_counters of the device, which it otherwise
has not (``mlx5_ib_counters_init``).
"""
_ACTIVE: Final = 4
PORT_LINK_UP: Final = 5
"""Physical state of a port with a link."""
_PORT: Final = re.compile(r"[0-9]{1,3}")
_STATE: Final = re.compile(r"([0-9])(?::.*)?")
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")
_LONGEST_BYTES: Final = 4096
_REST_SECONDS: Final = 3600.0
_PLANNED_ROUNDS: Final = 12
_ENOUGH_PEERS: Final = 3
_GIDS_READ: Final = 16  # the kernel fills the lowest empty entry first
_OWN_GIDS: Final = 1  # of version 2: the link-local one that each port has without an address

_port_counter = partial(host_counter, labels=("device", "port"))

GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL = _port_counter(
    "Bytes received by the port; of RoCE only RDMA. Absent if the adapter does not count, and while a 32-bit counter "
    "is full.",
    source="/sys/class/infiniband/*/ports/*/counters/port_rcv_data, else hw_counters/{rx_bytes,ip4InOctets}",
)
GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL = _port_counter(
    "Bytes sent by the port, counted like those received.",
    source="/sys/class/infiniband/*/ports/*/counters/port_xmit_data, else hw_counters/{tx_bytes,ip4OutOctets}",
)
_port_gauge = partial(host_gauge, labels=("device", "port"))

GPU_HOST_INFINIBAND_INTERFACE_EXCLUDES_RDMA = host_gauge(
    "1 if the RoCE port's interface does not count RDMA: the port carries the sum. 0 if it does (switchdev mode). "
    "Absent if unknown (bonds).",
    labels=("device", "port", "interface"),
    source="/sys/class/infiniband/*/{device/net,hw_counters}",
)
GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND = _port_gauge(
    "Link rate per direction: --network.line-rate, else the driver's. Absent while the port is not up.",
    source="/sys/class/infiniband/*/ports/*/rate",
)
GPU_HOST_INFINIBAND_UP = _port_gauge(
    "1 while the port is active, 0 while not; a port without a cable is always 0.",
    source="/sys/class/infiniband/*/ports/*/state",
)
GPU_HOST_INFINIBAND_PHYSICAL_STATE = _port_gauge(
    "Physical state of a port that is not up: {states}. Profile full also has ports that are up.",
    states={
        1: "sleep",
        2: "polling",
        3: "disabled",
        4: "training",
        PORT_LINK_UP: "link up",
        6: "link error recovery",
        7: "test",
    },
    source="/sys/class/infiniband/*/ports/*/phys_state",
    default_samples=lambda sample: sample.value != PORT_LINK_UP,
)
GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO = _port_gauge(
    "Rate of an active port as a share of its highest since the exporter started, or of that of all other active ports "
    "of its board type, if at least three agree. Only below 1, except in profile full.",
    source="/sys/class/infiniband/*/ports/*/rate",
    default_samples=lambda sample: sample.value < 1,
)
GPU_HOST_INFINIBAND_GID_MISSING = _port_gauge(
    "1 while an active RoCE port has no RoCE v2 address (GID) but its link-local one, unlike all others of its board "
    "type, at least three; else 0. Absent for virtual functions.",
    source="/sys/class/infiniband/*/ports/*/gid_attrs/types/*",
    default_samples=lambda sample: bool(sample.value),
)
GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL = _port_counter(
    "Errors of the port's link, such as symbol errors and recoveries. Absent if the adapter counts none, and for "
    "virtual functions. Some counters stop when full until a reset.",
    source="/sys/class/infiniband/*/ports/*/counters/symbol_error and others",
)
GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL = _port_counter(
    "How often the port's link went down: the adapter's count for InfiniBand, the interface's carrier losses for RoCE, "
    "otherwise (or with the adapter's 8 bits full) what the exporter saw. Absent for virtual functions.",
    source="counters/link_downed, device/net/*/carrier_down_count",
)
GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL = _port_counter(
    "RDMA requests not acknowledged in time and resent. Absent if the adapter does not count them, and for virtual "
    "functions.",
    source="/sys/class/infiniband/*/ports/*/hw_counters/local_ack_timeout_err",
)
GPU_HOST_INFINIBAND_EVENTS_TOTAL = host_counter(
    "Errors of the port's link, lost or resent packets, and signs of congestion, by event ({event}). Only in profile "
    "full.",
    labels={"device": ANY, "port": ANY, "event": EVENTS},
    source="/sys/class/infiniband/*/ports/*/counters/*, hw_counters/*",
    default_samples=no_sample,
)


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """Monotonic counters and state of one port of an adapter (``mlx5_0``); None for what it does not report."""

    device: str
    port: str
    receive_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_RECEIVE_BYTES_TOTAL]
    transmit_bytes: Annotated[int | None, GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL]
    rate_bytes_per_second: Annotated[float | None, GPU_HOST_INFINIBAND_RATE_BYTES_PER_SECOND]
    up: Annotated[bool | None, GPU_HOST_INFINIBAND_UP]
    physical_state: Annotated[int | None, GPU_HOST_INFINIBAND_PHYSICAL_STATE] = None
    rate_expected_ratio: Annotated[float | None, GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO] = None
    gid_missing: Annotated[bool | None, GPU_HOST_INFINIBAND_GID_MISSING] = None
    link_errors: Annotated[int | None, GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL] = None
    link_downs: Annotated[int | None, GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL] = None
    timeouts: Annotated[int | None, GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL] = None
    events: Annotated[Mapping[str, int], GPU_HOST_INFINIBAND_EVENTS_TOTAL] = field(default_factory=dict)
    # By the name of the port's interface; empty if unknown.
    no_rdma: Annotated[Mapping[str, bool], GPU_HOST_INFINIBAND_INTERFACE_EXCLUDES_RDMA] = field(default_factory=dict)


class _Files(NamedTuple):
    """Reads port attributes in one round; a file rejected by the device is not read again for an hour.

    For most of these files the kernel sends a command to the adapter's firmware. If the firmware rejects it (the
    ConnectX-7 of a B200 or B300 baseboard, managed by the fabric manager), the read fails with EINVAL, and the driver
    logs an error each time.
    """

    inquiry: HostInquiry
    now: float  # monotonic second of the round
    rest_until: dict[Path, float]  # of all rounds

    def attribute(self, path: Path, parser: Callable[[str], T], *, decides: bool = False) -> T | None:
        """Parse an attribute; None if it is absent, suspended after a rejection, or unreadable.

        The kernel returns an attribute in one read, so text without a final newline is complete; some have none. If the
        file `decides`, a rejection also suspends all files in the same folder.
        """
        if any(self.now < self.rest_until.get(each, self.now) for each in (path, path.parent)):
            return None

        def read() -> T | None:
            try:
                text = read_text(path, limit=_LONGEST_BYTES, may_reject=True)
            except HostReadFailed as failed:
                if failed.reason != REJECTED:
                    raise
                self.rest_until[path.parent if decides else path] = self.now + _REST_SECONDS
                return None
            with parsing(path):
                return None if text is None else parser(text)

        return self.inquiry.ask(read)


class _Plan(NamedTuple):
    """The files to read for a port of this kind of board and link layer ("" if unknown); traffic files are summed."""

    kind: str
    events: Mapping[str, Path]
    link_downs: Path
    received: tuple[Path, ...]
    sent: tuple[Path, ...]
    no_rdma: Mapping[str, bool]  # as in the reading
    gids: int | None  # of RoCE version 2; None if not of a RoCE port


class _PortReader:
    """Reads one port; continues its counters if these are saturated, absent or reset from outside."""

    def __init__(self, adapter: Path, port: str) -> None:
        self.plan = _plan(adapter, port)  # the files that exist: drivers differ, and each check costs a system call
        self.highest = 0.0  # the highest rate that the port has had, in bytes per second
        self._adapter, self._port = adapter, port
        self._rounds = 0
        self._counters = MonotoneCounters()
        self._faults: dict[str, int] = {}
        self._was_up: bool | None = None
        self._seen_down = 0

    def read(self, files: _Files, line_rate: int | None) -> InfinibandPort:
        self._rounds += 1
        if self._rounds % _PLANNED_ROUNDS == 0:
            self.plan = _plan(self._adapter, self._port)
        plan, adapter = self.plan, self._adapter
        directory = adapter / "ports" / self._port
        state = files.attribute(directory / "state", parse_state)
        rate = files.attribute(directory / "rate", parse_rate)
        physical = files.attribute(directory / "phys_state", parse_state)
        up = None if state is None else state == _ACTIVE
        read = InfinibandPort(
            device=adapter.name,
            port=self._port,
            # Read first: if this counter is rejected, all of the port's counters are.
            receive_bytes=self._bytes(files, "received", plan.received),
            transmit_bytes=self._bytes(files, "sent", plan.sent),
            # A port that is down still reports a rate: that of its last link, or its lowest.
            rate_bytes_per_second=(line_rate or rate) if up and rate else None,
            up=up,
            physical_state=physical if physical in GPU_HOST_INFINIBAND_PHYSICAL_STATE.states else None,
            no_rdma=plan.no_rdma,
        )
        # Counters of a virtual function are those of its adapter, or nonexistent.
        return read if is_virtual_function(adapter) else self._with_faults(read, files)

    def _bytes(self, files: _Files, counter: str, paths: tuple[Path, ...]) -> int | None:
        """Traffic in one direction in bytes; None if a counter is unreadable or saturated."""
        folder = paths[0].parent.name if paths else ""
        counts = [files.attribute(path, parse_words, decides=folder == _WORDS) for path in paths]
        counted = [count for count in counts if count is not None]
        if not paths or len(counted) < len(paths) or (folder == _WORDS and counted == [_TRAFFIC_FULL]):
            return None
        # Counters added by the adapter's driver count bytes.
        return self._counters.published(counter, sum(counted)) * (1 if folder == _BYTES else _BYTES_PER_WORD)

    def _with_faults(self, read: InfinibandPort, files: _Files) -> InfinibandPort:
        counts = {event: files.attribute(path, parse_words) for event, path in self.plan.events.items()}
        events = {event: self._publish(event, count) for event, count in known(counts).items()}
        errors = [self._faults[event] for event in _LINK_ERRORS if event in self._faults]
        return replace(
            read,
            link_errors=sum(errors) if any(event in events for event in _LINK_ERRORS) else None,
            link_downs=self._link_downs(files, self.plan.link_downs, read.up),
            timeouts=events.get(_TIMEOUT),
            events=events,
        )

    def _link_downs(self, files: _Files, path: Path, up: bool | None) -> int | None:  # noqa: FBT001 - a state
        counter, before = files.attribute(path, parse_words), self._faults.get(path.name)
        now = None if counter is None else self._publish(path.name, counter)
        if up is False and self._was_up and (counter is None or (counter == _LINK_DOWNED_FULL and now == before)):
            self._seen_down += 1
        self._was_up = self._was_up if up is None else up
        if counter is None and up is None:
            return None
        return sum(self._faults.get(each, 0) for each in _LINK_DOWNS) + self._seen_down

    def _publish(self, counter: str, value: int) -> int:
        """Return a counter's value to publish. A counter first read later starts at 0, so that sums do not jump."""
        start = value if self._rounds > 1 and counter not in self._faults else 0
        self._faults[counter] = self._counters.published(counter, value, start=start)
        return self._faults[counter]


class HostInfinibandReader:
    def __init__(self, config: Config = DEFAULTS) -> None:
        self._config = config
        self._rest_until: dict[Path, float] = {}
        self._readers: dict[tuple[str, str], _PortReader] = {}
        self._bound = Bound(MOST_DEVICES, "too_many_ports")

    def read(self, round_: HostRound) -> tuple[InfinibandPort, ...]:
        """Read the host's InfiniBand and RoCE ports. Source: ``/sys/class/infiniband/*/ports/*``."""
        sysfs = round_.machine.sysfs
        files = _Files(HostInquiry(round_.failures, sysfs), round_.at.monotonic, self._rest_until)
        adapters = sysfs / "class" / "infiniband"
        chosen = [device for device in read_names(adapters) or () if is_chosen(self._config, device)]
        found = [(device, port) for device in chosen for port in _ports(files.inquiry, adapters / device)]
        kept = self._bound.kept(found, round_.failures, lambda each: is_virtual_function(adapters / each[0]))
        read = []
        for device, port in kept:
            reader = self._readers.get((device, port)) or _PortReader(adapters / device, port)
            self._readers[device, port] = reader
            read.append((reader, reader.read(files, line_rate(self._config, device))))
        files.inquiry.finish()
        return _compared(read)


def _compared(ports: Sequence[tuple[_PortReader, InfinibandPort]]) -> tuple[InfinibandPort, ...]:
    """The ports, with the rate of each as a share of the expected one, and whether it alone lacks an address.

    That is the highest it has had, or the common rate of all others of its kind on this host.
    """
    compared = []
    for reader, port in ports:
        ratio, rate = None, port.rate_bytes_per_second
        kind, own_gids = reader.plan.kind, reader.plan.gids
        alike = [each for each in ports if each[0] is not reader and each[0].plan.kind == kind and kind]
        gids = [peer.plan.gids for peer, other in alike if other.up and peer.plan.gids is not None]
        others_have = len(gids) >= _ENOUGH_PEERS and min(gids) > _OWN_GIDS
        missing = own_gids <= _OWN_GIDS and others_have if port.up and own_gids is not None else None
        if rate is not None:
            rates = [other.rate_bytes_per_second for _, other in alike if other.rate_bytes_per_second is not None]
            # Fewer peers prove nothing: two slower ports may be intended, such as for storage beside the GPU fabric.
            agreed = rates[0] if len(rates) >= _ENOUGH_PEERS and len(set(rates)) == 1 else 0.0
            reader.highest = max(rate, reader.highest)
            ratio = rate / max(reader.highest, agreed)
        compared.append(replace(port, rate_expected_ratio=ratio, gid_missing=missing))
    return tuple(compared)


def _ports(inquiry: HostInquiry, adapter: Path) -> list[str]:
    names = inquiry.ask(lambda: read_names(adapter / "ports"), aside=True)
    return [name for name in names or () if _PORT.fullmatch(name)]


def _plan(adapter: Path, port: str) -> _Plan:
    directory = adapter / "ports" / port
    board, layer = text_of(adapter / "board_id").strip(), text_of(directory / "link_layer").strip()
    interface = _interface_of_roce(adapter, port) if layer == "Ethernet" else None
    folders = (directory / folder for folder in (_BYTES, _WORDS, "counters_ext"))
    there = {name: folder / name for folder in folders for name in names_in(folder)}
    events = {
        event: next(there[name] for name in names if name in there)
        for event, names in EVENTS.items()
        if not there.keys().isdisjoint(names)
    }
    in_hardware, of_interface = _LINK_DOWNS
    if interface is not None:
        events[_ON_ETHERNET] = interface / "statistics" / "rx_crc_errors"
    received, sent = (
        tuple(there[name] for name in next((each for each in choices if there.keys() >= set(each)), ()))
        for choices in (_RECEIVED, _SENT)
    )
    types = (text_of(directory / "gid_attrs" / "types" / str(number)) for number in range(_GIDS_READ))
    is_roce = layer == "Ethernet" and not is_virtual_function(adapter) and is_present(directory / "gid_attrs")
    return _Plan(
        kind=f"{board} {layer}" if board and layer else "",
        events=events,
        link_downs=directory / _WORDS / in_hardware if interface is None else interface / of_interface,
        received=received,
        sent=sent,
        no_rdma={} if interface is None else _no_rdma(adapter, directory, interface.name),
        gids=sum(each.strip() == "RoCE v2" for each in types) if is_roce else None,
    )


def _no_rdma(adapter: Path, directory: Path, interface: str) -> Mapping[str, bool]:
    """Whether a RoCE port's interface does not count its RDMA, by name; empty if unknown, or if a bond has the port."""
    owner = text_of(directory / "gid_attrs" / "ndevs" / "0").strip() or interface
    driver = PurePosixPath(target_of(adapter / "device" / "driver")).name
    known = driver in _RDMA_APART and owner == interface
    return {interface: not is_present(adapter / _BYTES)} if known else {}


def _interface_of_roce(adapter: Path, port: str) -> Path | None:
    """The network interface of a RoCE port, which has its link counters; None if not found."""
    interfaces = adapter / "device" / "net"
    found = [name for name in names_in(interfaces) if _is_port(interfaces / name, port)]
    return interfaces / found[0] if len(found) == 1 else None


def _is_port(interface: Path, port: str) -> bool:
    """Whether an interface belongs to this port: an adapter also lists those of other ports and virtual functions."""
    if text_of(interface / "phys_port_name").strip().startswith(("pf", "c")) or is_present(interface / "bonding"):
        return False
    number = text_of(interface / "dev_port").strip()
    return not number.isdecimal() or int(number) == int(port) - 1


def parse_state(text: str) -> int:
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no state of a port")
    return int(match[1])


def parse_rate(text: str) -> float | None:
    """Parse a rate into bytes per second; None for ``N/A``."""
    if text.strip() == "" or text.startswith("N/A"):
        return None
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no rate of a port")
    return float(match[1]) * _BYTES_PER_SECOND_PER_GIGABIT


def parse_words(text: str) -> int | None:
    """Parse a counter; None for ``N/A (no PMA)``, from an adapter without this counter."""
    words = None if text.startswith("N/A") else parse_count(text.strip())
    if words == _NO_ANSWER:
        raise ValueError("all bits are set: the adapter does not answer")
    return words


HOST_INFINIBAND = HostCollector(
    about="InfiniBand and RoCE ports",
    tier=Tier.MEDIUM,
    reader=lambda config: HostInfinibandReader(config).read,
    render=each("device", "port"),
    # Each read of a counter makes the kernel query the adapter's firmware.
    own_lane=True,
)
