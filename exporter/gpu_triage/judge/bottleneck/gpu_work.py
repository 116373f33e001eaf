"""When a GPU last worked, how busy it was before it became idle, and when it became idle or resumed."""

from __future__ import annotations

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.read.gpu.activity import (
    GPU_BUSY_SECONDS_TOTAL,
    GPU_DECODER_UTILIZATION_RATIO,
    GPU_ENCODER_UTILIZATION_RATIO,
)
from gpu_triage.read.gpu.mig import GPU_MIG_SM_ACTIVE_RATIO
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO


class Work:
    """History of a GPU's work."""

    def __init__(self) -> None:
        self.worked_recently = False  # within the last hour
        self.pace = 0.0  # busy share of the minute before it became idle; 0 if it never worked
        self.stopped_seconds = 0.0  # how long it has been idle directly after working; 0 if it is not
        self.recovering = False  # whether it resumed at its pace after a pause that is still in the window
        self._worked_at: float | None = None
        self._workers: frozenset[str] = frozenset()  # PIDs with which it last worked; empty if unknown
        self._pids: frozenset[str] = frozenset()  # PIDs at the last reading, perhaps of a job that has just begun
        self._rests_since: float | None = None
        self._resumed_at: float | None = None
        self._worked_seconds = 0.0
        self._read: tuple[float, float] | None = None

    @property
    def paused(self) -> bool:
        """Whether it is idle directly after working, no longer than a job that saves a checkpoint."""
        return 0.0 < self.stopped_seconds < thresholds.HUNG_SECONDS

    def note(self, gpu: GpuEvidence, now: float) -> None:
        """Add what was read since the last call."""
        window_share = gpu.busy_share or 0.0
        if window_share >= thresholds.WORKING_SHARE:
            self._worked_at = now
        before = self._read
        share = self._share(gpu)
        if share is not None and before is not None and self._read is not None:
            self._take(share, before[0], self._read[0])
        self.recovering = self._recovers(now)
        if self._rests_since is None and not self.recovering:
            self.pace = window_share
        self.worked_recently = self._worked_at is not None and now - self._worked_at <= thresholds.WORKED_SECONDS
        same_job = self._same_job(gpu)
        rests = self._rests_since is not None and self.pace >= thresholds.WORKED_SHARE and same_job
        self.stopped_seconds = now - (self._rests_since or 0.0) if rests else 0.0

    def _same_job(self, gpu: GpuEvidence) -> bool:
        """Whether a process with which it worked is still there; the next job may load for minutes."""
        pids = frozenset(labels["pid"] for labels in gpu.labels_of(GPU_PROCESS_INFO))
        if self._rests_since is None or not self._workers:
            self._workers = self._pids
        self._pids = pids
        return not pids or not self._workers or bool(pids & self._workers)

    def _take(self, share: float, began_at: float, ended_at: float) -> None:
        if share < thresholds.WORKING_SHARE:
            if self._rests_since is None:
                self._rests_since = began_at
            return
        if self._rests_since is not None:
            paused_seconds, self._rests_since = began_at - self._rests_since, None
            if paused_seconds >= thresholds.PAUSE_SECONDS:
                # Pauses in quick succession do not count: something keeps the job waiting.
                alone = self._resumed_at is None or began_at - self._resumed_at > thresholds.PAUSES_APART_SECONDS
                self._resumed_at, self._worked_seconds = (began_at if alone else None), 0.0
        self._worked_seconds += share * (ended_at - began_at)

    def _recovers(self, now: float) -> bool:
        if self._resumed_at is None or self.pace < thresholds.WORKED_SHARE:
            return False
        seconds = now - self._resumed_at
        at_pace = self._worked_seconds >= thresholds.SAME_PACE * self.pace * seconds
        return seconds < thresholds.WINDOW_SECONDS and (at_pace or seconds < thresholds.RECENT_SECONDS)

    def _share(self, gpu: GpuEvidence) -> float | None:
        """Return the share of time since the last reading in which it worked; None without a new reading."""
        busy = gpu.one(GPU_BUSY_SECONDS_TOTAL)
        # Without a counter, as under MIG, use the busiest instance's activity for the time since then.
        activity = max(gpu.series(GPU_MIG_SM_ACTIVE_RATIO), key=lambda each: each.last, default=None)
        series = busy or activity
        before = self._read
        if series is None:
            self._read = None
            return None
        if before is not None and series.last_at <= before[0]:
            return None
        self._read = (series.last_at, series.last)
        if before is None:
            return None
        video = (gpu.last(GPU_ENCODER_UTILIZATION_RATIO) or 0.0, gpu.last(GPU_DECODER_UTILIZATION_RATIO) or 0.0)
        kernels = series.last if busy is None else (series.last - before[1]) / (series.last_at - before[0])
        return max(kernels, *video)
