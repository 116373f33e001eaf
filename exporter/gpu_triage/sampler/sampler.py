"""The sampler: `step` starts what is due, `publish` processes the results. Threads only drive it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.read.baseline import differences as baseline
from gpu_triage.read.exporter import exporter_health as exporter
from gpu_triage.read.exporter import flight_recorder, judgment
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.exporter.flight_recorder import FlightWatch
from gpu_triage.read.gpu import presence
from gpu_triage.read.gpu.presence import PresenceReading
from gpu_triage.read.incidents import incident_metrics as incidents
from gpu_triage.read.metrics.contract import AnyCollector, AnyGpuCollector, AnyHostCollector, GpuLabels, runs
from gpu_triage.read.metrics.metric import Sample, Tier
from gpu_triage.read.xid import xid_metrics as xid
from gpu_triage.sampler.baseline import BaselineNews, BaselineWatch
from gpu_triage.sampler.gpus import GpuNews, GpuRounds
from gpu_triage.sampler.host import HostRounds
from gpu_triage.sampler.host_readings import HostReadings
from gpu_triage.sampler.incidents import IncidentWatch
from gpu_triage.sampler.judging import JudgeRounds, StoreJudge
from gpu_triage.sampler.lanes import NO_THREAD, CallWatch, Lane, LaneMaker, lacking_threads
from gpu_triage.sampler.outcomes import HOST, Freshness, Outcome, OutcomeStore
from gpu_triage.sampler.state_directory import StateDirectory
from gpu_triage.sampler.state_store import AnyStateNews, StateNews, StateStores
from gpu_triage.sampler.status import Status
from gpu_triage.sampler.xid import XidNews, XidWatch

log = logging.getLogger(__name__)

Report = Outcome | GpuNews | XidNews | BaselineNews | AnyStateNews


class Sampler:
    """Reads the machine on a schedule and keeps every collector's last outcome.

    It writes to the state directory only with `writes_state`, which only one process may set.

    Attributes:
        store: the outcomes; readable from any thread.
        status: the sampler's own health.
        freshness: how long outcomes may be published.
        view: the host as facts; only for the sampler's thread.
        presence: GPU presence at the last publication; None before the first.
        trouble: why part of the sampling has been stopped for a while; None while all of it runs.
    """

    def __init__(
        self,
        machine: Machine,
        config: Config,
        make_lane: LaneMaker,
        gpu_collectors: Iterable[AnyGpuCollector],
        host_collectors: Iterable[AnyHostCollector],
        *,
        judge: StoreJudge | None = None,
        flight: FlightWatch | None = None,
        writes_state: bool = False,
        constants: tuple[Sample, ...] = (),
    ) -> None:
        self._machine = machine
        self._config = config
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._gpu_collectors = tuple(c for c in gpu_collectors if runs(c, config))
        self._host_collectors = tuple(c for c in host_collectors if runs(c, config))
        enabled: tuple[AnyCollector, ...] = (*self._gpu_collectors, *self._host_collectors)
        self._xid = XidWatch(machine, config, make_lane, self._reports.put)
        folder = config.state_directory
        self._state = None if folder is None else StateDirectory(folder)
        # One thread for all files of the directory: they share a disk, which may hang.
        lane = make_lane(incidents.NAME)
        elsewhere = lane if config.baseline_file is None else make_lane(baseline.NAME)
        self._baseline = BaselineWatch(machine.clock, config, elsewhere, self._reports.put, self._state)
        self._saved = StateStores(machine, config, lane, self._reports.put, self._state, may_write=writes_state)
        pushed = (xid.NAME,) * self._xid.enabled + (incidents.NAME,) + (baseline.NAME,) * self._baseline.enabled
        self._flight = flight
        own = (exporter.NAME,) + (judgment.NAME,) * (judge is not None) + (flight_recorder.NAME,) * (flight is not None)
        self.store = OutcomeStore((presence.NAME, *(c.name for c in enabled), *pushed, *own))
        self._calls = CallWatch(config.sample_deadline_seconds)
        self._host = HostRounds(machine, config, make_lane, self._host_collectors, self._reports.put)
        self.status = Status(config, self._gpu_collectors, self._host_collectors, constants)
        self.freshness = Freshness(self.store, machine.clock, config, enabled)
        self._gpus = GpuRounds(
            machine,
            config,
            make_lane,
            self._gpu_collectors,
            self._reports.put,
            xid=self._xid,
            link_of=self._baseline.link_of,
            boards=lambda: self._incidents.boards,
            freshness=self.freshness,
            status=self.status,
        )
        self._host_gpus, self._driver = self._gpus.host_gpus, self._gpus.driver
        self._incidents = IncidentWatch(self._saved, self._host_gpus, self._driver, self.store, self._xid)
        findings = self._saved.add(*judge.saved) if judge is not None and self._saved.writes else None
        medium_seconds = config.sample_medium_seconds
        self._judge = None if judge is None else JudgeRounds(judge, machine.clock, medium_seconds, findings)
        self.view = HostReadings(self._host_gpus, self._driver, self.store)
        self.presence: PresenceReading | None = None
        self.trouble: str | None = None

    @property
    def often(self) -> frozenset[str]:
        """Collectors with a new outcome at each publication: the fast tier, and the sampler's own."""
        collectors: tuple[AnyCollector, ...] = (*self._gpu_collectors, *self._host_collectors)
        seldom = {c.name for c in collectors if c.tier is not Tier.FAST}
        return frozenset(self.store.collectors) - seldom - {judgment.NAME}

    @property
    def judge_health(self) -> CollectorHealth | None:
        """Health of the judge; None without one."""
        return None if self._judge is None else self._judge.health

    @property
    def fatal(self) -> str | None:
        """Why this process must exit and be restarted by its supervisor; None if it need not."""
        return self._gpus.fatal

    def step(self) -> None:
        """Process the results and start what is due. Never blocks."""
        # Checked before draining: if that poll has ended by now, its result is already in the queue.
        ending_session = self._driver.ending_session
        self._drain()
        now = self._machine.clock.now().monotonic
        self._saved.submit(now)
        self._baseline.submit(now)
        self._gpus.submit(now, ending_session=ending_session)
        self._xid.submit_kmsg(now)
        self._host.submit(now, self._host_gpus.present(self._driver.count))

    def publish(self) -> None:
        """Process the results, withdraw stale outcomes, and publish the sampler's own."""
        self._drain()
        now = self._machine.clock.now()
        deadline = self._config.sample_deadline_seconds
        for late in self._host.late(now):
            self.status.note(late)
            self.freshness.extend(late)
        self._gpus.check_gpus(now.monotonic)
        self.freshness.expire(now.monotonic)
        pushed: tuple[CollectorHealth, ...] = ()
        if self._xid.enabled:
            pushed = (self._xid.health(now.monotonic),)
            xids = self._xid.reading((record.labels for record in self._host_gpus), self._labels_of, now)
            self.store.put_own(xid, xids, xid.render, now)
        self._incidents.observe(now)
        self.store.put_own(incidents, self._incidents.reading(now), incidents.render, now)
        self.presence = self.status.presence(
            self._host_gpus,
            self._driver,
            self.store,
            now.monotonic,
            stalled=self._gpus.driver_stalled(now.monotonic),
            recorded=self._baseline.recorded,
            most_since_boot=self._incidents.most_since_boot(),
        )
        own: tuple[CollectorHealth, ...] = () if self._judge is None else (self._judge.health,)
        if self._baseline.enabled:
            own += (self._baseline.health(now.monotonic, deadline),)
            self._baseline.compare(self.view, [record.key for record in self._host_gpus], now)
            self.store.put_own(baseline, self._baseline.reading(self._labels_of), baseline.render, now)
        own += self._saved.health(now.monotonic)
        if self._flight is not None:
            own += (self._flight.health(),)
            self.status.count(flight_recorder.NAME, self._flight.failures())
            self.store.put_own(flight_recorder, self._flight.reading(now.wall), flight_recorder.render, now)
        # A slow probe process is not a hung call.
        calls = self._calls.look((lane for lane in self._lanes if lane is not self._gpus.probe_lane), now.monotonic)
        self.status.count(exporter.NAME, (NO_THREAD,) * sum(lane.refused_since is not None for lane in self._lanes))
        self.trouble = lacking_threads(self._lanes, now.monotonic)
        exporter_reading = self.status.exporter(
            self._host_gpus,
            self._driver,
            calls=calls,
            hanging=frozenset(call.collector for call in calls if call.seconds > deadline),
            pushed=pushed,
            own=own,
            state_in_use=self._incidents.file.in_use,
            state_saved=self._saved.works(now.monotonic) if self._saved.may_write else None,
            published_at=now,
        )
        self.store.put_own(presence, self.presence, presence.render, now)
        self.store.put_own(exporter, exporter_reading, exporter.render, now)
        if self._judge is not None:
            # Last, because it judges everything that is published.
            waiting_for = self.waiting_for()
            errors = self._judge.run(self.store, self._urgent(waiting_for), now, starting=waiting_for is not None)
            self.status.count(judgment.NAME, errors)

    def waiting_for(self) -> str | None:
        """What the first round still lacks; None once everything has been sampled or is known to fail."""
        unknown = self._gpus.waiting_for(self._machine.clock.now().monotonic)
        if unknown is not None:
            return unknown
        if not self.status.host_noted(self._host.shared):
            return "the first reading of the host"
        for record in self._host_gpus:
            if record.error is None and not self.status.noted(record.key):
                return f"the first reading of GPU {record.labels.gpu}"
        return None

    def idle(self) -> bool:
        """Whether every lane has finished its job."""
        # Does not wait for slow work outside the NVML session.
        apart = (self._gpus.probe_lane, *self._disk_lanes)
        return all(lane.busy_since is None for lane in self._lanes if lane not in apart)

    def save_incidents(self) -> None:
        """Start writing the incidents, between the steps of the last round: before anything else is done with it."""
        self._drain()
        self._incidents.observe(self._machine.clock.now())
        self._saved.finish(most=1)

    def close(self, wait: Callable[[Callable[[], bool]], bool]) -> None:
        """End sampling, shut NVML down and start the writes that `save` then waits for.

        `wait` returns whether the given condition holds before the time is up.
        """
        # Count the Xids that still wait for the kernel log to show whether they are fatal.
        self._xid.owners.release(math.inf)
        self._incidents.observe(self._machine.clock.now())
        self._saved.finish()
        for lane in self._lanes:
            if lane is not self._driver.lane and lane not in self._disk_lanes:
                lane.close()
        if wait(self.idle) and self._driver.lane.ready():
            self._driver.lane.submit(self._end_session)
            wait(self.idle)
        else:
            # Shutting NVML down during a hung call would hang as well.
            log.warning("the driver did not answer in time, NVML is left as it is")
        self._driver.lane.close()

    def save(self, wait: Callable[[Callable[[], bool]], bool]) -> None:
        """Finish writing to the state directory after `close`, and log what could not be written; `wait` as there."""
        self._saved.save(wait, self._take_last)
        self._incidents.end()
        self._saved.log_lost()
        if self._baseline.learns and not wait(lambda: self._baseline.lane.busy_since is None):
            log.warning("the disk did not answer in time; the baseline may not be written")
        elif self._state is not None and self._saved.idle():
            self._state.release()
        for lane in self._disk_lanes:
            lane.close()

    def release(self) -> None:
        """Release all GPUs, so that one can be reset or unbound from its driver; from any thread or signal handler."""
        self._driver.release()

    def acquire(self) -> None:
        """Acquire the GPUs again; from any thread or signal handler."""
        self._driver.acquire()

    def reload(self) -> None:
        """Reread the baseline; from any thread or signal handler."""
        self._baseline.reload()

    def _urgent(self, waiting_for: str | None) -> object:
        """What triggers an immediate judgment if it changes: GPU presence, pending first readings, and Xids."""
        heard = self.store.get(xid.NAME, HOST)
        return self.presence, waiting_for, None if heard is None else heard.samples

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return (*self._gpus.lanes, *self._host.lanes, *self._xid.lanes, self._gpus.probe_lane, *self._disk_lanes)

    @property
    def _disk_lanes(self) -> tuple[Lane, ...]:
        own = () if self._baseline.lane is self._saved.lane else (self._baseline.lane,)
        return (self._saved.lane, *own)

    def _end_session(self) -> None:
        # An event set must be freed before its session ends; all lanes are idle, so this one may do it.
        self._xid.close()
        self._driver.close()

    def _drain(self) -> None:
        now = self._machine.clock.now().monotonic
        while True:
            while not self._reports.empty():
                self._take(self._reports.get_nowait(), now)
            self._gpus.continue_enumeration(now)
            # On a virtual clock, the queries have already completed.
            if self._reports.empty():
                return

    def _take_last(self) -> None:
        self._drain()
        # Record the incidents that were waiting for the ledger to be loaded.
        self._incidents.observe(self._machine.clock.now())

    def _take(self, report: Report, now: float) -> None:
        if isinstance(report, Outcome):
            self._take_outcome(report)
        elif isinstance(report, XidNews):
            self.status.count(xid.NAME, report.failures)
            self._xid.take(report)
            self._gpus.look_at_once(report.changed, now)
        elif isinstance(report, BaselineNews):
            self._take_baseline(report)
        elif isinstance(report, StateNews):
            self.status.count(report.name, self._saved.take(report, now))
        else:
            self._gpus.take(report, now)

    def _take_outcome(self, outcome: Outcome) -> None:
        self.status.note(outcome)
        if outcome.subject == HOST:
            self._host.ended(outcome.collector)
        if outcome.success and (outcome.subject == HOST or self._gpus.counts(outcome)):
            self.store.put(outcome)

    def _take_baseline(self, news: BaselineNews) -> None:
        before = self._baseline.recorded
        self.status.count(baseline.NAME, self._baseline.take(news))
        if self._baseline.recorded is not before:
            # The expected PCIe links have changed.
            for record in self._host_gpus:
                record.schedule.all_due()

    def _labels_of(self, key: str) -> GpuLabels | None:
        record = self._host_gpus.get(key)
        return None if record is None else record.labels
