"""The GPUs of this host: every one ever seen, which answer, and what became of those that do not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.config import Config
from gpu_triage.hardware.nvml import MAX_GPUS, Device, Inventory
from gpu_triage.sampler.driver import RELEASED
from gpu_triage.sampler.gpu import GpuRecord
from gpu_triage.sampler.lanes import LaneMaker
from gpu_triage.sampler.schedule import Schedule

log = logging.getLogger(__name__)

STALLED: Final = "stalled"
MISSING: Final = "missing"
DRIVER_UNAVAILABLE: Final = "driver_unavailable"

GONE: Final = frozenset({"lost", "reset_required", MISSING, "no_permission", "unknown"})
"""Errors that only a new NVML session can mend."""

_CONFIRMED_SECONDS: Final = 15.0
"""From its first look to its last a GPU that is real is seen for longer; one that is not may be a misread UUID."""
_FORGOTTEN_SECONDS: Final = 60.0
"""How long a GPU that was not is still shown as missing."""


class Fleet:
    """Records of GPUs by identity. Identity is the UUID: indices move when a GPU comes or goes."""

    def __init__(self, config: Config, make_lane: LaneMaker) -> None:
        self._config = config
        self._make_lane = make_lane
        self._records: dict[str, GpuRecord] = {}

    def __iter__(self) -> Iterator[GpuRecord]:
        return iter(tuple(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> GpuRecord | None:
        """The record of a GPU."""
        return self._records.get(key)

    def peers_of(self, record: GpuRecord) -> tuple[Device, ...]:
        """The other GPUs that answer now: asking about a pair asks both."""
        return tuple(r.device for r in self if r is not record and r.device is not None and r.error is None)

    def take(self, inventory: Inventory, now: float, *, opened: bool) -> tuple[str, ...]:
        """Take in what NVML counts; returns the keys of the GPUs that are remembered no longer."""
        present: set[str] = set()
        before = {record.key: (record.labels, record.device is None) for record in self}
        for device in inventory.devices:
            # A second GPU under one UUID is not this GPU; nothing can be published for it.
            if device.uuid not in present:
                present.add(device.uuid)
                self._see(device, now, opened=opened)
        for denied in inventory.denied:
            key = self._key_of_index(denied.index, present)
            present.add(key)
            record = self._records.get(key) or self._add(key, GpuLabels(str(denied.index), ""), now)
            record.last_seen_at = now
            record.device, record.absent_since = None, None
            self.fail(record, denied.reason)
        for record in self:
            if record.key in present:
                continue
            record.device = None
            record.absent_since = now if record.absent_since is None else record.absent_since
            self.fail(record, MISSING)
            self._park(record)
        forgotten = self._forget_phantoms(now) + self._forget_surplus()
        if opened or before != {record.key: (record.labels, record.device is None) for record in self}:
            # Labels name indices and peers: what was read under other ones is read again.
            self._read_all_again()
        return forgotten

    def forget_lent(self, lent: frozenset[str]) -> tuple[str, ...]:
        """Forget those that are gone from the driver because a virtual machine has them; returns their keys.

        Args:
            lent: where on the bus such GPUs are.
        """
        given_away = [record for record in self if record.device is None and record.pci_bus_id in lent]
        for record in given_away:
            log.info("GPU is set aside for a virtual machine", extra={"fields": _fields(record, record.error or "")})
        return self._forget(given_away)

    @property
    def idle(self) -> bool:
        """Whether no GPU is being asked."""
        return all(record.lane.busy_since is None for record in self)

    def find_stalls(self, now: float, deadline_seconds: float, *, no_session: bool) -> None:
        """Note who has not answered in time.

        Args:
            now: monotonic second.
            deadline_seconds: how long an answer may take.
            no_session: whether there is no session in which anybody could answer.
        """
        for record in self:
            since = record.lane.busy_since
            hangs = since is not None and now - since > deadline_seconds and record.device is not None
            if hangs or (no_session and record.error is None):
                self.fail(record, STALLED)

    def fail(self, record: GpuRecord, error: str) -> None:
        """Note why a GPU does not answer, and log it if that is news."""
        if record.error != error:
            # That the driver as a whole is gone is logged once, not once a GPU.
            level = logging.DEBUG if error in {DRIVER_UNAVAILABLE, RELEASED} else logging.ERROR
            log.log(level, "GPU does not answer", extra={"fields": _fields(record, error)})
            record.error = error

    def recover(self, record: GpuRecord) -> None:
        """Note that a GPU answers, and log it if that is news."""
        if record.error is not None:
            log.info("GPU answers again", extra={"fields": _fields(record, record.error)})
            record.error = None
            # Readings of pairs were made without it.
            self._read_all_again()

    def _see(self, device: Device, now: float, *, opened: bool) -> None:
        record = self._records.get(device.uuid)
        labels = GpuLabels(str(device.index), device.uuid)
        if record is None:
            record = self._adopt(labels) or self._add(device.uuid, labels, now)
            log.info(
                "GPU found",
                extra={"fields": {"gpu": device.index, "uuid": device.uuid, "pci": device.pci_bus_id}},
            )
        if record.labels != labels:
            log.warning(
                "GPU has another index now",
                extra={"fields": {"uuid": device.uuid, "was": record.labels.gpu, "is": labels.gpu}},
            )
            record.labels = labels
        if opened or record.device is None:
            # Within a session a handle stays good, and with it the memory of what is not supported.
            record.device = device
        record.absent_since, record.pci_bus_id = None, device.pci_bus_id
        record.last_seen_at, record.parked = now, False

    def _adopt(self, labels: GpuLabels) -> GpuRecord | None:
        """The record of a GPU that was denied so far, now that its UUID is known."""
        nameless = self._records.pop(_nameless_key(int(labels.gpu)), None)
        if nameless is not None:
            nameless.key, nameless.labels = labels.uuid, labels
            self._records[labels.uuid] = nameless
        return nameless

    def _add(self, key: str, labels: GpuLabels, now: float) -> GpuRecord:
        lane, schedule = self._make_lane(f"gpu-{labels.gpu}"), Schedule(self._config)
        record = GpuRecord(key, labels, lane, schedule, first_seen_at=now)
        self._records[key] = record
        return record

    def _key_of_index(self, index: int, present: set[str]) -> str:
        """Whose handle was denied: the GPU last seen at that index, unless it is accounted for."""
        for record in self:
            if record.labels.gpu == str(index) and record.key not in present:
                return record.key
        return _nameless_key(index)

    def _read_all_again(self) -> None:
        for record in self:
            record.schedule.all_due()

    def _park(self, record: GpuRecord) -> None:
        """Give up the thread of a GPU that is gone; it gets another when it comes back."""
        if not record.parked and record.lane.busy_since is None:
            record.lane.close()
            record.lane = self._make_lane(f"gpu-{record.labels.gpu}")
            record.parked = True

    def _forget_phantoms(self, now: float) -> tuple[str, ...]:
        """Forget GPUs that were never confirmed: seen in a few looks only, in a place where another GPU is now."""
        taken = {place for record in self if record.absent_since is None for place in _places(record)}
        phantoms = [
            record
            for record in self
            if record.absent_since is not None
            and now - record.absent_since >= _FORGOTTEN_SECONDS
            and record.last_seen_at - record.first_seen_at < _CONFIRMED_SECONDS
            and _places(record)[0] in taken
        ]
        for record in phantoms:
            log.info("GPU is forgotten, nobody confirmed it", extra={"fields": _fields(record, record.error or "")})
        return self._forget(phantoms)

    def _forget_surplus(self) -> tuple[str, ...]:
        """Bound what is remembered: a driver that invents UUIDs must not grow this process."""
        gone = sorted((r for r in self if r.absent_since is not None), key=lambda r: r.absent_since or 0)
        return self._forget(gone[: max(0, len(self._records) - MAX_GPUS)])

    def _forget(self, records: list[GpuRecord]) -> tuple[str, ...]:
        for record in records:
            record.lane.close()
            del self._records[record.key]
        return tuple(record.key for record in records)


def _places(record: GpuRecord) -> tuple[str, ...]:
    """Where a GPU was last: its address on the bus, where the driver tells it, and its index."""
    index = f"index {record.labels.gpu}"
    return (index,) if record.pci_bus_id is None else (record.pci_bus_id, index)


def _nameless_key(index: int) -> str:
    return f"index:{index}"


def _fields(record: GpuRecord, error: str) -> dict[str, str]:
    return {"gpu": record.labels.gpu, "uuid": record.labels.uuid, "error": error}
