"""The incident ledger at run time: incidents and resets are recorded in it and counted for each GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from typing import Final

from gpu_triage.driver.kernel.procfs import Boot
from gpu_triage.machine import Moment, WallTimes
from gpu_triage.read.gpu.ecc import ECC
from gpu_triage.read.gpu.identity import IDENTITY, IdentityReading
from gpu_triage.read.gpu.modes import GPU_RECOVERY_ACTION, RECOVERY
from gpu_triage.read.incidents import ledger
from gpu_triage.read.incidents.decisions import DECISIONS, Repair
from gpu_triage.read.incidents.incident_metrics import GpuIncidents
from gpu_triage.read.metrics.contract import HOST_LABELS
from gpu_triage.read.xid.xid_ledger import CountedXid
from gpu_triage.sampler.driver import DriverWatch
from gpu_triage.sampler.host_gpus import GpuRecord, HostGpus
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore
from gpu_triage.sampler.state_store import StateStores
from gpu_triage.sampler.xid import XidWatch

_LASTING_SECONDS: Final = 600.0
"""Interval at which an ongoing incident is recorded again, so that it does not look like a new one after a restart."""

_RECOUNT_SECONDS: Final = 60.0
"""Counts are recomputed when an incident is recorded, and at this interval because incidents age out."""

# The counts of GpuIncidents, and its last repair.
_Counts = tuple[Mapping[tuple[str, str, str], int], Mapping[tuple[str, str], int], Mapping[tuple[str, str], float]]

_LOST: Final = "lost"
"""Error of a GPU that fell off the bus."""

_NOT_LOADED: Final = "driver_not_loaded"

_ACTIONS_DONE_BY_A_RESET: Final = frozenset(
    map(
        GPU_RECOVERY_ACTION.value_of,
        ("GPU reset", "node reboot", "drain and reset", "reset the bus", "reboot the system"),
    )
)


class ResetWatch:
    """When each GPU was last reset: what it reported before that no longer applies. Only the sampler's thread calls it.

    Only these signs count as a reset:

    - the boot of the host (where the monotonic clock starts);
    - a kernel log message that the driver was loaded;
    - a kernel log message that the card was found on the bus: it was removed and rescanned, or replaced;
    - the GPUs were released and acquired again, which is done to free them for a reset;
    - if the kernel log is not readable: the driver was not loaded, and responds now;
    - the driver had requested a reset or a reboot, and no longer does;
    - fewer volatile uncorrected ECC errors than in an earlier NVML session: within one, a user may have cleared them.

    Neither a new NVML session nor our restart resets a GPU, and one that responds again may still have its fault.
    """

    def __init__(self, xid: XidWatch, boot: Boot) -> None:
        self._xid = xid
        self._boot = boot
        self._away = False
        self._back_at: float | None = None
        self._noticed: dict[str, float] = {}

    def see_driver(self, driver: DriverWatch, now: float) -> None:
        """Update whether the GPUs are released or have no driver; `now` in monotonic seconds."""
        not_loaded = driver.error is not None and driver.error.reason == _NOT_LOADED
        if driver.released or (not_loaded and not self._xid.kernel_readable):
            self._away = True
        elif driver.versions is not None and self._away:
            self._away, self._back_at = False, now

    def compare(self, before: ledger.Board, after: ledger.Board, *, first_of_session: bool, now: float) -> None:
        """Check what changed on a responding board for signs of a reset; `now` in monotonic seconds."""
        asked = before.recovery_action in _ACTIONS_DONE_BY_A_RESET and after.recovery_action == 0
        fewer = (after.uncorrected or 0) < (before.uncorrected or 0) and after.uncorrected is not None
        if asked or (fewer and first_of_session):
            self._noticed[after.uuid] = now
        elif self._back_at is not None and self._noticed.get(after.uuid, 0.0) < self._back_at:
            self._noticed[after.uuid] = self._back_at

    def remember(self, uuid: str, at: float) -> None:
        """Add a reset of this boot that was noticed before the exporter started; `at` in monotonic seconds."""
        self._noticed[uuid] = max(at, self._noticed.get(uuid, 0.0))

    def forget(self, known: frozenset[str]) -> None:
        """Forget all GPUs except those with these keys."""
        self._noticed = {key: at for key, at in self._noticed.items() if key in known}

    def reset_at(self, record: GpuRecord) -> float | None:
        """Monotonic second of a GPU's last reset, noticed or according to the kernel; None if unknown."""
        boot_at = None if self._boot.began_at is None else 0.0  # where the monotonic clock starts
        found_at = self._xid.owners.found_at.get(record.pci_bus_id or "")
        known = (boot_at, self._xid.driver_loaded_at, found_at, self._noticed.get(record.labels.uuid))
        return max((at for at in known if at is not None), default=None)


class IncidentWatch:
    """Records incidents and resets in the ledger, kept in `file`. Only the sampler's thread calls it."""

    def __init__(
        self, saved: StateStores, host_gpus: HostGpus, driver: DriverWatch, store: OutcomeStore, xid: XidWatch
    ) -> None:
        self._host_gpus = host_gpus
        self._driver = driver
        self._store = store
        self._xid = xid
        self._machine, self._boot = saved.machine, saved.boot
        self._ledger = ledger.IncidentLedger()
        self.file = saved.add(ledger.INCIDENT_HISTORY, self._ledger, self._remember_resets)
        self._resets = ResetWatch(xid, saved.boot)
        self._walls = WallTimes()
        self._counted: dict[tuple[str, str], _Counts] = {}
        self._repairs: tuple[Repair, ...] = ()
        self._counted_edition: tuple[int, float] = (0, 0.0)

    def end(self) -> None:
        """Record the Xids that still have no known GPU, when the exporter exits."""
        self._note_xids(self._xid.owners.take_counted(), self._machine.clock.now())

    def most_since_boot(self) -> int | None:
        """Most GPUs that the driver has shown since boot, minus those set aside for VMs now; None if unknown."""
        most, given = self._ledger.most_gpus, self._machine.gpus_given
        if most is None:
            return None
        own = most - len(self._driver.passed_through)
        return (own if given is None else min(own, given)) or None

    @property
    def boards(self) -> Mapping[str, ledger.Board]:
        """The boards that were seen in this boot, by PCI address."""
        return self._ledger.boards_in(self._boot.boot_id)

    def observe(self, now: Moment) -> None:
        self._resets.see_driver(self._driver, now.monotonic)
        if (decided := self._store.reading(DECISIONS)) is not None:
            self._repairs = decided.repairs  # the latest come last
            self._ledger.see_repairs(
                {name: each.at for each in decided.repairs for name in (each.uuid, each.pci_bus_id)}
            )
        if not self.file.settled(now.monotonic):
            return
        if self._driver.count is not None:
            self._ledger.see_count(self._driver.count + len(self._driver.passed_through))
        if self._xid.cards_known or self._driver.error is not None:
            # Until then, Xids cannot be matched to GPUs.
            self._note_xids(self._xid.owners.take_counted(), now)
        for record in self._host_gpus:
            self._identify(record, now)
            self._note_loss(record, now)
            if record.labels.uuid:
                self._note_board(record, now)
                self._note_reset(record, now)
        self._resets.forget(frozenset(record.key for record in self._host_gpus))

    def reading(self, now: Moment) -> tuple[GpuIncidents, ...]:
        """Incidents of every GPU with a UUID, and of the slots of GPUs without a known UUID."""
        edition = (self._ledger.edition, now.wall // _RECOUNT_SECONDS)
        if edition != self._counted_edition:
            self._counted_edition = edition
            self._counted.clear()
        known = [record for record in self._host_gpus if record.labels.uuid]
        slots = {record.pci_bus_id for record in known}
        unnamed = (record.pci_bus_id for record in self._host_gpus if not record.labels.uuid and record.pci_bus_id)
        unseen = [slot for slot in dict.fromkeys((*self._xid.unassigned, *unnamed)) if slot not in slots]
        return (
            *(self._of_gpu(record, now) for record in known),
            *(GpuIncidents(HOST_LABELS, slot, None, *self._count("", slot, now.wall)) for slot in unseen),
        )

    def _remember_resets(self, remembered: ledger.Memory) -> None:
        """Load this boot's resets by monotonic time, because the wall clock may have jumped."""
        now = self._machine.clock.now().monotonic
        for incident in remembered.incidents:
            of_this_boot = incident.kind == ledger.RESET and incident.boot and incident.boot == self._boot.boot_id
            if of_this_boot and incident.uptime_seconds <= now:
                self._resets.remember(incident.uuid, incident.uptime_seconds)

    def _of_gpu(self, record: GpuRecord, now: Moment) -> GpuIncidents:
        slot = record.pci_bus_id or ""
        reset_at = self._resets.reset_at(record)
        wall = None if reset_at is None else self._walls.of(reset_at, now)
        return GpuIncidents(record.labels, slot, wall, *self._count(record.labels.uuid, slot, now.wall))

    def _count(self, uuid: str, slot: str, now: float) -> _Counts:
        counts = self._counted.get((uuid, slot))
        if counts is None:
            about = [each for each in self._repairs if each.uuid == uuid or each.pci_bus_id == slot]
            repaired = {(each.by, each.note): each.at for each in about[-1:]}
            counts = self._ledger.recent(uuid, slot, now), self._ledger.boards_recent(slot, now), repaired
            self._counted[uuid, slot] = counts
        return counts

    def _note_xids(self, counted: Iterable[tuple[CountedXid, str | None]], now: Moment) -> None:
        noted: dict[tuple[str, str, str], float] = {}
        for xid, owner in counted:
            kind = ledger.kind_of_xid(*xid.name)
            if kind is None:
                continue
            slot = xid.gpu if ":" in xid.gpu else ""
            known = self._ledger.board(owner) if owner else self.boards.get(slot)
            board = ledger.Board(owner or "") if known is None else known
            before = noted.get((kind, board.uuid, slot))
            if before is not None and xid.at - before < _LASTING_SECONDS:
                # A burst of one Xid is one incident.
                continue
            noted[kind, board.uuid, slot] = xid.at
            self._note(kind, replace(board, slot=slot), xid.at, now)

    def _identify(self, record: GpuRecord, now: Moment) -> None:
        """Publish what is known of a silent GPU."""
        known, name = self._store.get(IDENTITY.name, record.key), IDENTITY.name
        if record.error is None or name not in self._store.collectors:
            return
        if known is None or known.samples[0].labels[: len(record.labels)] != record.labels:
            reading = self._remembered(record) if known is None else known.reading
            if isinstance(reading, IdentityReading):
                samples = tuple(IDENTITY.render(reading, record.labels))
                self._store.put(Outcome(name, record.key, samples, now, reading=reading))

    def _remembered(self, record: GpuRecord) -> IdentityReading | None:
        """What a GPU was before the exporter started; only its address if the UUID is unknown, too."""
        board = self._ledger.board(record.labels.uuid)
        if board is not None and board.facts:
            return IdentityReading(*board.facts)
        # With a UUID, other facts would follow, and two sets of facts break every join.
        return None if record.labels.uuid or record.pci_bus_id is None else IdentityReading("", record.pci_bus_id)

    def _note_loss(self, record: GpuRecord, now: Moment) -> None:
        if record.error != _LOST or not (record.labels.uuid or record.pci_bus_id):
            record.loss_noted_at = None
            return
        if record.loss_noted_at is None or now.monotonic - record.loss_noted_at >= _LASTING_SECONDS:
            record.loss_noted_at = now.monotonic
            board = ledger.Board(record.labels.uuid, self._serial(record), record.pci_bus_id or "")
            self._note(ledger.LOST, board, now.monotonic, now)

    def _note_board(self, record: GpuRecord, now: Moment) -> None:
        """Compare a responding board with its previous state."""
        if record.error is not None or record.device is None:
            return
        uuid, slot = record.labels.uuid, record.pci_bus_id or ""
        before = self._ledger.board(uuid) or ledger.Board(uuid, first_seen_at=now.wall)
        read, errors = self._store.get(ECC.name, record.key), self._store.reading(ECC, record.key)
        uncorrected, first_of_session = before.uncorrected, False
        if read is not None and errors is not None:
            read_at = read.finished_at.monotonic
            first_of_session = read_at >= record.session_at > record.ecc_read_at
            record.ecc_read_at = read_at
            uncorrected = errors.volatile_errors.get("uncorrected", uncorrected)
        asked = self._store.reading(RECOVERY, record.key)
        action = before.recovery_action if asked is None or asked.action is None else asked.action
        serial = self._serial(record) or before.serial
        identity = self._store.reading(IDENTITY, record.key)
        facts = before.facts if identity is None else astuple(identity)
        boot, index = self._boot.boot_id, record.labels.gpu
        after = ledger.Board(uuid, serial, slot, before.first_seen_at, boot, uncorrected, action, index, facts)
        self._resets.compare(before, after, first_of_session=first_of_session, now=now.monotonic)
        if before.uncorrected is not None and uncorrected is not None and uncorrected > before.uncorrected:
            self._note(ledger.UNCORRECTED, after, now.monotonic, now)
        self._ledger.see_board(after)

    def _note_reset(self, record: GpuRecord, now: Moment) -> None:
        """Record a reset, unless it happened before the board was first seen."""
        reset_at = self._resets.reset_at(record)
        board = self._ledger.board(record.labels.uuid)
        if reset_at is None or board is None or record.reset_noted_at == reset_at:
            return
        record.reset_noted_at = reset_at
        if self._walls.of(reset_at, now) > board.first_seen_at:
            self._note(ledger.RESET, board, reset_at, now)

    def _note(self, kind: str, board: ledger.Board, at: float, now: Moment) -> None:
        """Record an incident of a board, or of a slot if the board's UUID is unknown; `at` in monotonic seconds."""
        wall, boot = self._walls.of(at, now), self._boot.boot_id
        self._ledger.note(ledger.Incident(kind, board.uuid, board.serial, board.slot, wall, wall, boot, max(0.0, at)))

    def _serial(self, record: GpuRecord) -> str:
        identity = self._store.reading(IDENTITY, record.key)
        return "" if identity is None else identity.serial
