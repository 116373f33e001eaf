"""Matches Xids to cards: sources report a PCI address, and the card at that address may have been replaced.

There are two signs of a replaced card. NVML shows a different UUID at the address: certain, but late. The kernel finds
a device at the address: immediate, and it may be the same card (removed and rescanned), but a card cannot be swapped
on a running host without it. Loading or binding the driver is not a sign: it attaches to whatever is there, and a card
that lost its driver because of an Xid must keep that Xid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gpu_triage.driver.nvml.session import MAX_GPUS, Device
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.xid_events import OFF_THE_BUS, CardFound, XidReport
from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU, OTHER, CountedXid, XidCount, XidCounts, XidLedger, XidName

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
    """Counts Xids by address, and assigns them to the previous card once the address has a new one."""

    def __init__(self) -> None:
        self._ledger = XidLedger()
        self._claims: dict[str, list[_Claim]] = {}
        self.found_at: dict[str, float] = {}  # when the kernel last found a card on the bus, by PCI bus ID
        self._of_cards: dict[str, XidCounts] = {}
        self._of_former: dict[str, XidCounts] = {}
        self._left: list[tuple[CountedXid, str | None]] = []
        self._highest: dict[str, dict[XidName, int]] = {}

    def claim(self, device: Device, now: float) -> None:
        """Note that NVML shows this GPU at its address; repeated calls with the same device have no effect.

        If its bus ID is unknown, its UUID serves as the address, as in a report.
        """
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
        return self._ledger.see(report)

    def release(self, until: float) -> None:
        self._ledger.release(until)

    def take_counted(self) -> tuple[tuple[CountedXid, str | None], ...]:
        """The incidents counted since the last call, each with the UUID of its card; None if never shown by NVML."""
        left, self._left = self._left, []
        return (*left, *((xid, self._card_at(xid.gpu, xid.at)) for xid in self._ledger.take_counted()))

    def counts(self, labels_of: LabelsOf) -> tuple[dict[GpuLabels, XidCounts], dict[str, XidCounts]]:
        """Xid counts of every GPU, by its current labels, and of cards without labels, by PCI address.

        Counts never decrease, even if an Xid turns out to belong to another card.
        """
        gpus: dict[GpuLabels, XidCounts] = {}
        unassigned = {address: dict(counts) for address, counts in self._of_former.items()}
        addresses = {claim.uuid: address for address, claims in self._claims.items() for claim in claims}
        for uuid, counts in self._of_cards.items():
            labels = labels_of(uuid)
            if labels is not None:
                _merge(gpus.setdefault(labels, {}), counts)
            elif uuid in addresses:
                _merge(unassigned.setdefault(addresses[uuid], {}), counts)
        for address, present in self._ledger.counts().items():
            owner = self._owner(address)
            labels = None if owner is None else labels_of(owner.uuid)
            _merge(unassigned.setdefault(address, {}) if labels is None else gpus.setdefault(labels, {}), present)
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
        counts = self._ledger.settle(address, until)
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
        _merge(past.setdefault(owner, {}), counts)
        for surplus in tuple(past)[:-MAX_GPUS]:
            del past[surplus]


def _merge(known: XidCounts, more: XidCounts) -> None:
    for name, count in more.items():
        kept = name if name in known or len(known) < CODES_PER_GPU else XidName(OTHER)
        had = known.get(kept)
        known[kept] = count if had is None else XidCount(had.count + count.count, max(had.last_at, count.last_at))
