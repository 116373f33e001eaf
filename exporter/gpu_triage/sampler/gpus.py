"""All GPUs: the NVML session, the enumeration of GPUs, and the rounds of each GPU."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.log import fields
from gpu_triage.machine import ProbeReport
from gpu_triage.read.exporter.exporter_health import DRIVER
from gpu_triage.read.incidents.ledger import Board
from gpu_triage.read.metrics.contract import AnyGpuCollector, ExpectedLink, GpuRound
from gpu_triage.sampler.driver import RELEASED, DriverLook, DriverWatch, ProbeSchedule
from gpu_triage.sampler.host_gpus import DRIVER_UNAVAILABLE, GONE, Enumeration, GpuRecord, HostGpus, Places
from gpu_triage.sampler.lanes import Job, Lane, Step, overdue
from gpu_triage.sampler.outcomes import Context, Freshness, Outcome, sampled
from gpu_triage.sampler.schedule import interval_seconds
from gpu_triage.sampler.xid import XidWatch

log = logging.getLogger(__name__)


_STUCK_SECONDS: Final = 60.0
"""How long a driver poll may take before another process checks whether the driver works."""
_CHEAP_SESSION_SECONDS: Final = 1.5
"""If a session opens within this time, no GPU loses values: they stay fresh for longer."""


class GpuRounds:
    """Starts everything that calls NVML, and processes the results. Only one thread calls it."""

    def __init__(
        self,
        context: Context,
        collectors: tuple[AnyGpuCollector, ...],
        *,
        xid: XidWatch,
        link_of: Callable[[Device], ExpectedLink | None],
        boards: Callable[[], Mapping[str, Board]],
        freshness: Freshness,
    ) -> None:
        make_lane, self._post = context.make_lane, context.post
        self._machine, self._config = context.machine, context.config
        self._report = context.report
        self.host_gpus = HostGpus(self._config, make_lane)
        self.driver = DriverWatch(context, make_lane(DRIVER), lambda look: self._post(partial(self._take_look, look)))
        self._xid = xid
        self._link_of = link_of
        self._boards = boards
        self._freshness = freshness
        self._alone = tuple(c for c in collectors if not c.asks_peers)
        self._with_peers = tuple(c for c in collectors if c.asks_peers)
        self._peer_collectors = frozenset(c.name for c in self._with_peers)
        self._enumeration = Enumeration(self.host_gpus, self._post, self._driver_gone)
        # Where the probe process is waited for, which has an NVML session of its own.
        self.probe_lane = make_lane("search")
        self._probes = ProbeSchedule(
            self._machine.probe, self.probe_lane, lambda report: self._post(partial(self._take_probe, report))
        )
        self._peers_lane = make_lane("peers")
        self._paused = False

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Lanes that use the NVML session."""
        return (*self.host_gpus.lanes, self._peers_lane, self.driver.lane)

    def waiting_for(self, now: float) -> str | None:
        """What the first enumeration is still waiting for; None once every GPU is identified or hangs."""
        if not self.driver.looked:
            return "the first answer of the driver"
        for index in self._enumeration.unanswered():
            if not self.host_gpus.hangs(index, now):
                return f"GPU {index} to say who it is"
        return None

    def submit(self, now: float, *, ending_session: bool) -> None:
        """Start what is due; `ending_session` is whether NVML was being shut down before the latest reports."""
        self._probes.submit(now)
        if ending_session or self._ends_session(now):
            return
        # While NVML is down, release the event set: holding it would prevent shutting down a failed session.
        quiet = self._no_gpu_call_in_flight and (self.driver.versions is not None or self._xid.release_events())
        self.driver.submit(now, reopen=False, quiet=quiet)
        self._enumeration.submit()
        for record in self.host_gpus:
            self._submit_round(record, now)
        self._submit_peers(now)
        present = (record.device for record in self.host_gpus if record.device is not None)
        self._xid.submit_nvml(present, session=self.driver.versions is not None)

    def counts(self, outcome: Outcome) -> bool:
        """Whether a GPU's reading is still valid: the GPU is enumerated and has not failed since the query."""
        record = self.host_gpus.get(outcome.subject)
        if record is None or record.device is None:
            return False
        # A GPU's own round publishes its readings before it reports that the GPU has recovered, so those count anyway.
        return record.error is None or outcome.collector not in self._peer_collectors

    def look_at_once(self, uuids: Iterable[str], now: float) -> None:
        """Run every collector in these GPUs' next round, because the driver reported a change on them."""
        for record in (self.host_gpus.get(uuid) for uuid in uuids):
            if record is not None and now >= record.hurried_until:
                record.schedule.all_due()
                record.hurried_until = now + self._config.sample_medium_seconds

    def driver_stalled(self, now: float) -> bool:
        """Whether a driver-wide call has exceeded its deadline."""
        limit_seconds = self._config.sample_deadline_seconds
        if self.driver.ending_session:
            # This process may need as long for a new session as the probe process did.
            limit_seconds = max(limit_seconds, 2 * self._probes.session_seconds)
        return overdue(self.driver.lane.busy_since, now, limit_seconds)

    def continue_enumeration(self, now: float) -> None:
        """Continue the enumeration and apply new identities. Called when all pending reports have been processed."""
        if self.driver.versions is None or self.driver.ending_session:
            return
        self._enumeration.submit()
        if not self._enumeration.news:
            return
        present = self.host_gpus.admit(self._enumeration.answers, now)
        for device in (record.device for record in self.host_gpus):
            if device is not None:
                self._xid.owners.claim(device, now)
        if self._enumeration.waits_for_answers(now):
            return
        own = frozenset(gpu.bus_id for gpu in self.driver.bus or () if not gpu.passed_through)
        boards = {slot: board for slot, board in self._boards().items() if slot not in self.driver.passed_through}
        places = Places(own, boards)
        self.host_gpus.conclude(present, self._enumeration.conclude(), places, now)
        expected = self._config.expect_gpu_count
        if self._machine.gpus_given is None and (expected is None or (self.driver.count or 0) < expected):
            # A GPU seen earlier in this boot is missing, unless fewer are expected or given to this process.
            self.host_gpus.remember(boards.values(), now)
        for record in self.host_gpus:
            if record.device is None:
                self._freshness.withdraw(record.key)
                if record.labels.uuid and record.pci_bus_id:
                    self._xid.owners.remember(record.labels.uuid, record.pci_bus_id, now)

    def check_gpus(self, now: float) -> None:
        """Forget GPUs of virtual machines, mark those that do not respond, and start or stop the probes for them."""
        driver = self.driver
        self.host_gpus.forget_passed_through(driver.passed_through)
        # No GPU is queried between two sessions: if the next session never opens, none responds.
        no_session = driver.ending_session and self.driver_stalled(now)
        self.host_gpus.find_stalls(now, no_session=no_session)
        gone = any(record.error in GONE for record in self.host_gpus)
        fewer = driver.count is not None and driver.due_on_bus is not None and driver.count < driver.due_on_bus
        wanted = gone or fewer or self._driver_is_stuck(now)
        self._probes.update(now, missing=wanted, at_once=driver.take_bus_change())

    def _ends_session(self, now: float) -> bool:
        """End the session if requested and possible; returns whether no GPU may be queried meanwhile.

        Ending the session invalidates all handles, and the event set must be freed first. So this waits until all GPU
        lanes are idle; until then, idle lanes keep getting jobs. Freeing the event set may take one step.
        """
        if not self.driver.must_end_session:
            return False
        paused, self._paused = self._paused, False
        listening = self._xid.session_lane.busy_since is not None and not paused
        if listening or not self._no_gpu_call_in_flight or self.driver.lane.busy_since is not None:
            return False
        if not self._xid.release_events():
            self._paused = not paused
            return self._paused
        self.driver.end_session(now)
        return True

    def _submit_round(self, record: GpuRecord, now: float) -> None:
        lane, versions = record.lane, self.driver.versions
        if lane is None or record.device is None or versions is None or not lane.ready():
            return
        due = record.schedule.due(self._alone, now)
        if not due:
            return
        if any(interval_seconds(self._config, c.tier) == self._config.sample_slow_seconds for c in due):
            # Support can change (MIG mode, ECC mode, driver state), so retry unsupported queries now and then.
            record.device.unsupported.clear()
        lane.submit(self._job(record, record.device, versions, due, lane), queued=True)

    def _submit_peers(self, now: float) -> None:
        """Run the queries that name two GPUs in a separate lane: if one of the pair hangs, it blocks the caller."""
        lane, versions = self._peers_lane, self.driver.versions
        if versions is None or not lane.ready():
            return
        jobs = [
            self._job(record, record.device, versions, due, lane)
            for record in self.host_gpus
            if record.device is not None and record.error is None
            if (due := record.schedule.due(self._with_peers, now))
        ]

        def one_by_one() -> None:
            for job in jobs:
                job()

        if jobs:
            lane.submit(one_by_one, queued=True)

    def _job(
        self,
        record: GpuRecord,
        device: Device,
        versions: DriverVersions,
        collectors: tuple[AnyGpuCollector, ...],
        lane: Lane,
    ) -> Job:
        """A round of several collectors on one GPU, with what is known of the GPU now."""
        for collector in collectors:
            if collector.name not in record.readers:
                record.readers[collector.name] = collector.reader(self._config)
        key, labels, peers, link = record.key, record.labels, self.host_gpus.peers_of(record), self._link_of(device)
        readers = tuple((c, record.readers[c.name]) for c in collectors)
        machine, deadline_seconds = self._machine, self._config.sample_deadline_seconds
        # The few queries of a round about peers do not show that a GPU does not respond.
        whole = lane is not self._peers_lane

        def run() -> None:
            answered = 0
            failures: Counter[str] = Counter()
            gone: GpuUnavailable | DriverUnavailable | None = None
            for collector, reader in readers:
                inquiry = Inquiry(device)
                lane.mark(Step(collector.name, labels, inquiry.call))
                given = GpuRound(inquiry, versions, peers, machine, machine.clock.now(), link)
                outcome, cause = sampled(
                    collector, reader, given, subject=key, labels=(labels,), deadline_seconds=deadline_seconds
                )
                if inquiry.failures and not inquiry.answered:
                    outcome = replace(outcome, success=False)
                self._report(outcome)
                answered += inquiry.answered
                failures.update(inquiry.failures)
                if isinstance(cause, (GpuUnavailable, DriverUnavailable)):
                    gone = cause
                    break
            if gone is None and not answered and failures and whole:
                # The GPU is enumerated, but every query fails: this happens when the device cgroup loses access.
                gone = GpuUnavailable(failures.most_common(1)[0][0], "no query is answered")
            if whole or gone is not None:
                self._post(partial(self._end_round, record, device, gone))

        return run

    @property
    def _no_gpu_call_in_flight(self) -> bool:
        return all(lane.busy_since is None for lane in (*self.host_gpus.lanes, self._peers_lane))

    def _driver_is_stuck(self, now: float) -> bool:
        return overdue(self.driver.lane.busy_since, now, _STUCK_SECONDS)

    def _end_round(
        self, record: GpuRecord, device: Device, gone: GpuUnavailable | DriverUnavailable | None, now: float
    ) -> None:
        """Process the overall result of a GPU's round; `gone` is what did not respond, None if all did."""
        if record.device is not device:
            return  # the result is of a handle of an earlier session
        if isinstance(gone, DriverUnavailable):
            self._driver_gone(gone, now)
        elif gone is not None:
            self.host_gpus.fail(record, gone.reason)
            self._freshness.withdraw(record.key)
            # Retry it, but at a slower pace than the fast tier.
            record.schedule.defer(now + self._config.sample_medium_seconds)
        else:
            self.host_gpus.recover(record)

    def _take_look(self, look: DriverLook, now: float) -> None:
        if look.error is not None or look.count is None:
            self._driver_failed(look, now)
            return
        if self.driver.error is not None or not self.driver.looked:
            log.info("driver answers", extra=fields(gpus=look.count))
        self.driver.take(look, now)
        if look.opened:
            self.host_gpus.end_session()
        self.host_gpus.count(look.count)
        self._enumeration.begin(look.count, new_session=look.opened)

    def _take_probe(self, report: ProbeReport, now: float) -> None:
        self._probes.session_seconds = report.seconds
        if report.answering and self._driver_is_stuck(now):
            self.driver.fatal = "the driver answers other processes, but a call of this one does not return"
        records = {uuid: self.host_gpus.get(uuid) for uuid in report.answering}
        back = frozenset(uuid for uuid, record in records.items() if record is None or record.error in GONE)
        if (back or self._other_indices(report)) and self._probes.needs_new_session(back, now):
            log.info("NVML is initialized again", extra=fields(back=",".join(sorted(back)) or "none"))
            self.driver.reopen()

    def _other_indices(self, report: ProbeReport) -> bool:
        """Whether a new session would change the GPU indices without costing a responding GPU any values."""
        indices = {record.key: int(record.labels.gpu) for record in self.host_gpus if record.error is None}
        if report.seconds >= _CHEAP_SESSION_SECONDS or not indices or not indices.keys() <= report.answering.keys():
            return False
        return report.gpus != self.driver.count or any(report.answering[key] != at for key, at in indices.items())

    def _driver_gone(self, error: DriverUnavailable, now: float) -> None:
        """Process that the driver stopped responding within a session."""
        self._driver_failed(DriverLook(self.driver.bus, None, error, opened=False), now)

    def _driver_failed(self, look: DriverLook, now: float) -> None:
        error = look.error
        if error is not None and (self.driver.error is None or self.driver.error.reason != error.reason):
            log.warning("driver unavailable", extra=fields(error=error.reason, cause=error.detail))
        self.driver.take(look, now)
        self._enumeration.end_session()
        self.host_gpus.end_session()
        for record in self.host_gpus:
            self.host_gpus.fail(record, RELEASED if self.driver.released else DRIVER_UNAVAILABLE)
            self._freshness.withdraw(record.key)
