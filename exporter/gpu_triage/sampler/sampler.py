"""The sampler: `step` starts what is due, `publish` takes in what came back. Threads only drive it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue

from gpu_triage.catalogue import Sample
from gpu_triage.collectors import baseline, exporter, incidents, judgement, presence, xid
from gpu_triage.collectors.contract import AnyCollector, AnyGpuCollector, AnyHostCollector, GpuLabels, OwnSubject, runs
from gpu_triage.collectors.exporter import CollectorHealth
from gpu_triage.collectors.presence import PresenceReading
from gpu_triage.config import Config
from gpu_triage.machine import Machine, Moment
from gpu_triage.sampler.baseline import BaselineNews, BaselineWatch
from gpu_triage.sampler.driver import RELEASED, DriverLook, DriverWatch
from gpu_triage.sampler.fleet import DRIVER_UNAVAILABLE, GONE, Fleet
from gpu_triage.sampler.freshness import Freshness
from gpu_triage.sampler.gpu import GpuJob, GpuRecord, GpuRoundResult, readers_of
from gpu_triage.sampler.host import HostRounds
from gpu_triage.sampler.incident_store import IncidentNews
from gpu_triage.sampler.incidents import IncidentWatch, Seen
from gpu_triage.sampler.judging import JudgeRounds, StoreJudge
from gpu_triage.sampler.lanes import Lane, LaneMaker
from gpu_triage.sampler.outcomes import HOST, Outcome, OutcomeStore, checked
from gpu_triage.sampler.schedule import interval_seconds
from gpu_triage.sampler.status import Status
from gpu_triage.sampler.view import HostView
from gpu_triage.sampler.xid import XidNews, XidWatch

log = logging.getLogger(__name__)

Report = Outcome | GpuRoundResult | DriverLook | XidNews | BaselineNews | IncidentNews


class Sampler:
    """Reads the machine on a schedule and keeps the last outcome of everything.

    It writes to the state directory only if told so with `writes_state`: one process does.

    Attributes:
        store: the outcomes; read it from any thread.
        status: what the sampler knows of itself.
        freshness: until when outcomes may be shown.
        view: the host as facts; only for the thread that steps.
        presence: who was there at the last publication; None before the first.
        published_at: monotonic second of the last publication; None before the first.
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
        writes_state: bool = False,
    ) -> None:
        self._machine = machine
        self._config = config
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._gpu_collectors = tuple(c for c in gpu_collectors if runs(c, config))
        self._host_collectors = tuple(c for c in host_collectors if runs(c, config))
        enabled: tuple[AnyCollector, ...] = (*self._gpu_collectors, *self._host_collectors)
        self._xid = XidWatch(machine, config, make_lane, self._reports.put)
        self._baseline = BaselineWatch(machine.clock, config, make_lane, self._reports.put)
        self._incidents = IncidentWatch(machine, config, make_lane, self._reports.put, writes=writes_state)
        pushed = (xid.NAME,) * self._xid.enabled + (incidents.NAME,) + (baseline.NAME,) * self._baseline.enabled
        self._judge = None if judge is None else JudgeRounds(judge, machine.clock, config.sample_medium_seconds)
        own = (exporter.NAME,) if judge is None else (exporter.NAME, judgement.NAME)
        self.store = OutcomeStore((presence.NAME, *(c.name for c in enabled), *pushed, *own))
        self._make_reader = {c.name: partial(c.reader, config) for c in self._gpu_collectors}
        self._fleet = Fleet(config, make_lane)
        self._driver = DriverWatch(machine, config, make_lane("driver"), self._reports.put)
        self._host = HostRounds(machine, config, make_lane, self._host_collectors, self._reports.put)
        self.freshness = Freshness(self.store, machine.clock, config, enabled, self._gpu_collectors)
        self.view = HostView(self._fleet, self._driver, self.store)
        self._seen = Seen(self._fleet, self._driver, self.store, self._xid)
        self.presence: PresenceReading | None = None
        self.published_at: float | None = None
        self.status = Status(machine, config, self._gpu_collectors, self._host_collectors)

    @property
    def judge_health(self) -> CollectorHealth | None:
        """How the judge fares; None where there is none."""
        return None if self._judge is None else self._judge.health

    @property
    def fatal(self) -> str | None:
        """Why this process must end for its supervisor to restart it; None while it need not."""
        replaced = self._driver.replaced
        return None if replaced is None else replaced.detail

    def step(self) -> None:
        """Take in what came back and start what is due. Never waits."""
        # Asked before draining: a look that is over by now has reported, and is taken in.
        ending_session = self._driver.ending_session
        self._drain()
        now = self._machine.clock.now().monotonic
        self._baseline.submit(now)
        self._incidents.submit(now)
        if not ending_session:
            self._submit_driver_and_gpus(now)
        self._xid.submit_kmsg(now)
        self._host.submit(now)

    def publish(self) -> None:
        """Take in what came back, withdraw what is stale, and say how things stand."""
        self._drain()
        now = self._machine.clock.now()
        deadline = self._config.sample_deadline_seconds
        no_session = self._driver.session_overdue(now.monotonic, deadline)
        self._fleet.find_stalls(now.monotonic, deadline, no_session=no_session)
        gone = any(record.error in GONE for record in self._fleet)
        self._driver.someone_is_gone(now.monotonic, gone=gone)
        self.freshness.expire(now.monotonic)
        pushed: tuple[CollectorHealth, ...] = ()
        if self._xid.enabled:
            pushed = (self._xid.health(now.monotonic),)
            xids = self._xid.reading((record.labels for record in self._fleet), self._labels_of, now.monotonic)
            self._put_own(xid, xid.render(xids), now)
        self._incidents.observe(self._seen, now)
        self._put_own(incidents, incidents.render(self._incidents.reading(self._seen, now)), now)
        expected, most = self._baseline.expected, self._incidents.most_since_boot(self._driver)
        self.presence = self.status.presence(
            self._fleet, self._driver, self.store, now.monotonic, recorded=expected, most_since_boot=most
        )
        own: tuple[CollectorHealth, ...] = () if self._judge is None else (self._judge.health,)
        if self._baseline.enabled:
            own += (self._baseline.health(now.monotonic, deadline),)
            self._baseline.compare(self.view, [record.key for record in self._fleet], now)
            self._put_own(baseline, baseline.render(self._baseline.reading(self._labels_of)), now)
        own += self._incidents.health(now.monotonic)
        hanging = self._host.hanging(now.monotonic, deadline)
        exporter_reading = self.status.exporter(self._fleet, self._driver, hanging, pushed, own)
        self._put_own(presence, presence.render(self.presence), now)
        self._put_own(exporter, exporter.render(exporter_reading), now)
        if self._judge is not None:
            # Last: it judges all that is published.
            self.status.count(judgement.NAME, self._judge.run(self.store, self._urgent, now))
        self.published_at = now.monotonic

    def waiting_for(self) -> str | None:
        """What the first round still lacks; None once everything was sampled, or known to fail, once."""
        if not self._driver.looked:
            return "the first answer of the driver"
        if self._host_collectors and not self.status.noted(HOST):
            return "the first reading of the host"
        for record in self._fleet:
            if record.error is None and not self.status.noted(record.key):
                return f"the first reading of GPU {record.labels.gpu}"
        return None

    def idle(self) -> bool:
        """Whether every lane has finished what it was given."""
        lanes = (*(record.lane for record in self._fleet), self._driver.lane, *self._own_lanes)
        return all(lane.busy_since is None for lane in lanes)

    def close(self, wait: Callable[[Callable[[], bool]], bool]) -> None:
        """End sampling and shut NVML down.

        Args:
            wait: waits until the given condition holds, at most as long as there is time; says whether it does.
        """
        self._incidents.flush()
        for lane in (*(record.lane for record in self._fleet), *self._own_lanes, self._incidents.lane):
            lane.close()
        if wait(self.idle):
            self._driver.lane.submit(self._end_session)
            wait(self.idle)
        else:
            # Shutting NVML down under a call that hangs would hang as well.
            log.warning("the driver did not answer in time, NVML is left as it is")
        self._driver.lane.close()

    def release(self) -> None:
        """Let go of every GPU, so that one can be reset or its driver unbound; from any thread or signal handler."""
        self._driver.release()

    def acquire(self) -> None:
        """Take the GPUs back; from any thread or signal handler."""
        self._driver.acquire()

    def reload(self) -> None:
        """Read the baseline again; from any thread or signal handler."""
        self._baseline.reload()

    @property
    def _urgent(self) -> object:
        """What the judge cannot wait with: who answers, what was read for the first time, and every Xid."""
        heard = self.store.get(xid.NAME, HOST)
        return self.presence, self.waiting_for(), None if heard is None else heard.samples

    @property
    def _own_lanes(self) -> tuple[Lane, ...]:
        return (*self._host.lanes, *self._xid.lanes, self._baseline.lane)

    def _end_session(self) -> None:
        # An event set outlives no session; all lanes are idle, so this one may free it.
        self._xid.close()
        self._driver.close()

    def _submit_driver_and_gpus(self, now: float) -> None:
        closing = self._driver.wants_closing
        # While somebody's call hangs, the others cannot be made to wait for a session that cannot end.
        reopening = self._driver.wants_reopening(now) and not self._call_hangs(now)
        if closing or reopening:
            # All handles die with the session, and the event set before it: no GPU may be asked meanwhile.
            if not self._fleet.idle or not self._xid.let_go():
                return
            if closing:
                self._driver.submit_closing()
            else:
                self._driver.submit(now, reopen=True, quiet=True)
            return
        # While NVML is down there is no event set to keep; with one, a session that failed could not be shut down.
        quiet = self._fleet.idle and (self._driver.versions is not None or self._xid.let_go())
        self._driver.submit(now, reopen=False, quiet=quiet)
        for record in self._fleet:
            self._submit_gpu(record, now)
        present = (record.device for record in self._fleet if record.device is not None)
        self._xid.submit_nvml(present, session=self._driver.versions is not None)

    def _call_hangs(self, now: float) -> bool:
        """Whether a call that uses the NVML session has been out for longer than the deadline."""
        lanes = (*(record.lane for record in self._fleet), self._xid.session_lane, self._driver.lane)
        since = [lane.busy_since for lane in lanes]
        return any(at is not None and now - at > self._config.sample_deadline_seconds for at in since)

    def _submit_gpu(self, record: GpuRecord, now: float) -> None:
        versions = self._driver.versions
        if record.device is None or versions is None or record.lane.busy_since is not None:
            return
        due = record.schedule.due(self._gpu_collectors, now)
        if not due:
            return
        if any(interval_seconds(self._config, c.tier) == self._config.sample_slow_seconds for c in due):
            # What is supported may change with MIG, ECC or the driver's mood: ask anew once in a while.
            record.device.unsupported.clear()
        record.rounds += 1
        record.lane.submit(
            GpuJob(
                key=record.key,
                labels=record.labels,
                device=record.device,
                peers=self._fleet.peers_of(record),
                collectors=readers_of(record, due, self._make_reader),
                machine=self._machine,
                versions=versions,
                deadline_seconds=self._config.sample_deadline_seconds,
                mark=record.lane.mark,
                publish=self._reports.put,
                finish=self._reports.put,
                recorded_link=self._baseline.link_of(record.device),
            )
        )

    def _drain(self) -> None:
        now = self._machine.clock.now().monotonic
        while True:
            try:
                report = self._reports.get_nowait()
            except Empty:
                return
            if isinstance(report, Outcome):
                self._take_outcome(report)
            elif isinstance(report, GpuRoundResult):
                self._take_round(report, now)
            elif isinstance(report, XidNews):
                self.status.count(xid.NAME, report.failures)
                self._xid.take(report)
            elif isinstance(report, BaselineNews):
                self._take_baseline(report)
            elif isinstance(report, IncidentNews):
                self.status.count(incidents.NAME, self._incidents.take(report, now))
            else:
                self._take_look(report, now)

    def _take_outcome(self, outcome: Outcome) -> None:
        self.status.note(outcome)
        record = self._fleet.get(outcome.subject)
        if outcome.success and (outcome.subject == HOST or (record and record.device is not None)):
            self.store.put(outcome)

    def _take_round(self, result: GpuRoundResult, now: float) -> None:
        record = self._fleet.get(result.key)
        if record is None or record.device is not result.device:
            return
        if result.driver is not None:
            self._driver_failed(DriverLook(self._driver.bus, None, result.driver, opened=False), now)
        elif result.error is not None:
            self._fleet.fail(record, result.error)
            self.freshness.withdraw(record.key)
            # It is asked again, but not at the fast tier's pace.
            record.schedule.defer(now + self._config.sample_medium_seconds)
        else:
            self._fleet.recover(record)

    def _take_baseline(self, news: BaselineNews) -> None:
        before = self._baseline.recorded
        self.status.count(baseline.NAME, self._baseline.take(news))
        if self._baseline.recorded is not before:
            # What is expected of the links is another now.
            for record in self._fleet:
                record.schedule.all_due()

    def _take_look(self, look: DriverLook, now: float) -> None:
        if look.error is not None or look.inventory is None:
            self._driver_failed(look, now)
            return
        if self._driver.error is not None or not self._driver.looked:
            log.info("driver answers", extra={"fields": {"gpus": look.inventory.count}})
        self._driver.take(look, now)
        self._forget(self._fleet.take(look.inventory, now, opened=look.opened))
        for record in self._fleet:
            if record.device is None:
                self.freshness.withdraw(record.key)
        self._forget(self._fleet.forget_lent(look.lent))

    def _driver_failed(self, look: DriverLook, now: float) -> None:
        error = look.error
        if error is not None and (self._driver.error is None or self._driver.error.reason != error.reason):
            log.warning("driver unavailable", extra={"fields": {"error": error.reason, "cause": error.detail}})
        self._driver.take(look, now)
        for record in self._fleet:
            record.device = None
            self._fleet.fail(record, RELEASED if self._driver.released else DRIVER_UNAVAILABLE)
            self.freshness.withdraw(record.key)
        self._forget(self._fleet.forget_lent(look.lent))

    def _forget(self, keys: tuple[str, ...]) -> None:
        for key in keys:
            self.status.forget(key)
            self.freshness.forget(key)

    def _labels_of(self, key: str) -> GpuLabels | None:
        record = self._fleet.get(key)
        return None if record is None else record.labels

    def _put_own(self, subject: OwnSubject, samples: Iterable[Sample], now: Moment) -> None:
        name, rendered = subject.NAME, checked(samples, frozenset(subject.METRICS))
        self.store.put(Outcome(name, HOST, rendered, success=True, errors=(), duration_seconds=0.0, finished_at=now))
