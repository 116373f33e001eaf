"""Is the GPU doing work: utilisation, the time it was busy, and its performance state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.integrals import Integral
from gpu_triage.hardware.nvml import Inquiry
from gpu_triage.hardware.rounds import GpuRound

GPU_UTILIZATION_SAMPLES: Final = 1
"""NVML_GPU_UTILIZATION_SAMPLES of nvmlSamplingType_t."""

_SLOWEST_STATE: Final = 15
_MOST_PERCENT: Final = 100
_SILENCE_SECONDS: Final = 3.0
"""The driver samples several times a second; no new sample for so long means its clock was stepped."""


@dataclass(frozen=True, slots=True)
class ActivityReading:
    """What one GPU did lately; None where not reported.

    Attributes:
        sm_utilization_ratio: share of the driver's last period with at least one kernel resident, 0-1.
        memory_utilization_ratio: share of it in which device memory was read or written, 0-1.
        busy_seconds: integral of the former since the first reading.
        performance_state: P-state, 0 (fastest) to 15.
    """

    sm_utilization_ratio: float | None
    memory_utilization_ratio: float | None
    busy_seconds: float | None
    performance_state: int | None


class ActivityReader:
    """Reads activity and integrates busy time, from the driver's own sample buffer where there is one."""

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._polled = Integral(max_gap_seconds)
        self._busy_seconds = 0.0
        self._newest_us = 0
        self._progress_at: float | None = None

    def read(self, gpu: GpuRound) -> ActivityReading:
        """Activity now (nvmlDeviceGetUtilizationRates, nvmlDeviceGetSamples, nvmlDeviceGetPerformanceState)."""
        inquiry = gpu.inquiry
        rates = inquiry.ask("nvmlDeviceGetUtilizationRates")
        sm = _ratio(inquiry, rates.gpu) if rates else None
        memory = _ratio(inquiry, rates.memory) if rates else None
        state = inquiry.ask("nvmlDeviceGetPerformanceState")
        known_state = state is not None and 0 <= state <= _SLOWEST_STATE
        return ActivityReading(
            sm_utilization_ratio=sm,
            memory_utilization_ratio=memory,
            busy_seconds=self._busy(inquiry, sm, gpu.at.monotonic),
            performance_state=state if known_state else None,
        )

    def _busy(self, inquiry: Inquiry, sm: float | None, at: float) -> float | None:
        if sm is None:
            # In MIG mode the samples may go on, but they mean nothing there.
            return None
        before = self._polled.total_seconds
        polled_seconds = self._polled.add(sm, at) - before
        sampled_seconds = self._sampled_seconds(inquiry, at)
        self._busy_seconds += polled_seconds if sampled_seconds is None else sampled_seconds
        return self._busy_seconds

    def _sampled_seconds(self, inquiry: Inquiry, at: float) -> float | None:
        """Busy seconds in the driver's samples not yet seen; None where polling must serve."""
        answer = inquiry.many("nvmlDeviceGetSamples", GPU_UTILIZATION_SAMPLES, self._newest_us)
        if answer is None:
            return None
        samples = sorted((s.timeStamp, s.sampleValue.uiVal) for s in answer[1]) if answer else []
        fresh = [(stamp, percent) for stamp, percent in samples if stamp > self._newest_us and percent <= _MOST_PERCENT]
        if not fresh:
            if self._progress_at is not None and at - self._progress_at < _SILENCE_SECONDS:
                return 0.0
            self._newest_us = 0
            return None
        first_time = self._newest_us == 0
        busy_seconds = 0.0
        previous_us = fresh[0][0] if first_time else self._newest_us
        for stamp, percent in fresh:
            seconds = (stamp - previous_us) / 1e6
            if seconds <= self._max_gap_seconds:
                busy_seconds += percent / 100 * seconds
            previous_us = stamp
        self._newest_us = previous_us
        self._progress_at = at
        # What the buffer held before the first look is not this process's to count.
        return None if first_time else busy_seconds


def _ratio(inquiry: Inquiry, percent: float) -> float | None:
    plausible = inquiry.within(percent, 0, 100)
    return None if plausible is None else plausible / 100
