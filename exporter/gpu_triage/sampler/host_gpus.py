"""The GPUs of this host: every GPU ever seen, how they are identified, and why some do not respond."""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gpu_triage.driver.nvml.session import MAX_GPUS, CurrentCall, DeniedDevice, Device, Identity, identify
from gpu_triage.errors import DriverUnavailable
from gpu_triage.log import fields
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import DRIVER
from gpu_triage.read.incidents.ledger import Board
from gpu_triage.read.metrics.contract import GpuLabels, GpuRound, PresentGpus
from gpu_triage.sampler.driver import RELEASED, STALLED
from gpu_triage.sampler.lanes import Lane, LaneMaker, Post, Step, overdue
from gpu_triage.sampler.schedule import Schedule

log = logging.getLogger(__name__)

MISSING: Final = "missing"
BLOCKED_BEHIND: Final = "blocked"
"""Error of a GPU blocked behind another GPU's hung call: the driver has process-wide locks."""
DRIVER_UNAVAILABLE: Final = "driver_unavailable"

GONE: Final = frozenset({"lost", "reset_required", MISSING, "no_permission", "unknown"})
"""Errors that only a new NVML session can clear."""

_CONFIRMED_SECONDS: Final = 15.0
"""A real GPU stays visible for longer than this; a shorter-lived one may be a misread UUID."""
_UNCONFIRMED_KEPT_SECONDS: Final = 60.0
"""How long such an unconfirmed GPU is still reported as missing."""
_MOST_FORGOTTEN: Final = 64
"""Maximum number of forgotten GPUs that keep their readers, so that counters continue if the GPU comes back."""

Reader = Callable[[GpuRound], Any]


@dataclass(eq=False, slots=True)
class GpuRecord:
    """A GPU that this process has seen at some point. Only the sampler's thread changes it."""

    key: str  # its UUID, or a substitute if the UUID is unknown
    labels: GpuLabels  # its index and UUID as published
    schedule: Schedule  # when its collectors are due
    lane: Lane | None = None  # where its rounds run; None while it is missing
    device: Device | None = None  # its handle in the current session; None if it is not enumerated
    session_at: float = 0.0  # monotonic second since which it has the handle
    error: str | None = None  # why it does not respond; None if it does
    readers: dict[str, Reader] = field(default_factory=dict)  # its collectors' readers by name, with running totals
    absent_since: float | None = None  # monotonic second at which it was last found missing; None while it is present
    pci_bus_id: str | None = None  # its last known PCI address, in the form sysfs uses; None if unknown
    first_seen_at: float = 0.0  # monotonic second of the first driver poll that found it
    last_seen_at: float = 0.0  # monotonic second of the latest driver poll that found it
    hurried_until: float = 0.0  # monotonic second before which a reported change does not make its rounds due again
    loss_noted_at: float | None = None  # monotonic second at which the ledger last got its loss; None if it is not lost
    reset_noted_at: float | None = None  # monotonic second of its last reset in the ledger
    ecc_read_at: float = -math.inf  # monotonic second of the reading of ECC errors that the ledger got last

    def responds(self, now: float, deadline_seconds: float) -> bool | None:
        """Whether it responds; None if unknown because its lane has lacked a thread for too long."""
        if self.error is not None:
            return False
        lacks_thread = self.lane is not None and overdue(self.lane.refused_since, now, deadline_seconds)
        return None if lacks_thread else True


@dataclass(frozen=True, slots=True)
class Places:
    """What is known of slots without NVML, which names neither UUID nor PCI address of a GPU that was lost before."""

    on_bus: frozenset[str]  # PCI addresses of the GPUs that the driver should show
    boards: Mapping[str, Board]  # seen in this boot, by PCI address; from the state directory

    def of(self, unnamed: Collection[int], named: Mapping[int, str]) -> Mapping[int, str]:
        """Return the PCI addresses of the `unnamed` NVML indices; empty if they are not certain.

        `named` has the addresses of the others. Those that are left belong to the unnamed ones if there are as many: on
        the bus, or else with boards that have left the bus. NVML numbers GPUs by address.
        """
        for known in (self.on_bus, self.on_bus | self.boards.keys()):
            left = sorted(known - set(named.values()))
            if len(left) == len(unnamed):
                found = dict(zip(sorted(unnamed), left, strict=True))
                addresses = [address for _, address in sorted({**named, **found}.items())]
                return found if len(found) == 1 or addresses == sorted(addresses) else {}
        return {}


class HostGpus:
    """GPU records by UUID, as indices shift; lanes are assigned by index, so a missing GPU has none."""

    def __init__(self, config: Config, make_lane: LaneMaker) -> None:
        self._config = config
        self._deadline_seconds = config.sample_deadline_seconds
        self._make_lane = make_lane
        self._records: dict[str, GpuRecord] = {}
        self._forgotten_readers: dict[str, dict[str, Reader]] = {}
        self._lanes: dict[int, Lane] = {}

    def __iter__(self) -> Iterator[GpuRecord]:
        return iter(tuple(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> GpuRecord | None:
        return self._records.get(key)

    def peers_of(self, record: GpuRecord) -> tuple[Device, ...]:
        """The other GPUs that respond: a query about a pair calls into both."""
        return tuple(r.device for r in self if r is not record and r.device is not None and r.error is None)

    def count(self, count: int) -> None:
        """Apply the number of GPUs in NVML: lanes beyond it are closed."""
        for index in [index for index in self._lanes if index >= count]:
            self._lanes.pop(index).close()

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(self._lanes.values())

    def lane_of(self, index: int) -> Lane:
        """The lane for an NVML index, whichever GPU has that index."""
        if index not in self._lanes:
            self._lanes[index] = self._make_lane(f"gpu-{index}")
        return self._lanes[index]

    def present(self, count: int | None) -> PresentGpus:
        """The GPUs that are present; `count` is how many NVML has, None if that is unknown."""
        present = {record.labels.uuid: record.labels.gpu for record in self if record.lane is not None}
        return PresentGpus(present, complete=len(present) == count)

    def end_session(self) -> None:
        """Drop all handles, which are now invalid: no GPU is queried until NVML has enumerated them again."""
        for record in self:
            record.device = None

    def admit(self, answers: Mapping[int, Identity], now: float) -> set[str]:
        """Apply the results so far of each NVML index in this session; returns the keys of the identified GPUs."""
        before = self._present_labels()
        present: set[str] = set()
        for index in sorted(answers):
            device = answers[index]
            # A second GPU with the same UUID is a different GPU; nothing can be published for it.
            if isinstance(device, Device) and device.uuid not in present:
                self._apply_identity(device, present, now)
                present.add(device.uuid)
        if before != self._present_labels():
            # Labels contain indices and peers, so whatever was read under the old ones must be reread.
            self._read_all_again()
        return present

    def conclude(self, present: set[str], denied: Collection[DeniedDevice], places: Places, now: float) -> None:
        """Apply an enumeration: keys identified, and indices `denied`."""
        before = self._present_labels()
        named = {int(record.labels.gpu): record.pci_bus_id for record in self if record.key in present}
        addresses = places.of(
            [gpu.index for gpu in denied], {index: address for index, address in named.items() if address is not None}
        )
        for gpu in denied:
            address = addresses.get(gpu.index)
            board = places.boards.get(address or "")
            record = self._record_of(gpu.index, address, "" if board is None else board.uuid, present, now)
            present.add(record.key)
            record.device, record.lane = None, self.lane_of(gpu.index)
            record.absent_since, record.last_seen_at = None, now
            self.fail(record, gpu.reason)
        for record in self:
            if record.key not in present:
                record.device, record.lane = None, None
                record.absent_since = now if record.absent_since is None else record.absent_since
                self.fail(record, MISSING)
        if before != self._present_labels():
            self._read_all_again()
        self._forget_replaced(now)
        self._forget_surplus()

    def remember(self, boards: Iterable[Board], now: float) -> None:
        """Add the GPUs seen earlier in this boot that the driver no longer counts, unless the slot has another one."""
        slots = {record.pci_bus_id for record in self}
        for board in boards:
            if board.uuid not in self._records and board.slot not in slots:
                record = self._add(board.uuid, GpuLabels(board.gpu, board.uuid), now)
                record.pci_bus_id, record.absent_since = board.slot, now
                self.fail(record, MISSING)

    def forget_passed_through(self, passed_through: frozenset[str]) -> None:
        """Forget GPUs missing from the driver because a virtual machine has these PCI bus IDs."""
        for record in self:
            if record.device is None and record.pci_bus_id in passed_through:
                log.info("GPU is set aside for a virtual machine", extra=_facts(record, record.error or ""))
                self._forget(record)

    def hangs(self, index: int, now: float) -> bool:
        """Whether the GPU at this NVML index cannot be queried: a call hangs, or no thread can be started."""
        lane = self._lanes.get(index)
        return lane is not None and overdue(lane.busy_since or lane.refused_since, now, self._deadline_seconds)

    def find_stalls(self, now: float, *, no_session: bool) -> None:
        """Mark the GPUs with a call past the deadline; with `no_session`, all GPUs, because none can respond."""
        hanging = {}
        for record in self:
            lane = None if record.device is None else record.lane
            since = None if lane is None else lane.busy_since
            if since is not None and overdue(since, now, self._deadline_seconds):
                hanging[record.key] = since
            elif no_session and record.error is None:
                self.fail(record, STALLED)
        # A GPU that hangs while holding a driver lock blocks each of the others at its next call. A GPU that still
        # responded after that must be hanging for a reason of its own.
        soon = self._config.sample_fast_seconds + self._deadline_seconds
        first = -math.inf
        for key, since in sorted(hanging.items(), key=lambda each: each[1]):
            behind = since - first <= soon
            first = first if behind else since
            self.fail(self._records[key], BLOCKED_BEHIND if behind else STALLED)

    def fail(self, record: GpuRecord, error: str) -> None:
        """Set why a GPU does not respond, and log it if that is a change."""
        if record.error != error:
            # A driver-wide failure is logged once, not once per GPU.
            level = logging.DEBUG if error in {DRIVER_UNAVAILABLE, RELEASED} else logging.ERROR
            log.log(level, "GPU does not answer", extra=_facts(record, error))
            record.error = error

    def recover(self, record: GpuRecord) -> None:
        """Mark a GPU as responding, and log it if that is a change."""
        if record.error is not None:
            log.info("GPU answers again", extra=_facts(record, record.error))
            record.error = None
            # Pairwise readings were made without this GPU.
            self._read_all_again()

    def _apply_identity(self, device: Device, present: Collection[str], now: float) -> None:
        if device.uuid not in self._records:
            log.info("GPU found", extra=fields(gpu=device.index, uuid=device.uuid, pci=device.pci_bus_id))
        record = self._record_of(device.index, device.pci_bus_id, device.uuid, present, now)
        if record.device is None:
            # Handles stay valid within a session; keeping this one also keeps its list of unsupported queries.
            record.device, record.session_at = device, now
        record.lane, record.absent_since, record.last_seen_at = self.lane_of(device.index), None, now

    def _add(self, key: str, labels: GpuLabels, now: float) -> GpuRecord:
        readers = self._forgotten_readers.pop(key, {})
        record = GpuRecord(key, labels, Schedule(self._config), readers=readers, first_seen_at=now)
        self._records[key] = record
        return record

    def _record_of(self, index: int, address: str | None, uuid: str, present: Collection[str], now: float) -> GpuRecord:
        """The record of a GPU that is not `present` yet: by UUID, address, or by index if an address is unknown."""
        may = [r for r in self if r.key not in present and (not uuid or r.labels.uuid in ("", uuid))]
        record = (
            next((each for each in may if uuid and each.labels.uuid == uuid), None)
            or next((each for each in may if address is not None and each.pci_bus_id == address), None)
            or next(
                (each for each in may if None in (address, each.pci_bus_id) and each.labels.gpu == str(index)), None
            )
            or self._add(uuid or address or f"index:{index}", GpuLabels(str(index), uuid), now)
        )
        was, record.labels = record.labels, GpuLabels(str(index), record.labels.uuid or uuid)
        record.pci_bus_id = address or record.pci_bus_id
        if was.gpu != record.labels.gpu:
            facts = {"uuid": record.labels.uuid, "was": was.gpu, "is": record.labels.gpu}
            log.warning("GPU has another index now", extra=fields(**facts))
        key = record.labels.uuid or record.pci_bus_id or f"index:{index}"
        if key != record.key:
            self._records[key], record.key = self._records.pop(record.key), key
        return record

    def _present_labels(self) -> dict[str, tuple[GpuLabels, bool]]:
        return {record.key: (record.labels, record.device is None) for record in self}

    def _read_all_again(self) -> None:
        for record in self:
            record.schedule.all_due()

    def _forget_replaced(self, now: float) -> None:
        """Forget GPUs that another one has replaced, and unconfirmed ones after a while if another one is there."""
        present = [record for record in self if record.absent_since is None]
        confirmed = {r.pci_bus_id for r in present if r.device is not None and _is_confirmed(r)} - {None}
        taken = {place for record in present for place in _places(record)}
        for record in self:
            if record.absent_since is None:
                continue
            kept = _is_confirmed(record) or now - record.absent_since < _UNCONFIRMED_KEPT_SECONDS
            if record.pci_bus_id in confirmed or (not kept and _places(record)[0] in taken):
                log.info("GPU is forgotten, another one is there", extra=_facts(record, record.error or ""))
                self._forget(record)

    def _forget_surplus(self) -> None:
        """Bound the number of records: a driver that makes up UUIDs must not grow this process."""
        gone = sorted((r for r in self if r.absent_since is not None), key=lambda r: r.absent_since or 0)
        for record in gone[: max(0, len(self._records) - MAX_GPUS)]:
            self._forget(record)

    def _forget(self, record: GpuRecord) -> None:
        del self._records[record.key]
        self._forgotten_readers[record.key] = record.readers
        for surplus in tuple(self._forgotten_readers)[:-_MOST_FORGOTTEN]:
            del self._forgotten_readers[surplus]


def _is_confirmed(record: GpuRecord) -> bool:
    return record.last_seen_at - record.first_seen_at >= _CONFIRMED_SECONDS


def _places(record: GpuRecord) -> tuple[str, ...]:
    """Where a GPU was last seen: its PCI address, if the driver reports one, and its index."""
    index = f"index {record.labels.gpu}"
    return (index,) if record.pci_bus_id is None else (record.pci_bus_id, index)


def _facts(record: GpuRecord, error: str) -> dict[str, object]:
    return fields(gpu=record.labels.gpu, uuid=record.labels.uuid, error=error)


class Enumeration:
    """Identifies all GPUs, each in its lane, so that one that hangs blocks no other. For the sampler's thread only.

    `driver_gone` is called with the error and the time if the driver is no longer available.
    """

    def __init__(
        self, host_gpus: HostGpus, post: Post, driver_gone: Callable[[DriverUnavailable, float], None]
    ) -> None:
        self._host_gpus = host_gpus
        self._post = post
        self._driver_gone = driver_gone
        self.answers: dict[int, Identity] = {}  # the latest result for each index in this session
        self.news = False  # whether there are results that have not been processed yet
        self._session = 0
        self._count = 0
        self._unqueried: set[int] = set()
        self._pending: set[int] = set()

    def begin(self, count: int, *, new_session: bool) -> None:
        """Start identifying this many GPUs; in a `new_session`, the handles of earlier results are invalid."""
        if new_session:
            self.end_session()
        self._count = count
        self._unqueried = set(range(count))
        self._pending = set(range(count))
        self.news = True
        self.answers = {index: answer for index, answer in self.answers.items() if index < count}

    def end_session(self) -> None:
        """Discard all results, because the session has ended."""
        self._session += 1
        self._count = 0
        self.answers, self._unqueried, self._pending, self.news = {}, set(), set(), False

    def submit(self) -> None:
        """Query the indices that were not queried yet, where the lane is ready."""
        if not self._unqueried:
            return
        labels = {int(record.labels.gpu): record.labels for record in self._host_gpus if record.lane is not None}
        for index in sorted(self._unqueried):
            lane = self._host_gpus.lane_of(index)
            if lane.ready():
                self._unqueried.discard(index)
                gpu = labels.get(index, GpuLabels(str(index), ""))
                lane.submit(partial(self._identify, self._session, index, lane, gpu))

    def waits_for_answers(self, now: float) -> bool:
        """Whether a result is still pending, from a lane that is not stuck."""
        return any(not self._host_gpus.hangs(index, now) for index in self._pending)

    def conclude(self) -> tuple[DeniedDevice, ...]:
        """Complete the enumeration; returns the GPUs that could not be identified."""
        self.news = False
        denied = [answer for answer in self.answers.values() if isinstance(answer, DeniedDevice)]
        # A lane without a thread has not queried anything, so it does not count against the GPU.
        hanging = [index for index in self.unanswered() if self._host_gpus.lane_of(index).busy_since is not None]
        return (*denied, *(DeniedDevice(index, STALLED) for index in hanging))

    def unanswered(self) -> tuple[int, ...]:
        """Indices without a result in this session."""
        return tuple(index for index in range(self._count) if index not in self.answers)

    def _identify(self, session: int, index: int, lane: Lane, gpu: GpuLabels) -> None:
        call = CurrentCall()
        lane.mark(Step(DRIVER, gpu, call))
        answer: Identity | DriverUnavailable
        try:
            answer = identify(index, call)
        except DriverUnavailable as unavailable:
            answer = unavailable
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            answer = DeniedDevice(index, "exception")
        self._post(partial(self._take, session, index, answer))

    def _take(self, session: int, index: int, answer: Identity | DriverUnavailable, now: float) -> None:
        if session != self._session or index >= self._count:
            return
        if isinstance(answer, DriverUnavailable):
            self._driver_gone(answer, now)
            return
        self._pending.discard(index)
        self.news = True
        self.answers[index] = answer
