"""Flight recorder: writes the last ten minutes of the host to disk when a critical finding appears.

It captures what the driver and the kernel's files answer in a `Ring`. A separate thread compresses it and waits for
the disk, so the sampler never blocks. A child process turns the ring into a recording
(`gpu_triage.record.flight.write`), so that the memory this takes is freed afterwards.
"""

import logging
import math
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.errors import FlightRecorderError
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.log import fields
from gpu_triage.machine import Machine, Moment
from gpu_triage.read.exporter.exporter_health import CollectorHealth
from gpu_triage.read.exporter.flight_recorder import FLIGHT_RECORDER, FlightReading, WrittenRecording
from gpu_triage.read.metrics.contract import HOST_LABELS, GpuLabels
from gpu_triage.record.capture import Capture
from gpu_triage.record.flight.directory import file_name, refuse_unusable
from gpu_triage.record.flight.process import AGAIN_SECONDS, WRITING_SECONDS, RecordingWriter

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 5.0
"""How often answers are compressed, same as the medium tier's interval."""

_LONGEST_ROUND_SECONDS: Final = WRITING_SECONDS + 10.0
"""A round that takes longer is assumed to hang on disk I/O."""

MOST_AN_HOUR: Final = 6
_CHECK_SECONDS: Final = 300.0
_PUBLISHED_SECONDS: Final = 86_400.0


class Cause(NamedTuple):
    """A critical finding that triggers a recording."""

    subject: str  # ``GPU 3`` or ``host``
    code: str
    labels: GpuLabels  # HOST_LABELS if the finding isn't about a GPU with labels


class FlightRecorder:
    """Writes recordings to a directory. Run the exporter on its `machine`, and pass each judgment to `observe`."""

    def __init__(self, machine: Machine, directory: Path, write: RecordingWriter) -> None:
        self._clock = machine.clock
        self._directory = directory
        self._write = write
        self._capture = Capture(machine)
        self.machine = self._capture.machine  # the same host, with recording enabled
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = False
        self._writes = False
        self._present: frozenset[Cause] = frozenset()
        self._recorded_at: dict[Cause, float] = {}
        self._wanted: dict[Cause, None] = {}
        self._judgment: Judgment | None = None
        self._written: dict[GpuLabels, WrittenRecording] = {}
        self._failures: list[str] = []
        self._error: FlightRecorderError | None = None
        self._check_at: float | None = None
        self._began_at: float | None = None
        self._last_round_at: Moment | None = None
        self._thread = threading.Thread(target=self._run, name=FLIGHT_RECORDER.name, daemon=True)

    def observe(self, judgment: Judgment | None) -> None:
        """Process the latest judgment. Call it only on the sampler's thread; it never blocks."""
        if judgment is None or judgment is self._judgment:
            return
        self._judgment = judgment
        found = dict.fromkeys(_causes(judgment))
        before = judgment.at.monotonic - AGAIN_SECONDS
        due = (cause for cause in found if self._recorded_at.get(cause, -math.inf) <= before)
        new = [cause for cause in due if cause not in self._present]
        self._present = frozenset(found)
        if new:
            with self._lock:
                self._wanted.update(dict.fromkeys(new))
            self._woken.set()

    def reading(self, now: float) -> FlightReading:
        with self._lock:
            self._written = {key: each for key, each in self._written.items() if now - each.at <= _PUBLISHED_SECONDS}
            return dict(self._written)

    def health(self) -> CollectorHealth:
        began_at = self._began_at
        hangs = began_at is not None and self._clock.now().monotonic - began_at > _LONGEST_ROUND_SECONDS
        success = None if self._last_round_at is None and not hangs else not hangs and self._error is None
        return CollectorHealth(FLIGHT_RECORDER.name, success, None, INTERVAL_SECONDS, self._last_round_at)

    def failures(self) -> tuple[str, ...]:
        with self._lock:
            failures, self._failures = tuple(self._failures), []
            return failures

    def start(self) -> None:
        """Start the thread that compresses answers and writes recordings."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._fail(FlightRecorderError("no_thread", f"the flight recorder has no thread: {error}"))

    def stop(self, within_seconds: float = 0.0) -> None:
        """Finish pending recordings; log a warning if that takes longer than `within_seconds`."""
        self._stopping = True
        self._capture.close()
        self._woken.set()
        if not self._thread.is_alive():
            return
        self._thread.join(within_seconds)
        if self._thread.is_alive() and (self._writes or self._wanted):
            what = "a recording is still being written; it is lost if its process is killed as well"
            log.warning(what, extra=fields(directory=str(self._directory)))

    def round(self) -> None:
        """Compress what was answered since the last round, and write a recording if one is pending."""
        now = self._clock.now()
        self._began_at = now.monotonic
        self._capture.ring.drain()
        if self._check_at is None or now.monotonic >= self._check_at:
            self._check_at = now.monotonic + _CHECK_SECONDS
            self._attempt(lambda: refuse_unusable(self._directory))
        self._record_wanted()
        self._last_round_at, self._began_at = self._clock.now(), None

    def _run(self) -> None:
        ends = False
        while not ends:
            # The last judgment may have requested a recording during the round before the last one.
            ends = self._stopping
            try:
                self.round()
            except Exception:
                # An error must neither stop the recorder nor affect the exporter.
                log.exception("the flight recorder failed")
                self._fail(FlightRecorderError("exception", traceback.format_exc()))
            if not ends:
                self._woken.wait(INTERVAL_SECONDS)
                self._woken.clear()

    def _record_wanted(self) -> None:
        with self._lock:
            wanted, self._wanted = tuple(self._wanted), {}
        if not wanted:
            return
        now = self._clock.now()
        kept = {each: at for each, at in self._recorded_at.items() if now.monotonic - at < AGAIN_SECONDS}
        if len(set(kept.values())) >= MOST_AN_HOUR:
            self._fail(FlightRecorderError("too_many", f"{MOST_AN_HOUR} recordings within an hour"), lasting=False)
            return
        self._recorded_at = kept | dict.fromkeys(wanted, now.monotonic)
        self._attempt(lambda: self._write_for(wanted, now))

    def _write_for(self, causes: tuple[Cause, ...], now: Moment) -> None:
        judgment = self._judgment
        assert judgment is not None  # noqa: S101 - a judgment triggered this call
        # Imported lazily: it isn't needed in memory until there is a fault.
        from gpu_triage.judge.report.machine_readable import render_json  # noqa: PLC0415

        name = file_name(now.wall, causes[0].subject, causes[0].code)
        self._writes = True
        try:
            name = self._write(self._directory, name, self._capture.captured(), render_json(judgment.report))
        finally:
            self._writes = False
        with self._lock:
            self._written.update(dict.fromkeys((each.labels for each in causes), WrittenRecording(name, now.wall)))
        log.warning("recorded the last minutes", extra=fields(file=name, finding=causes[0].code))

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except FlightRecorderError as failed:
            self._fail(failed)
            return
        if self._error is not None:
            log.info("the flight recorder works again")
        self._error = None

    def _fail(self, error: FlightRecorderError, *, lasting: bool = True) -> None:
        """Count a failure; a lasting one stays the current error until an attempt succeeds."""
        with self._lock:
            self._failures.append(error.reason)
        before = self._error
        if lasting:
            self._error = error
        if not lasting or before is None or before.reason != error.reason:
            log.warning("the flight recorder cannot record", extra=fields(error=error.reason, cause=error.detail))


def _causes(judgment: Judgment) -> Iterator[Cause]:
    for finding in judgment.report.findings:
        if finding.severity is Severity.CRITICAL and finding.accepted is None:
            labels = HOST_LABELS if finding.gpu is None else GpuLabels(finding.gpu, finding.uuid)
            yield Cause(finding.subject, finding.check.code, labels)
