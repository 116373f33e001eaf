"""The GPUs of this host: every one ever seen, which answer, and what became of those that do not."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_triage.config import Config
from gpu_triage.nvml.session import MAX_GPUS, DeniedDevice, Device, Identity
from gpu_triage.sampler.driver import RELEASED, STALLED
from gpu_triage.sampler.gpu import GpuRecord, Reader
from gpu_triage.sampler.lanes import Lane, LaneMaker, overdue
from gpu_triage.sampler.schedule import Schedule
from gpu_triage.subjects.contract import GpuLabels

log = logging.getLogger(__name__)

MISSING: Final = "missing"
BLOCKED_BEHIND: Final = "blocked"
"""Of a GPU whose call waits for another GPU's that hung before it: the driver has locks for the whole process."""
DRIVER_UNAVAILABLE: Final = "driver_unavailable"

GONE: Final = frozenset({"lost", "reset_required", MISSING, "no_permission", "unknown"})
"""Errors that only a new NVML session can mend."""

_CONFIRMED_SECONDS: Final = 15.0
"""From its first look to its last a GPU that is real is seen for longer; one that is not may be a misread UUID."""
_FORGOTTEN_SECONDS: Final = 60.0
"""How long a GPU that was not is still shown as missing."""
_MOST_FORMER: Final = 64
"""GPUs that are forgotten, and whose counters go on all the same when they come back."""


class Fleet:
    """Records of GPUs by identity. Identity is the UUID: indices move when a GPU comes or goes.

    Lanes go by index, so that there are as many as GPUs: one that is gone holds none.
    """

    def __init__(self, config: Config, make_lane: LaneMaker) -> None:
        self._config = config
        self._make_lane = make_lane
        self._records: dict[str, GpuRecord] = {}
        self._former: dict[str, dict[str, Reader]] = {}
        self._lanes: dict[int, Lane] = {}

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

    def count(self, count: int) -> None:
        """Take in how many GPUs NVML counts: nobody needs more lanes."""
        for index in [index for index in self._lanes if index >= count]:
            self._lanes.pop(index).close()

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes in use."""
        return tuple(self._lanes.values())

    def lane_of(self, index: int) -> Lane:
        """The lane of the GPU with this NVML index, whoever that is."""
        if index not in self._lanes:
            self._lanes[index] = self._make_lane(f"gpu-{index}")
        return self._lanes[index]

    def labels_by_index(self) -> Mapping[int, GpuLabels]:
        """Labels of the GPUs that are there, by NVML index."""
        return {int(record.labels.gpu): record.labels for record in self if record.lane is not None}

    def end_session(self) -> None:
        """Take in that all handles are dead: nobody is asked until NVML has said anew who is there."""
        for record in self:
            record.device = None

    def admit(self, answers: Mapping[int, Identity], now: float) -> set[str]:
        """Take in the GPUs that have said who they are; returns their keys.

        Args:
            answers: what was said of each NVML index in this session.
            now: monotonic second.
        """
        before = self._seats()
        present: set[str] = set()
        for index in sorted(answers):
            device = answers[index]
            # A second GPU under one UUID is not this GPU; nothing can be published for it.
            if isinstance(device, Device) and device.uuid not in present:
                present.add(device.uuid)
                self._see(device, now)
        if before != self._seats():
            # Labels name indices and peers: what was read under other ones is read again.
            self._read_all_again()
        return present

    def conclude(self, present: set[str], denied: Iterable[DeniedDevice], now: float) -> tuple[str, ...]:
        """Take in that everybody was asked; returns the keys of the GPUs that are remembered no longer.

        Args:
            present: keys of those who have said who they are.
            denied: those of them that have not, and why.
            now: monotonic second.
        """
        before = self._seats()
        for one in denied:
            key = self._key_of_index(one.index, present)
            present.add(key)
            record = self._records.get(key) or self._add(key, GpuLabels(str(one.index), ""), now)
            record.device, record.lane = None, self.lane_of(one.index)
            record.absent_since, record.last_seen_at = None, now
            self.fail(record, one.reason)
        for record in self:
            if record.key not in present:
                record.device, record.lane = None, None
                record.absent_since = now if record.absent_since is None else record.absent_since
                self.fail(record, MISSING)
        if before != self._seats():
            self._read_all_again()
        return self._forget_phantoms(now) + self._forget_surplus()

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
        return all(lane.busy_since is None for lane in self._lanes.values())

    def hangs(self, index: int, now: float, deadline_seconds: float) -> bool:
        """Whether the GPU with this NVML index cannot be asked: a call does not return, or no thread can be had."""
        lane = self._lanes.get(index)
        return lane is not None and overdue(lane.busy_since or lane.refused_since, now, deadline_seconds)

    def find_stalls(self, now: float, deadline_seconds: float, *, no_session: bool) -> None:
        """Note who has not answered in time.

        Args:
            now: monotonic second.
            deadline_seconds: how long an answer may take.
            no_session: whether there is no session in which anybody could answer.
        """
        hanging = {}
        for record in self:
            asked_in = None if record.device is None else record.lane
            since = None if asked_in is None else asked_in.busy_since
            if since is not None and overdue(since, now, deadline_seconds):
                hanging[record.key] = since
            elif no_session and record.error is None:
                self.fail(record, STALLED)
        # Whoever holds a lock of the driver stops all others with their next call. Who was still asked after that, and
        # answered, hangs for a reason of its own.
        soon = self._config.sample_fast_seconds + deadline_seconds
        first = -math.inf
        for key, since in sorted(hanging.items(), key=lambda each: each[1]):
            behind = since - first <= soon
            first = first if behind else since
            self.fail(self._records[key], BLOCKED_BEHIND if behind else STALLED)

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

    def _see(self, device: Device, now: float) -> None:
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
        if record.device is None:
            # Within a session a handle stays good, and with it the memory of what is not supported.
            record.device = device
        record.lane, record.absent_since, record.pci_bus_id = self.lane_of(device.index), None, device.pci_bus_id
        record.last_seen_at = now

    def _adopt(self, labels: GpuLabels) -> GpuRecord | None:
        """The record of a GPU that was denied so far, now that its UUID is known."""
        nameless = self._records.pop(_nameless_key(int(labels.gpu)), None)
        if nameless is not None:
            nameless.key, nameless.labels = labels.uuid, labels
            self._records[labels.uuid] = nameless
        return nameless

    def _add(self, key: str, labels: GpuLabels, now: float) -> GpuRecord:
        readers = self._former.pop(key, {})
        record = GpuRecord(key, labels, Schedule(self._config), readers=readers, first_seen_at=now)
        self._records[key] = record
        return record

    def _key_of_index(self, index: int, present: set[str]) -> str:
        """Whose handle was denied: the GPU last seen at that index, unless it is accounted for."""
        for record in self:
            if record.labels.gpu == str(index) and record.key not in present:
                return record.key
        return _nameless_key(index)

    def _seats(self) -> dict[str, tuple[GpuLabels, bool]]:
        """Who is there, and under which index."""
        return {record.key: (record.labels, record.device is None) for record in self}

    def _read_all_again(self) -> None:
        for record in self:
            record.schedule.all_due()

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
            del self._records[record.key]
            self._former[record.key] = record.readers
        for surplus in tuple(self._former)[:-_MOST_FORMER]:
            del self._former[surplus]
        return tuple(record.key for record in records)


def _places(record: GpuRecord) -> tuple[str, ...]:
    """Where a GPU was last: its address on the bus, where the driver tells it, and its index."""
    index = f"index {record.labels.gpu}"
    return (index,) if record.pci_bus_id is None else (record.pci_bus_id, index)


def _nameless_key(index: int) -> str:
    return f"index:{index}"


def _fields(record: GpuRecord, error: str) -> dict[str, str]:
    return {"gpu": record.labels.gpu, "uuid": record.labels.uuid, "error": error}
