"""Schedules probes: another process looks for GPUs that this process's NVML session cannot see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gpu_triage.errors import ProbeFailed
from gpu_triage.machine import Probe, ProbeReport
from gpu_triage.sampler.lanes import Lane

log = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 10.0
"""Minimum interval between two probes, and the interval used at first."""
_BACKOFF_AFTER_SECONDS: Final = 120.0
"""After this time, the interval between probes for a lost GPU starts to double."""
_LONGEST_PAUSE_SECONDS: Final = 900.0
_SESSION_PAUSE_SECONDS: Final = 15.0
"""Minimum interval between two sessions opened for the same GPUs; doubles after each unsuccessful one."""


class ProbeSchedule:
    """Schedules the probes and records their results. Only the sampler's thread calls it; the probes run in its lane.

    While GPUs are missing, a probe runs every ten seconds, and after two minutes less and less often.
    """

    def __init__(self, probe: Probe | None, lane: Lane, report: Callable[[ProbeReport], None]) -> None:
        self.lane = lane  # where the probes run
        self.session_seconds = 0.0  # how long the last probe took to open a session and query all GPUs
        self._changed = False
        self._probe = probe
        self._report = report
        self._due_at: float | None = None
        self._missing_since: float | None = None
        self._pause_seconds = _PAUSE_SECONDS
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
            self._pause_seconds, self._session_for = _PAUSE_SECONDS, None
            if not self._changed:
                self._due_at = None
        elif self._missing_since is None:
            self._missing_since = now
            self._due_at = now + _FIRST_SECONDS if self._due_at is None else self._due_at

    def submit(self, now: float) -> None:
        """Start a probe if one is due and none is running."""
        probe = self._probe
        due = self._due_at is not None and now >= max(self._due_at, self._earliest_at)
        if probe is None or not due or not self.lane.ready():
            return
        self._changed = False
        self._earliest_at = now + _PAUSE_SECONDS
        self._due_at = None
        if self._missing_since is not None:
            self._due_at = now + self._pause_seconds
            if now - self._missing_since >= _BACKOFF_AFTER_SECONDS:
                self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self.lane.submit(lambda: self._run(probe))

    def needs_new_session(self, back: frozenset[str], now: float) -> bool:
        """Whether to reinitialize NVML now for GPUs that another process can see; True also starts the next pause.

        `back` are their keys; empty if only the indices differ.
        """
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
            log.warning("the search for missing GPUs failed", extra={"fields": {"cause": str(failed)}})
            return
        self._report(report)
