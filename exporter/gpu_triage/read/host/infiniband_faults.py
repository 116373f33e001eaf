"""Faults of InfiniBand and RoCE ports: link errors, link downs, timeouts, and rates below the expected one.

Most of these counters belong to the performance management agent (PMA): 4 to 32 bits wide, they saturate at their
maximum, and privileged users can reset them to 0 (``perfquery -R``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.files import is_present, names_in, text_of
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.read.host.infiniband_files import PortFiles, parse_words
from gpu_triage.read.metrics.monotone import MonotoneCounters

LINK_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "symbol_error": ("counters/symbol_error",),
    "link_error_recovery": ("counters/link_error_recovery",),
    "receive_error": ("counters/port_rcv_errors",),
    "local_link_integrity_error": ("counters/local_link_integrity_errors",),
    "excessive_buffer_overrun": ("counters/excessive_buffer_overrun_errors",),
}
"""Link errors by event, and the files that count them."""

TIMEOUT: Final = "acknowledgement_timeout"
OTHER_EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "transmit_discard": ("counters/port_xmit_discards",),
    # For mlx5, bnxt_re, irdma and EFA.
    TIMEOUT: (
        "hw_counters/local_ack_timeout_err",
        "hw_counters/to_retransmits",
        "hw_counters/retrans_timeout_events",
    ),
    "out_of_sequence": ("hw_counters/out_of_sequence", "hw_counters/oos_drop_count"),
    "packet_sequence_error": ("hw_counters/packet_seq_err", "hw_counters/seq_err_naks_rcvd"),
    "receiver_not_ready": ("hw_counters/rnr_nak_retry_err", "hw_counters/rnr_naks_rcvd"),
    "out_of_buffer": ("hw_counters/out_of_buffer",),
    # For EFA, bnxt_re and irdma.
    "retransmission": ("hw_counters/retrans_pkts", "hw_counters/RetransSegs", "hw_counters/tcpRetransSegs"),
    "receive_drop": ("hw_counters/rx_drops", "hw_counters/rx_roce_discards", "hw_counters/ip4InDiscards"),
    # For EFA: a peer that does not respond, and a connection that is worse than the others.
    "unresponsive_remote": ("hw_counters/unresponsive_remote_events",),
    "impaired_remote_connection": ("hw_counters/impaired_remote_conn_events",),
    "ecn_marked": (
        "hw_counters/np_ecn_marked_roce_packets",
        "hw_counters/rx_ecn_marked_pkts",
        "hw_counters/RxECNMrkd",
    ),
    "congestion_notification_sent": ("hw_counters/np_cnp_sent", "hw_counters/tx_cnp_pkts", "hw_counters/cnpSent"),
    "congestion_notification_received": (
        "hw_counters/rp_cnp_handled",
        "hw_counters/rx_cnp_pkts",
        "hw_counters/cnpHandled",
    ),
}
"""Other events of port and queue pairs, and their files: packets lost, retransmitted or marked for congestion."""

RECEIVED: Final = (
    ("counters_ext/port_rcv_data_64",),  # kernels before 4.5
    ("counters/port_rcv_data",),
    ("hw_counters/rx_bytes",),  # EFA and bnxt_re
    ("hw_counters/ip4InOctets", "hw_counters/ip6InOctets"),  # irdma
)
SENT: Final = (
    ("counters_ext/port_xmit_data_64",),
    ("counters/port_xmit_data",),
    ("hw_counters/tx_bytes",),
    ("hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets"),
)
"""Traffic counters: the first group with all files present is used, and summed.

A driver without a performance agent (process_mad) has no ``counters`` folder, and counts bytes in ``hw_counters``
rather than words.
"""

EVENTS: Final = (*LINK_ERRORS, *OTHER_EVENTS)

_LINK_DOWNED_FULL: Final = 0xFF
"""``link_downed`` has 8 bits."""

_ON_ETHERNET: Final = "receive_error"
"""The event of LINK_ERRORS that also exists on Ethernet: packets with an invalid checksum."""

_LINK_DOWNS: Final = ("link_downed", "carrier_down_count")
"""Counters of link downs: of the adapter, and for RoCE of the network interface."""

_FOLDERS: Final = ("counters_ext", "counters", "hw_counters")
_PLANNED_ROUNDS: Final = 12
_ENOUGH_PEERS: Final = 3
_ETHERNET: Final = "Ethernet"


class PortFaults(NamedTuple):
    """Monotonic fault counts of one port; None for what its adapter does not count."""

    link_errors: int | None
    link_downs: int | None
    timeouts: int | None
    events: Mapping[str, int]


class PortPlan(NamedTuple):
    """The files to read for a port of this kind of board and link layer ("" if unknown); traffic files are summed."""

    kind: str
    events: Mapping[str, Path]
    link_downs: Path
    received: tuple[Path, ...]
    sent: tuple[Path, ...]


class PortPlans:
    """Caches which files exist for each port: drivers differ, and each check costs a system call."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Path, str], PortPlan] = {}
        self._left: dict[tuple[Path, str], int] = {}

    def of(self, adapter: Path, port: str) -> PortPlan:
        """Return the plan of a port, refreshed every few rounds."""
        key = (adapter, port)
        if self._left.get(key, 0) <= 0:
            self._plans[key], self._left[key] = _plan(adapter, port), _PLANNED_ROUNDS
        self._left[key] -= 1
        return self._plans[key]


class PortFaultCounters:
    """Reads fault counters; continues counting if the adapter's counters are saturated, absent or reset."""

    def __init__(self, files: PortFiles) -> None:
        self._files = files
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()
        self._last: dict[tuple[str, str], dict[str, int]] = {}
        self._was_up: dict[tuple[str, str], bool] = {}
        self._seen_down: dict[tuple[str, str], int] = defaultdict(int)

    def read(self, inquiry: HostInquiry, plan: PortPlan, device: str, port: str, *, up: bool | None) -> PortFaults:
        """Read the fault counters of a port; `up` is None if it is unknown whether it is active."""
        key = (device, port)
        first = key not in self._last
        known = self._last.setdefault(key, {})
        events: dict[str, int] = {}
        for event, path in plan.events.items():
            value = self._files.attribute(inquiry, path, parse_words)
            if value is not None:
                events[event] = self._publish(key, event, value, first=first)
        counted = [known[event] for event in LINK_ERRORS if event in known]
        return PortFaults(
            link_errors=sum(counted) if any(event in events for event in LINK_ERRORS) else None,
            link_downs=self._link_downs(inquiry, plan, key, up=up, first=first),
            timeouts=events.get(TIMEOUT),
            events=events,
        )

    def _link_downs(
        self, inquiry: HostInquiry, plan: PortPlan, key: tuple[str, str], *, up: bool | None, first: bool
    ) -> int | None:
        counter, source = self._files.attribute(inquiry, plan.link_downs, parse_words), plan.link_downs.name
        known = self._last[key]
        before = known.get(source)
        if counter is not None:
            self._publish(key, source, counter, first=first)
        full = counter == _LINK_DOWNED_FULL and known[source] == before
        if up is False and self._was_up.get(key) is True and (counter is None or full):
            self._seen_down[key] += 1
        if up is not None:
            self._was_up[key] = up
        if counter is None and up is None:
            return None
        return sum(known.get(each, 0) for each in _LINK_DOWNS) + self._seen_down[key]

    def _publish(self, key: tuple[str, str], counter: str, value: int, *, first: bool) -> int:
        """Return a counter's value to publish. A counter first read later starts at 0, so that sums do not jump."""
        known = self._last[key]
        start = 0 if first or counter in known else value
        known[counter] = self._counters.published((*key, counter), value, start=start)
        return known[counter]


class PortRate(NamedTuple):
    """Link rate of a port in each direction, None while it is not up; its kind is as in PortPlan."""

    port: tuple[str, str]
    kind: str
    bytes_per_second: float | None


class ExpectedRates:
    """Expected rate of each port: the highest it has had, or the common rate of all others of its kind on this host."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], float] = {}

    def ratios(self, rates: Iterable[PortRate]) -> dict[tuple[str, str], float]:
        """Return each active port's rate as a share of the expected one, at most 1."""
        up = [(rate, speed) for rate in rates if (speed := rate.bytes_per_second) is not None]
        ratios: dict[tuple[str, str], float] = {}
        for rate, speed in up:
            others = [other for peer, other in up if peer.port != rate.port and peer.kind == rate.kind and rate.kind]
            # Fewer peers prove nothing: two slower ports may be intended, such as for storage beside the GPU fabric.
            agreed = others[0] if len(others) >= _ENOUGH_PEERS and len(set(others)) == 1 else 0.0
            highest = self._highest[rate.port] = max(speed, self._highest.get(rate.port, 0.0))
            ratios[rate.port] = speed / max(highest, agreed)
        return ratios


def _plan(adapter: Path, port: str) -> PortPlan:
    directory = adapter / "ports" / port
    board, layer = text_of(adapter / "board_id").strip(), text_of(directory / "link_layer").strip()
    interface = _interface_of_roce(adapter, port) if layer == _ETHERNET else None
    there = {f"{folder}/{name}" for folder in _FOLDERS for name in names_in(directory / folder)}
    found = {
        event: next((name for name in names if name in there), None)
        for event, names in (*LINK_ERRORS.items(), *OTHER_EVENTS.items())
    }
    events = {event: directory / name for event, name in found.items() if name is not None}
    if interface is not None:
        events[_ON_ETHERNET] = interface / "statistics" / "rx_crc_errors"
    in_hardware, of_interface = _LINK_DOWNS
    return PortPlan(
        kind=f"{board} {layer}" if board and layer else "",
        events=events,
        link_downs=directory / "counters" / in_hardware if interface is None else interface / of_interface,
        received=_traffic(directory, there, RECEIVED),
        sent=_traffic(directory, there, SENT),
    )


def _traffic(directory: Path, there: set[str], choices: Iterable[tuple[str, ...]]) -> tuple[Path, ...]:
    names = next((each for each in choices if there.issuperset(each)), ())
    return tuple(directory / name for name in names)


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
