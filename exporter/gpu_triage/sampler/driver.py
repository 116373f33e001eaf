"""The driver as a whole: initializes NVML with retries, polls the GPU count, and looks for GPUs that come back."""

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpu_triage.driver.kernel.pci_bus import BusEvents, PciGpu, read_pci_gpus
from gpu_triage.driver.nvml.session import DriverVersions, Session
from gpu_triage.errors import DriverReplaced, DriverUnavailable, HostReadFailed, ProbeFailed
from gpu_triage.log import fields
from gpu_triage.machine import Probe, ProbeReport
from gpu_triage.read.exporter.exporter_health import DRIVER
from gpu_triage.sampler.lanes import Lane, Step
from gpu_triage.sampler.outcomes import Context

log = logging.getLogger(__name__)

RELEASED: Final = "released"
"""Error of the driver and its GPUs while NVML is shut down on request."""

STALLED: Final = "stalled"
"""Error of a GPU, or of the driver as a whole, that did not respond within the deadline."""

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class DriverLook:
    """Result of one poll of the PCI bus and the driver."""

    bus: tuple[PciGpu, ...] | None  # NVIDIA GPUs on the PCI bus; None if sysfs has none
    count: int | None  # number of GPUs according to NVML; None while NVML is unavailable
    error: DriverUnavailable | None  # why NVML is unavailable; None if it works
    opened: bool  # whether this poll initialized NVML, which invalidates all earlier handles


class DriverWatch:
    """The NVML session and its polling schedule. Only the sampler's thread calls it; the polls run in its lane."""

    def __init__(self, context: Context, lane: Lane, report: Callable[[DriverLook], None]) -> None:
        machine = context.machine
        self.lane = lane  # where the polls run
        self.session = Session(machine.nvml)  # of NVML
        self.error: DriverUnavailable | None = None  # why NVML cannot be used; None before the first poll too
        self.count: int | None = None  # number of GPUs according to NVML; None while NVML is unavailable
        self.bus: tuple[PciGpu, ...] | None = None  # NVIDIA GPUs on the PCI bus; None if sysfs has none
        self.looked = False  # whether the first poll has ended
        self.fatal: str | None = None  # why this process must exit and be restarted by its supervisor; else None
        self._machine = machine
        self._interval_seconds = context.config.sample_medium_seconds
        self._report = report
        self._open = False
        self._look_at = 0.0
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._ending = False
        self._reopen = False
        self._bus_changed = False
        self._release_requested = False
        self._bus_event: Callable[[], bool] = BusEvents().seen if machine.hotplug else lambda: False

    @property
    def versions(self) -> DriverVersions | None:
        """Versions of the driver; None while it is unavailable."""
        return self.session.versions if self._open else None

    @property
    def due_on_bus(self) -> int | None:
        """Number of GPUs that the driver should show to this process, from the PCI bus; None if sysfs has no bus."""
        if self.bus is None:
            return None
        own, given = sum(not gpu.passed_through for gpu in self.bus), self._machine.gpus_given
        # A container sees the whole PCI bus, but through the driver only its assigned GPUs.
        return own if given is None else min(own, given)

    @property
    def passed_through(self) -> frozenset[str]:
        """PCI bus IDs of the GPUs that are set aside for virtual machines."""
        return frozenset(gpu.bus_id for gpu in self.bus or () if gpu.passed_through)

    @property
    def ending_session(self) -> bool:
        """Whether NVML is being shut down right now (perhaps to be reopened), so that its handles are invalid."""
        return self._ending and self.lane.busy_since is not None

    @property
    def released(self) -> bool:
        return self._release_requested and not self._open

    @property
    def must_end_session(self) -> bool:
        """Whether NVML should be shut down, perhaps to be reopened, which requires all GPU lanes to be idle first."""
        return self._open and (self._release_requested or self._reopen)

    def release(self) -> None:
        """Request that NVML be shut down until `acquire`; from any thread or signal handler."""
        self._release_requested = True

    def acquire(self) -> None:
        """Request that NVML be used again; from any thread or signal handler."""
        self._release_requested = False
        self._look_at = 0.0

    def end_session(self, now: float) -> None:
        """Shut NVML down if that is requested, else reinitialize it; no call may be in flight."""
        if not self._release_requested:
            self.submit(now, reopen=True, quiet=True)
        elif self.lane.ready():
            self._ending = True
            self.lane.submit(self._shut_down)

    def reopen(self) -> None:
        """Request that NVML be reinitialized, because a new session is known to show more GPUs."""
        self._reopen = True

    def submit(self, now: float, *, reopen: bool, quiet: bool) -> None:
        """Start a poll if due, or `reopen` NVML; `quiet` if no other call is in flight, so that it may be shut down."""
        if self._bus_event():
            self._look_at = now
        if self._release_requested or (now < self._look_at and not reopen) or not self.lane.ready():
            return
        self._look_at = now + self._interval_seconds
        opens = reopen or not self._open
        if opens:
            self._reopen = self._bus_changed = False
        self._ending = opens and quiet
        self.lane.submit(lambda: self._look(opens=opens, quiet=quiet))

    def take_bus_change(self) -> bool:
        """Whether cards were added or removed since the last call and since NVML was last initialized."""
        changed, self._bus_changed = self._bus_changed, False
        return changed

    def take(self, look: DriverLook, now: float) -> None:
        """Apply the result of a poll; failures schedule the next one with exponential backoff."""
        self._bus_changed |= self.looked and look.bus != self.bus
        # The lane may stay busy a little longer, with calls that no GPU has to wait for.
        self.looked, self._ending = True, False
        self.bus, self.count, self.error = look.bus, look.count, look.error
        if look.error is None:
            self._open, self._retry_seconds = True, _FIRST_RETRY_SECONDS
            return
        if self._open and isinstance(look.error, DriverReplaced):
            self.fatal = look.error.detail
        self._open, self.count = False, None
        self._look_at = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, _LAST_RETRY_SECONDS)

    def close(self) -> None:
        if self._open:
            self.session.close()
            self._open = False

    def _look(self, *, opens: bool, quiet: bool) -> None:
        bus = None
        try:
            bus = read_pci_gpus(self._machine.sysfs, [])
        except HostReadFailed as failed:
            log.debug("PCI bus unreadable", extra=fields(cause=str(failed)))
        count: int | None = None
        error: DriverUnavailable | None = None
        try:
            self._mark()
            if opens and quiet:
                # Also closes a failed session: NVML is reference-counted, so a second initialization has no effect.
                self.session.close()
            if opens:
                self.session.open()
            self._mark()
            count = self.session.count()
        except DriverUnavailable as unavailable:
            error = unavailable
        except Exception:  # noqa: BLE001 - as in the rounds: a bug here must not end the sampler
            error = DriverUnavailable("exception", traceback.format_exc())
        if error is not None and opens and quiet:
            # Only if quiet: GPU lanes may have calls in flight in a session that was in use.
            self._mark()
            self.session.close()
        self._report(DriverLook(bus, count, error, opens))
        if error is None:
            # Last, and retried until each version is known: no GPU has to wait for the version strings.
            self.session.read_versions(self._mark)

    def _mark(self) -> None:
        self.lane.mark(Step(DRIVER, call=self.session.call))

    def _shut_down(self) -> None:
        self._mark()
        self.session.close()
        error = DriverUnavailable(RELEASED, "NVML is shut down on request until it is acquired again")
        self._report(DriverLook(self.bus, None, error, opened=False))


_FIRST_PROBE_SECONDS: Final = 5.0
_PROBE_PAUSE_SECONDS: Final = 10.0
"""Minimum interval between two probes, and the interval used at first."""
_PROBE_BACKOFF_AFTER_SECONDS: Final = 120.0
"""After this time, the interval between probes for a lost GPU starts to double."""
_LONGEST_PAUSE_SECONDS: Final = 900.0
_SESSION_PAUSE_SECONDS: Final = 15.0
"""Minimum interval between two sessions opened for the same GPUs; doubles after each unsuccessful one."""


class ProbeSchedule:
    """Schedules probes: another process looks for GPUs that this process's NVML session cannot see.

    While GPUs are missing, a probe runs every ten seconds, and after two minutes less and less often. Only the
    sampler's thread calls it; the probes run in its lane.
    """

    def __init__(self, probe: Probe | None, lane: Lane, report: Callable[[ProbeReport], None]) -> None:
        self.lane = lane  # where the probes run
        self.session_seconds = 0.0  # how long the last probe took to open a session and query all GPUs
        self._changed = False
        self._probe = probe
        self._report = report
        self._due_at: float | None = None
        self._missing_since: float | None = None
        self._pause_seconds = _PROBE_PAUSE_SECONDS
        self._earliest_at = 0.0
        self._session_at = 0.0
        self._session_for: frozenset[str] | None = None
        self._session_pause_seconds = _SESSION_PAUSE_SECONDS

    def update(self, now: float, *, missing: bool, at_once: bool) -> None:
        """Update whether GPUs are missing; if not, the probes stop, except for one that is to run `at_once`."""
        if at_once:
            self._due_at, self._changed = now, True
        if not missing:
            self._missing_since = None
            self._pause_seconds, self._session_for = _PROBE_PAUSE_SECONDS, None
            if not self._changed:
                self._due_at = None
        elif self._missing_since is None:
            self._missing_since = now
            self._due_at = now + _FIRST_PROBE_SECONDS if self._due_at is None else self._due_at

    def submit(self, now: float) -> None:
        """Start a probe if one is due and none is running."""
        probe = self._probe
        due = self._due_at is not None and now >= max(self._due_at, self._earliest_at)
        if probe is None or not due or not self.lane.ready():
            return
        self._changed = False
        self._earliest_at = now + _PROBE_PAUSE_SECONDS
        self._due_at = None
        if self._missing_since is not None:
            self._due_at = now + self._pause_seconds
            if now - self._missing_since >= _PROBE_BACKOFF_AFTER_SECONDS:
                self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self.lane.submit(lambda: self._run(probe))

    def needs_new_session(self, back: frozenset[str], now: float) -> bool:
        """Whether to reopen NVML now for GPUs `back` elsewhere (none: only indices differ); if so, a pause begins."""
        if back != self._session_for:
            self._session_for, self._session_pause_seconds = back, _SESSION_PAUSE_SECONDS
        elif now < self._session_at:
            return False
        self._session_at = now + self._session_pause_seconds
        self._session_pause_seconds = min(2 * self._session_pause_seconds, _LONGEST_PAUSE_SECONDS)
        return True

    def _run(self, probe: Probe) -> None:
        try:
            report = probe.look()
        except ProbeFailed as failed:
            log.warning("the search for missing GPUs failed", extra=fields(cause=str(failed)))
            return
        self._report(report)
