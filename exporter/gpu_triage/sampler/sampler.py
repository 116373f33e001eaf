"""The sampler: `step` starts what is due, `publish` processes the results. Threads only drive it."""

import logging
import math
import platform
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol

from gpu_triage import __revision__, __version__
from gpu_triage.documents.saved_state import StateKind
from gpu_triage.log import fields
from gpu_triage.machine import Clock, Machine, Moment
from gpu_triage.options.config import Config
from gpu_triage.read.baseline.differences import BASELINE
from gpu_triage.read.exporter.exporter_health import EXPORTER, CollectorHealth, ExporterReading
from gpu_triage.read.exporter.flight_recorder import FLIGHT_RECORDER, FlightWatch
from gpu_triage.read.exporter.judgment import JUDGE
from gpu_triage.read.gpu.presence import PRESENCE, GpuPresence, PresenceReading
from gpu_triage.read.host.maintenance import MAINTENANCE
from gpu_triage.read.incidents.decisions import DECISIONS
from gpu_triage.read.incidents.incident_metrics import INCIDENTS
from gpu_triage.read.metrics import contract
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.xid.xid_metrics import XID
from gpu_triage.sampler.baseline import BaselineNews, BaselineWatch
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.gpus import GpuRounds
from gpu_triage.sampler.host_readings import HostReadings
from gpu_triage.sampler.incidents import IncidentWatch
from gpu_triage.sampler.lanes import BLOCKED, DEADLINE, NO_THREAD, CallWatch, Lane, LaneMaker, Step, lacking_threads
from gpu_triage.sampler.outcomes import HOST, Context, Freshness, Outcome, OutcomeStore, checked, sampled
from gpu_triage.sampler.schedule import Schedule, is_due, next_due
from gpu_triage.sampler.state_directory import StateDirectory
from gpu_triage.sampler.state_store import PersistentState, StateStore, StateStores
from gpu_triage.sampler.status import Status
from gpu_triage.sampler.xid import XidRound, XidWatch


class HostRounds:
    """Starts the host's rounds in a shared lane, or in a collector's own lane. Only one thread calls it."""

    def __init__(self, context: Context, collectors: tuple[contract.AnyHostCollector, ...]) -> None:
        self._machine, self._config = context.machine, context.config
        self._report = context.report
        self._schedule = Schedule(self._config)
        # Deadline of the round of each collector that is due, by collector name.
        self._ends_by: dict[str, float] = {}
        by_lane: dict[str, list[contract.AnyHostCollector]] = {"host": []}
        for collector in collectors:
            # Metrics from other programs may take long to parse.
            alone = collector.own_lane or collector.foreign is not None
            by_lane.setdefault(collector.name if alone else "host", []).append(collector)
        self.shared = tuple(collector.name for collector in by_lane["host"])  # the collectors in the shared lane
        self._readers = {collector.name: collector.reader(self._config) for collector in collectors}
        self._collectors = {context.make_lane(name): tuple(own) for name, own in by_lane.items()}
        self.lanes: tuple[Lane, ...] = tuple(self._collectors)  # where rounds run

    def submit(self, now: float, gpus: contract.PresentGpus) -> None:
        for lane, collectors in self._collectors.items():
            for collector in self._schedule.waiting(collectors, now):
                self._ends_by.setdefault(collector.name, now + self._config.sample_deadline_seconds)
            due = self._schedule.due(collectors, now) if lane.ready() else ()
            if due:
                lane.submit(partial(self._run, lane, due, gpus), queued=True)

    def _run(self, lane: Lane, collectors: tuple[contract.AnyHostCollector, ...], gpus: contract.PresentGpus) -> None:
        """A round of several collectors, in their lane."""
        for collector in collectors:
            lane.mark(Step(collector.name))
            given = contract.HostRound(self._machine, self._machine.clock.now(), gpus=gpus)
            reader, deadline_seconds = self._readers[collector.name], self._config.sample_deadline_seconds
            outcome, _ = sampled(collector, reader, given, deadline_seconds=deadline_seconds)
            self._report(outcome)

    def ended(self, collector: str) -> None:
        self._ends_by.pop(collector, None)

    def late(self, now: Moment) -> Iterator[Outcome]:
        """A failed outcome per late collector and interval; whichever holds the lane, this round has read nothing."""
        for lane, collectors in self._collectors.items():
            if lane.busy_since is None and lane.refused_since is None:
                continue  # a round that has just ended reports its own outcome
            for collector in collectors:
                name, ends_by = collector.name, self._ends_by.get(collector.name)
                if ends_by is None or now.monotonic <= ends_by:
                    continue
                self._ends_by[name] = next_due(ends_by, now.monotonic, self._schedule.interval_of(collector))
                error, detail, seconds = _held_up(name, lane, now.monotonic)
                yield Outcome(
                    name, HOST, (), now, success=False, errors=(error,), duration_seconds=seconds, detail=detail
                )


def _held_up(collector: str, lane: Lane, now: float) -> tuple[str, str, float]:
    """Why a round is late: its error, the cause for the log, and how long the round has been running in seconds."""
    since, running = lane.busy_since, lane.step.collector
    if since is None:
        return NO_THREAD, "no thread can be started to read it", 0.0
    lasts = f"has not returned for {now - since:.0f} s"
    if running == collector:
        return DEADLINE, f"its read {lasts}", now - since
    return BLOCKED, f"waits for {running}, whose read {lasts}", 0.0


log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 10.0
"""How long the first judgment waits for the first readings, in case one of them hangs."""


class StoreJudge(Protocol):
    """Interprets the published readings."""

    @property
    def saved(self) -> tuple[StateKind[Any], PersistentState[Any]]:
        """What the judge remembers between judgments: the kind of state file, and the state."""

    def judge(self, store: OutcomeStore, now: Moment) -> Iterable[Sample]:
        """Samples that the judgment adds to the published readings; may raise anything."""

    def interrupt(self) -> None:
        """Note that a judgment failed."""


class JudgeRounds:
    """Runs the judge on the medium tier, and immediately on urgent changes.

    If the judge raises, only its own series are lost. The first judgment waits a few seconds for the saved state and
    the first readings: without them, Xids in the kernel log cannot be matched to GPUs or explained.
    """

    def __init__(
        self, judge: StoreJudge, clock: Clock, interval_seconds: float, file: StateStore[Any] | None = None
    ) -> None:
        self._judge = judge
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._file = file
        self._asked_at: float | None = None
        self._due_at: float | None = None
        self._urgent: object = None
        self.health = CollectorHealth(JUDGE.name, None, None, interval_seconds, None)

    def run(self, store: OutcomeStore, urgent: object, now: Moment, *, starting: bool = False) -> tuple[str, ...]:
        """Run the judge on the published outcomes if it is due, and publish its own; returns the errors to count.

        It runs at once when `urgent` changes. While `starting`, some of the first readings are still pending.
        """
        self._asked_at = now.monotonic if self._asked_at is None else self._asked_at
        if starting and now.monotonic - self._asked_at < _PATIENCE_SECONDS:
            return ()
        if self._file is not None and not self._file.settled(now.monotonic):
            return ()
        due = is_due(self._due_at, now.monotonic)
        if not due and urgent == self._urgent:
            return ()
        self._urgent = urgent
        if due:
            self._due_at = next_due(self._due_at, now.monotonic, self._interval_seconds)
        return self._run(store, now)

    def _run(self, store: OutcomeStore, now: Moment) -> tuple[str, ...]:
        began_at = self._clock.now().monotonic
        cause = ""
        samples: tuple[Sample, ...] = ()
        try:
            samples = checked(self._judge.judge(store, now), frozenset(JUDGE.metrics))
        except Exception:  # noqa: BLE001 - as in a collector: a bug here must not cost the readings
            cause = traceback.format_exc()
            self._judge.interrupt()
        seconds = self._clock.now().monotonic - began_at
        before = self.health
        last_success_at = before.last_success_at if cause else now
        self.health = CollectorHealth(JUDGE.name, not cause, seconds, self._interval_seconds, last_success_at)
        if cause:
            if before.success is not False:
                log.error("the judge failed", extra=fields(cause=cause))
            store.withdraw(JUDGE.name, HOST)
            return ("exception",)
        if before.success is False:
            log.info("the judge works again")
        store.put(Outcome(JUDGE.name, HOST, samples, now, duration_seconds=seconds))
        return ()


class Sampler:
    """Reads the machine on a schedule, and keeps the last outcomes; only one process may set `writes_state`."""

    def __init__(
        self,
        machine: Machine,
        config: Config,
        make_lane: LaneMaker,
        gpu_collectors: Iterable[contract.AnyGpuCollector],
        host_collectors: Iterable[contract.AnyHostCollector],
        *,
        judge: StoreJudge | None = None,
        flight: FlightWatch | None = None,
        writes_state: bool = False,
        constants: tuple[Sample, ...] = (),
    ) -> None:
        self._machine = machine
        self._config = config
        self._constants = constants
        self._flight = flight
        # The results of the lanes' jobs, to be processed on the sampler's thread.
        self._posted: SimpleQueue[Callable[[float], None]] = SimpleQueue()
        post = self._posted.put
        context = Context(machine, config, make_lane, post, lambda outcome: post(partial(self._take_outcome, outcome)))
        self._gpu_collectors = tuple(c for c in gpu_collectors if contract.runs(c, config))
        self._host_collectors = tuple(c for c in host_collectors if contract.runs(c, config))
        enabled: tuple[contract.AnyCollector, ...] = (*self._gpu_collectors, *self._host_collectors)
        self.status = Status(config)  # the sampler's own health
        self._xid = XidWatch(context, lambda ended: post(partial(self._take_xids, ended)))
        folder = config.state_directory
        self._state = None if folder is None else StateDirectory(folder)
        # One thread for all files of the directory: they share a disk, which may hang.
        lane = make_lane(INCIDENTS.name)
        elsewhere = lane if config.baseline_file is None else make_lane(BASELINE.name)
        # The baseline, which any thread may reload.
        self.baseline = BaselineWatch(
            context, elsewhere, lambda news: post(partial(self._take_baseline, news)), self._state
        )
        self._saved = StateStores(context, lane, self._state, self.status.count, may_write=writes_state)
        pushed = (XID.name,) * self._xid.enabled + (INCIDENTS.name,) + (BASELINE.name,) * self.baseline.enabled
        own = (EXPORTER.name,) + (JUDGE.name,) * (judge is not None) + (FLIGHT_RECORDER.name,) * (flight is not None)
        # The outcomes; readable from any thread.
        self.store = OutcomeStore((PRESENCE.name, *(c.name for c in enabled), *pushed, *own))
        self._calls = CallWatch(config.sample_deadline_seconds)
        self._host = HostRounds(context, self._host_collectors)
        self.freshness = Freshness(self.store, machine.clock, config, enabled)  # how long outcomes may be published
        self._gpus = GpuRounds(
            context,
            self._gpu_collectors,
            xid=self._xid,
            link_of=self.baseline.link_of,
            boards=lambda: self._incidents.boards,
            freshness=self.freshness,
        )
        self._host_gpus = self._gpus.host_gpus
        self.driver = self._gpus.driver  # NVML's session, which any thread may release and acquire
        self._incidents = IncidentWatch(self._saved, self._host_gpus, self.driver, self.store, self._xid)
        findings = self._saved.add(*judge.saved) if judge is not None and self._saved.writes else None
        medium_seconds = config.sample_medium_seconds
        self._judge = None if judge is None else JudgeRounds(judge, machine.clock, medium_seconds, findings)
        # The host as facts; only for the sampler's thread.
        self.view = HostReadings(self._host_gpus, self.driver, self.store)
        self.presence: PresenceReading | None = None  # GPU presence at the last publication; None before the first
        # Why part of the sampling has been stopped for a while; None while all of it runs.
        self.trouble: str | None = None

    @property
    def judge_health(self) -> CollectorHealth | None:
        """Health of the judge; None without one."""
        return None if self._judge is None else self._judge.health

    @property
    def fatal(self) -> str | None:
        """Why this process must exit and be restarted by its supervisor; None if it need not."""
        return self.driver.fatal

    def step(self) -> None:
        """Process the results and start what is due. Never blocks."""
        # Checked before draining: if that poll has ended by now, its result is already in the queue.
        ending_session = self.driver.ending_session
        self._drain()
        now = self._machine.clock.now().monotonic
        self._saved.submit(now)
        self.baseline.submit(now)
        self._gpus.submit(now, ending_session=ending_session)
        self._xid.submit_kmsg(now)
        self._host.submit(now, self._host_gpus.present(self.driver.count))

    def publish(self) -> None:
        """Process the results, withdraw stale outcomes, and publish the sampler's own."""
        self._drain()
        now = self._machine.clock.now()
        for late in self._host.late(now):
            self.status.note(late)
            self.freshness.extend(late)
        self._gpus.check_gpus(now.monotonic)
        known = frozenset((HOST, *(record.key for record in self._host_gpus)))
        self.status.keep(known)
        self.freshness.expire(now.monotonic, known)
        if self._xid.enabled:
            xids = self._xid.reading((record.labels for record in self._host_gpus), self._labels_of, now)
            self.store.put_own(XID, xids, now)
        self._incidents.observe(now)
        self.store.put_own(INCIDENTS, self._incidents.reading(now), now)
        self.presence = self._presence_reading(now.monotonic)
        self.store.put_own(PRESENCE, self.presence, now)
        if self.baseline.enabled:
            self.baseline.compare(self.view, [record.key for record in self._host_gpus], now)
            self.store.put_own(BASELINE, self.baseline.reading(self._labels_of), now)
        if self._flight is not None:
            self.status.count(FLIGHT_RECORDER.name, self._flight.failures())
            self.store.put_own(FLIGHT_RECORDER, self._flight.reading(now.wall), now)
        self.status.count(EXPORTER.name, (NO_THREAD,) * sum(lane.refused_since is not None for lane in self._lanes))
        self.trouble = lacking_threads(self._lanes, now.monotonic)
        self.store.put_own(EXPORTER, self._exporter_reading(now), now)
        if self._judge is not None:
            # Last, because it judges everything that is published.
            waiting_for = self.waiting_for()
            errors = self._judge.run(self.store, self._urgent(waiting_for), now, starting=waiting_for is not None)
            self.status.count(JUDGE.name, errors)

    def _presence_reading(self, now: float) -> PresenceReading:
        """GPUs and driver; while a call to the driver as a whole is late, its last answers are outdated."""
        config, driver, recorded = self._config, self.driver, self.baseline.recorded
        stalled = self._gpus.driver_stalled(now)
        error = STALLED if stalled else driver.error.reason if driver.error else None
        count, p2p = config.expect_gpu_count, config.expect_p2p
        return PresenceReading(
            gpus=tuple(
                GpuPresence(r.labels, r.responds(now, config.sample_deadline_seconds), r.error) for r in self._host_gpus
            ),
            driver_up=error is None if driver.looked or error else None,
            driver_error=error,
            versions=driver.versions,
            nvml_count=None if stalled else driver.count,
            pci_count=driver.due_on_bus,
            # What the baseline has is expected if nothing is set.
            expected_count=recorded.facts.host.gpu_count if count is None and recorded else count,
            expected_p2p=recorded.p2p if p2p is None and recorded else p2p,
            most_since_boot=self._incidents.most_since_boot(),
        )

    def _exporter_reading(self, now: Moment) -> ExporterReading:
        """The state of this process, and the health of every collector."""
        driver, status, deadline = self.driver, self.status, self._config.sample_deadline_seconds
        # A slow probe process is not a hung call.
        calls = self._calls.look((lane for lane in self._lanes if lane is not self._gpus.probe_lane), now.monotonic)
        healths = [status.health(collector) for collector in self._host_collectors]
        if self._judge is not None:
            healths.append(self._judge.health)
        if self.baseline.enabled:
            healths.append(self.baseline.health(now.monotonic, deadline))
        healths += self._saved.health(now.monotonic)
        if self._flight is not None:
            healths.append(self._flight.health())
        if (len(self._host_gpus) or driver.due_on_bus) and not driver.released:
            # Without an NVIDIA device, or while the GPUs are released on request, GPU collectors cannot fail.
            # A collector has failed if one of its calls hangs, even if other reads succeeded.
            hanging = {call.collector for call in calls if call.seconds > deadline}
            healths += [
                replace(health, success=False) if health.name in hanging else health
                for health in status.healths_of_gpus(self._gpu_collectors, self._host_gpus)
            ]
            if self._xid.enabled:
                healths.append(self._xid.health(now.monotonic))
        return ExporterReading(
            version=__version__,
            revision=__revision__,
            python_version=platform.python_version(),
            constants=self._constants,
            collectors=tuple(healths),
            errors=dict(sorted(status.errors.items())),
            scrapes=status.scrapes,
            gpus_released=driver.released,
            web_config=status.web_config,
            judge_settings=status.judge_settings,
            state_in_use=self._incidents.file.in_use,
            state_saved=self._saved.works(now.monotonic) if self._saved.may_write else None,
            published_at=now,
            calls=calls,
        )

    def waiting_for(self) -> str | None:
        """What the first round still lacks; None once everything has been sampled or is known to fail."""
        unknown = self._gpus.waiting_for(self._machine.clock.now().monotonic)
        if unknown is not None:
            return unknown
        # Without these, what is accepted, or the host's maintenance, would cause pages and drains.
        quieting = (c.name for c in self._host_collectors if c in (DECISIONS, MAINTENANCE))
        if not self.status.host_noted((*self._host.shared, *quieting)):
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
        """End sampling and NVML, and start the writes of `save`; `wait` is whether a condition holds in time."""
        # Count the Xids that still wait for the kernel log to show whether they are fatal.
        self._xid.owners.ledger.release(math.inf)
        self._incidents.observe(self._machine.clock.now())
        self._saved.finish()
        for lane in self._lanes:
            if lane is not self.driver.lane and lane not in self._disk_lanes:
                lane.close()
        if wait(self.idle) and self.driver.lane.ready():
            self.driver.lane.submit(self._end_session)
            wait(self.idle)
        else:
            # Shutting NVML down during a hung call would hang as well.
            log.warning("the driver did not answer in time, NVML is left as it is")
        self.driver.lane.close()

    def save(self, wait: Callable[[Callable[[], bool]], bool]) -> None:
        """Finish writing to the state directory after `close`, and log what could not be written; `wait` as there."""
        self._saved.save(wait, self._take_last)
        self._incidents.end()
        self._saved.log_lost()
        if self.baseline.learns and not wait(lambda: self.baseline.lane.busy_since is None):
            log.warning("the disk did not answer in time; the baseline may not be written")
        elif self._state is not None and self._saved.idle():
            self._state.release()
        for lane in self._disk_lanes:
            lane.close()

    def _urgent(self, waiting_for: str | None) -> object:
        """What triggers an immediate judgment if it changes: GPU presence, pending first readings, and Xids."""
        heard = self.store.get(XID.name, HOST)
        return self.presence, waiting_for, None if heard is None else heard.samples

    @property
    def _lanes(self) -> tuple[Lane, ...]:
        return (*self._gpus.lanes, *self._host.lanes, *self._xid.lanes, self._gpus.probe_lane, *self._disk_lanes)

    @property
    def _disk_lanes(self) -> tuple[Lane, ...]:
        own = () if self.baseline.lane is self._saved.lane else (self.baseline.lane,)
        return (self._saved.lane, *own)

    def _end_session(self) -> None:
        # An event set must be freed before its session ends; all lanes are idle, so this one may do it.
        self._xid.close()
        self.driver.close()

    def _drain(self) -> None:
        now = self._machine.clock.now().monotonic
        while True:
            while not self._posted.empty():
                self._posted.get_nowait()(now)
            self._gpus.continue_enumeration(now)
            # On a virtual clock, the queries have already completed.
            if self._posted.empty():
                return

    def _take_last(self) -> None:
        self._drain()
        # Record the incidents that were waiting for the ledger to be loaded.
        self._incidents.observe(self._machine.clock.now())

    def _take_outcome(self, outcome: Outcome, _now: float) -> None:
        self.status.note(outcome)
        if outcome.subject == HOST:
            self._host.ended(outcome.collector)
        if outcome.success and (outcome.subject == HOST or self._gpus.counts(outcome)):
            self.store.put(outcome)

    def _take_xids(self, ended: XidRound, now: float) -> None:
        self.status.count(XID.name, ended.failures)
        self._xid.take(ended)
        self._gpus.look_at_once(ended.changed, now)

    def _take_baseline(self, news: BaselineNews, _now: float) -> None:
        before = self.baseline.recorded
        self.status.count(BASELINE.name, self.baseline.take(news))
        if self.baseline.recorded is not before:
            # The expected PCIe links have changed.
            for record in self._host_gpus:
                record.schedule.all_due()

    def _labels_of(self, key: str) -> contract.GpuLabels | None:
        record = self._host_gpus.get(key)
        return None if record is None else record.labels
