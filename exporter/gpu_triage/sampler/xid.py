"""Xids of driver and kernel, counted once; in two lanes, as a driver that hangs must not block the kernel log."""

import logging
import math
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from gpu_triage.driver.nvml.events import XidEvents
from gpu_triage.driver.nvml.session import MAX_GPUS, Device
from gpu_triage.errors import HostReadFailed
from gpu_triage.log import fields, repeated
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.options.config import collector_enabled
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.kernel_records import KernelLog
from gpu_triage.read.xid.xid_events import (
    OFF_THE_BUS,
    UNKNOWN,
    CardFound,
    DriverLoaded,
    KernelNews,
    SwitchError,
    UnitFailures,
    XidReport,
    XidSource,
    parse_news,
)
from gpu_triage.read.xid.xid_ledger import (
    WINDOW_SECONDS,
    CountedXid,
    XidCount,
    XidCounts,
    XidLedger,
    XidName,
    add_counts,
    count_switch_error,
)
from gpu_triage.read.xid.xid_metrics import XID, XidReading
from gpu_triage.sampler.lanes import Lane, Step, overdue
from gpu_triage.sampler.outcomes import Context

_MOST_CARDS: Final = 8
"""Maximum number of cards remembered per address."""

LabelsOf = Callable[[str], GpuLabels | None]


@dataclass(frozen=True, slots=True)
class _Claim:
    """A card is at an address, according to NVML or the state directory."""

    uuid: str  # of the card
    device: Device | None  # its handle, in the session that reported it; None from the state directory
    at: float  # monotonic second of the first such report


class XidOwners:
    """Counts Xids by address, and assigns them to the previous card once the address has a new one.

    There are two signs of a replaced card. NVML shows a different UUID at the address: certain, but late. The kernel
    finds a device at the address: immediate, and it may be the same card (removed and rescanned), but a card cannot be
    swapped on a running host without it. Loading or binding the driver is not a sign: it attaches to whatever is there,
    and a card that lost its driver because of an Xid must keep that Xid.
    """

    def __init__(self) -> None:
        self.ledger = XidLedger()  # the present cards, by address
        self._claims: dict[str, list[_Claim]] = {}
        self.found_at: dict[str, float] = {}  # when the kernel last found a card on the bus, by PCI bus ID
        self._of_cards: dict[str, XidCounts] = {}
        self._of_former: dict[str, XidCounts] = {}
        self._left: list[tuple[CountedXid, str | None]] = []
        self._highest: dict[str, dict[XidName, int]] = {}

    def claim(self, device: Device, now: float) -> None:
        """Note that NVML shows this GPU at its address (else its UUID); repeating that has no effect."""
        address = device.pci_bus_id or device.uuid
        claims = self._claims.setdefault(address, [])
        if claims and claims[-1].device is device:
            return
        owner = self._owner(address)
        if owner is not None and owner.uuid == device.uuid:
            claims[-1] = _Claim(device.uuid, device, owner.at)
            return
        if owner is not None:
            # Replaced without a kernel message: everything so far belongs to the old card.
            self._settle(address, now, owner.uuid)
        claims.append(_Claim(device.uuid, device, now))
        del claims[:-_MOST_CARDS]
        for surplus in tuple(self._claims)[:-MAX_GPUS]:
            del self._claims[surplus]

    def remember(self, uuid: str, address: str, now: float) -> None:
        """Note which card was at an address before the exporter started, unless NVML has shown one there since."""
        self._claims.setdefault(address, [_Claim(uuid, None, now)])

    def found(self, card: CardFound) -> None:
        """Note that the kernel found a device at an address: earlier Xids belong to the previous card."""
        since = self.found_at.get(card.gpu, -math.inf)
        before = [claim.uuid for claim in self._claims.get(card.gpu, ()) if since <= claim.at < card.at]
        self._settle(card.gpu, card.at, before[-1] if before else None)
        self.found_at.pop(card.gpu, None)
        self.found_at[card.gpu] = card.at
        for surplus in tuple(self.found_at)[:-MAX_GPUS]:
            del self.found_at[surplus]

    def see(self, report: XidReport) -> bool:
        """Add a report; returns whether it is the first of its incident."""
        if report.uuid is not None:
            owner = self._owner(report.gpu)
            if owner is None or owner.uuid != report.uuid:
                # A late report for a card that has left the address.
                name = XidName(str(OFF_THE_BUS if report.code is None else report.code))
                self._add(self._of_cards, report.uuid, {name: XidCount(1, report.latest)})
                self._left.append((CountedXid(report.gpu, name, report.latest), report.uuid))
                del self._left[:-MAX_GPUS]
                return True
        return self.ledger.see(report)

    def take_counted(self) -> tuple[tuple[CountedXid, str | None], ...]:
        """The incidents counted since the last call, each with the UUID of its card; None if never shown by NVML."""
        left, self._left = self._left, []
        return (*left, *((xid, self._card_at(xid.gpu, xid.at)) for xid in self.ledger.take_counted()))

    def counts(self, labels_of: LabelsOf) -> tuple[dict[GpuLabels, XidCounts], dict[str, XidCounts]]:
        """Xid counts by current labels, or by PCI address for other cards; they never decrease, even if reassigned."""
        gpus: dict[GpuLabels, XidCounts] = {}
        unassigned = {address: dict(counts) for address, counts in self._of_former.items()}
        addresses = {claim.uuid: address for address, claims in self._claims.items() for claim in claims}
        for uuid, counts in self._of_cards.items():
            labels = labels_of(uuid)
            if labels is not None:
                add_counts(gpus.setdefault(labels, {}), counts)
            elif uuid in addresses:
                add_counts(unassigned.setdefault(addresses[uuid], {}), counts)
        for address, present in self.ledger.counts().items():
            labels = self.labels_at(address, labels_of)
            add_counts(unassigned.setdefault(address, {}) if labels is None else gpus.setdefault(labels, {}), present)
        for labels, counts in gpus.items():
            self._keep_highest(labels.uuid, counts)
        for address, counts in unassigned.items():
            self._keep_highest(address, counts)
        return gpus, unassigned

    def are_all(self, uuid: str, counts: XidCounts) -> bool:
        """Whether these are all Xids ever counted for a card: only then can every other one be published as 0."""
        return self._highest.get(uuid, {}).keys() <= counts.keys()

    def labels_at(self, address: str, labels_of: LabelsOf) -> GpuLabels | None:
        """The labels of the card that is at an address now; None if unknown."""
        owner = self._owner(address)
        return None if owner is None else labels_of(owner.uuid)

    def cards(self) -> frozenset[str]:
        """UUIDs of all cards that NVML has shown so far, so that their Xids can be attributed."""
        return frozenset(claim.uuid for claims in self._claims.values() for claim in claims)

    def _owner(self, address: str) -> _Claim | None:
        """The claim of the card that is there now; None if the kernel has found a card there since NVML's report."""
        claims = self._claims.get(address)
        return claims[-1] if claims and claims[-1].at >= self.found_at.get(address, -math.inf) else None

    def _card_at(self, address: str, at: float) -> str | None:
        """UUID of the card that was at an address at a monotonic second; None if NVML did not show it."""
        found_at = self.found_at.get(address, -math.inf)
        if at >= found_at:
            owner = self._owner(address)
            return None if owner is None else owner.uuid
        before = [claim.uuid for claim in self._claims.get(address, ()) if claim.at < found_at]
        return before[-1] if before else None

    def _settle(self, address: str, until: float, uuid: str | None) -> None:
        """Assign an address's Xids so far to a card; if the card is unknown, to the address's former cards."""
        counts = self.ledger.settle(address, until)
        if counts and uuid is None:
            self._add(self._of_former, address, counts)
        elif counts and uuid is not None:
            self._add(self._of_cards, uuid, counts)

    def _keep_highest(self, owner: str, counts: XidCounts) -> None:
        highest = self._highest.pop(owner, {})
        self._highest[owner] = highest
        for name, count in counts.items():
            most = highest[name] = max(count.count, highest.get(name, 0))
            counts[name] = replace(count, count=most)
        for surplus in tuple(self._highest)[: -2 * MAX_GPUS]:
            del self._highest[surplus]

    @staticmethod
    def _add(past: dict[str, XidCounts], owner: str, counts: XidCounts) -> None:
        add_counts(past.setdefault(owner, {}), counts)
        for surplus in tuple(past)[:-MAX_GPUS]:
            del past[surplus]


log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 60.0
_BURST_SECONDS: Final = 60.0
_GAP_SECONDS: Final = 120.0
"""How long the kernel log counts as unreadable after records were lost: covers two scrapes a minute apart."""
_ABSENT: Final = frozenset({"missing", "no_permission"})
"""Acceptable reasons for a kernel log that cannot be read, as in most containers."""


@dataclass(frozen=True, slots=True)
class XidRound:
    """Result of a round of a source."""

    source: XidSource  # which one
    readable: bool  # whether it could be read
    duration_seconds: float  # how long that took
    failures: tuple[str, ...]  # names of what failed
    past_read: bool = False  # whether all records from before the exporter's start have been read
    lost: int = 0  # how many records the kernel overwrote before they could be read
    changed: frozenset[str] = frozenset()  # UUIDs of GPUs that became unavailable, or have a different recovery action


class XidWatch:
    """Listens for Xids and counts them, on the sampler's thread, in rounds in its lanes; a no-op unless `enabled`."""

    def __init__(self, context: Context, report: Callable[[XidRound], None]) -> None:
        machine, config = context.machine, context.config
        self.enabled = collector_enabled(config, XID.name, default=True)
        self._kmsg_lane = context.make_lane("xid-kmsg")
        self.session_lane = context.make_lane("xid-nvml")  # the one that calls NVML
        self.lanes: tuple[Lane, ...] = (self._kmsg_lane, self.session_lane)  # where its rounds run
        self._clock = machine.clock
        self._config = config
        self._report, self._post = report, context.post
        self._kernel = None if machine.kmsg is None else KernelLog(machine.kmsg)
        self._kernel_at = 0.0
        self._gap_until = -math.inf
        self._kernel_refusal: str | None = None
        self._events = XidEvents(machine.clock)
        self.owners = XidOwners()  # which card each Xid belongs to
        self._switches: dict[str, XidCounts] = {}
        self._units = UnitFailures()
        self._walls = WallTimes()
        self.driver_loaded_at: float | None = None  # monotonic second, from the kernel log
        self.unassigned: tuple[str, ...] = ()  # PCI bus IDs of GPUs that had Xids but were never shown by NVML
        self.cards_known = False  # whether NVML has enumerated the GPUs
        self._readable = dict.fromkeys(XidSource, False)
        self._durations = dict.fromkeys(XidSource, 0.0)
        self._past_read = self._kernel is None
        self._last_success_at: Moment | None = None

    @property
    def kernel_readable(self) -> bool:
        """Whether the last read of the kernel log succeeded."""
        return self._readable[XidSource.KMSG]

    def submit_kmsg(self, now: float) -> None:
        """Continue reading the kernel log, unless a read is running."""
        if self.enabled and self._kernel is not None and now >= self._kernel_at and self._kmsg_lane.ready():
            kernel = self._kernel
            self._kmsg_lane.submit(lambda: self._read_kernel(kernel))

    def submit_nvml(self, gpus: Iterable[Device], *, session: bool) -> None:
        """Start processing NVML's events for the GPUs of the current `session`, unless that is running."""
        if not self.enabled:
            return
        devices = tuple(gpus)
        self.cards_known |= session
        if not session:
            self.release_events()
        elif self.session_lane.ready():
            self.session_lane.submit(lambda: self._take_events(devices))

    def release_events(self) -> bool:
        """Release the event set if there is one; returns whether it is released, so that NVML may be shut down."""
        if self.session_lane.busy_since is not None:
            return False
        self._readable[XidSource.NVML] = False
        if self._events.open and self.session_lane.ready():
            self.session_lane.submit(self._events.close)
        return self.session_lane.busy_since is None and not self._events.open

    def close(self) -> None:
        """Release all resources, from any lane; only while its own lanes are idle."""
        self._events.close()
        if self._kernel is not None:
            self._kernel.close()

    def take(self, ended: XidRound) -> None:
        now = self._clock.now()
        self._durations[ended.source] = ended.duration_seconds
        if ended.source is XidSource.KMSG and not ended.readable:
            self._kernel_at = now.monotonic + _RETRY_SECONDS
        if ended.lost:
            if now.monotonic >= self._gap_until:
                log.warning("the kernel log overran: Xids may be among the lost records", extra=fields(lost=ended.lost))
            self._gap_until = now.monotonic + _GAP_SECONDS
        self._readable[ended.source] = ended.readable
        self._past_read |= ended.past_read
        if ended.readable:
            self._last_success_at = now

    def _see(self, report: KernelNews, _now: float) -> None:
        if isinstance(report, DriverLoaded):
            self.driver_loaded_at = report.at
        elif isinstance(report, CardFound):
            self.owners.found(report)
            self._units.forget(report.gpu)
        elif isinstance(report, SwitchError):
            count_switch_error(self._switches, report)
        else:
            if report.site is not None:
                self._units.see(report.gpu, report.site, report.latest)
            if self.owners.see(report):
                self._log(report)

    def reading(
        self, known: Iterable[GpuLabels], labels_of: Callable[[str], GpuLabels | None], now: Moment
    ) -> XidReading:
        """All known Xids, under the current labels of the GPUs on record (`known`, and `labels_of` by UUID)."""
        readable = self._sources(now.monotonic)
        # The kernel log will have the Xids that NVML reports if it is readable, or in its first read.
        kernel_reports = readable[XidSource.KMSG] or not self._past_read
        self.owners.ledger.release(now.monotonic - WINDOW_SECONDS if kernel_reports else math.inf)
        gpus, unassigned = self.owners.counts(labels_of)
        self.unassigned = tuple(unassigned)
        sources = {source.value: is_readable for source, is_readable in readable.items()}
        cards = self.owners.cards() if self._last_success_at is not None and self._past_read else ()
        counted = tuple(
            labels
            for labels in known
            if labels.uuid in cards and self.owners.are_all(labels.uuid, gpus.get(labels, {}))
        )
        suspects = {
            labels: suspect
            for address, suspect in self._units.suspects().items()
            if (labels := self.owners.labels_at(address, labels_of)) is not None
        }
        return XidReading(
            counted,
            {labels: self._published(counts, now) for labels, counts in gpus.items()},
            {address: self._published(counts, now) for address, counts in unassigned.items()},
            sources,
            {switch: self._published(counts, now) for switch, counts in self._switches.items()},
            suspects,
        )

    def health(self, now: float) -> CollectorHealth:
        """Health of the collector: successful while any source is readable; unknown if none ever was."""
        health = CollectorHealth(XID.name, None, None, self._config.sample_fast_seconds, self._last_success_at)
        if self._last_success_at is None:
            return health
        readable, duration_seconds = any(self._sources(now).values()), max(self._durations.values())
        return replace(health, success=readable, duration_seconds=duration_seconds)

    def _log(self, report: XidReport) -> None:
        """Log an incident, but only the first of a burst: drivers print thousands of the same kind."""
        code: int | str = "none, fell off the bus" if report.code is None else report.code
        code = "unknown to NVML" if code == UNKNOWN else code
        at = self._walls.of(report.latest, self._clock.now())
        facts: dict[str, object] = {"gpu": report.gpu, "xid": code, "source": report.source.value, "at": at}
        log.warning("Xid", extra=repeated((report.gpu, code), _BURST_SECONDS, **facts))

    def _sources(self, now: float) -> dict[XidSource, bool]:
        """Whether each source is readable: not if its lane is stuck, nor shortly after it lost records."""
        deadline = self._config.sample_deadline_seconds
        readable = {
            source: self._readable[source] and not overdue(lane.busy_since, now, deadline)
            for source, lane in zip((XidSource.KMSG, XidSource.NVML), self.lanes, strict=True)
        }
        readable[XidSource.KMSG] &= now >= self._gap_until
        return readable

    def _read_kernel(self, kernel: KernelLog) -> None:
        self._kmsg_lane.mark(Step(XID.name))
        began, lost = self._clock.now().monotonic, kernel.lost
        failures: tuple[str, ...] = ()
        refusal: str | None = None
        try:
            for record in kernel.read(began):
                if (report := parse_news(record.message, record.at)) is not None:
                    self._post(partial(self._see, report))
        except HostReadFailed as failed:
            refusal = failed.reason
            failures = () if refusal in _ABSENT else (refusal,)
            if refusal != self._kernel_refusal:
                log.info("no Xids from the kernel log: %s", failed)
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            refusal, failures = "exception", ("exception",)
            log.warning("Xids of the kernel log failed", extra=fields(cause=traceback.format_exc()))
        self._kernel_refusal = refusal
        past_read = refusal is not None or kernel.drained
        took, lost = self._since(began), kernel.lost - lost
        self._report(XidRound(XidSource.KMSG, refusal is None, took, failures, past_read, lost))

    def _take_events(self, devices: tuple[Device, ...]) -> None:
        self.session_lane.mark(Step(XID.name, call=self._events.call))
        began = self._clock.now().monotonic
        failures: list[str] = []
        try:
            self._events.listen(devices)
            for event in self._events.drain():
                # One by one, so that this report is out even if the next call hangs.
                report = XidReport(event.gpu, event.code, XidSource.NVML, event.earliest, event.latest, event.uuid)
                self._post(partial(self._see, report))
        except Exception:  # noqa: BLE001 - as above
            failures.append("exception")
            log.warning("NVML's Xid events failed", extra=fields(cause=traceback.format_exc()))
        failures += self._events.failures
        took, changed = self._since(began), frozenset(self._events.changed)
        self._report(XidRound(XidSource.NVML, self._events.listening, took, tuple(failures), changed=changed))

    def _published(self, counts: XidCounts, now: Moment) -> XidCounts:
        return {name: replace(count, last_at=self._walls.of(count.last_at, now)) for name, count in counts.items()}

    def _since(self, began: float) -> float:
        return self._clock.now().monotonic - began
