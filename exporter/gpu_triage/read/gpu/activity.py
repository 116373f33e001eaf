"""GPU activity: utilization, busy time and performance state."""

from __future__ import annotations

from ctypes import c_uint
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.machine import Moment
from gpu_triage.read.metrics.contract import GpuCollector, max_gap_seconds
from gpu_triage.read.metrics.integrals import Integral
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

GPU_UTILIZATION_SAMPLES: Final = 1
"""NVML_GPU_UTILIZATION_SAMPLES of nvmlSamplingType_t."""

_SLOWEST_STATE: Final = 15
_MOST_PERCENT: Final = 100
_UNSIGNED_INT: Final = 1
"""NVML_VALUE_TYPE_UNSIGNED_INT: the type of utilization samples."""
_SILENCE_SECONDS: Final = 3.0
"""The driver samples several times per second; after this long without a new sample, it has stopped."""
_AHEAD_SECONDS: Final = 1.0
"""Samples carry wall-clock timestamps; one in the future dates from before the clock was set back."""

GPU_SM_UTILIZATION_RATIO = gpu_gauge(
    "gpu_sm_utilization_ratio",
    "Share of the driver's last sample period in which at least one kernel ran, 0-1; not occupancy. Absent in MIG "
    "mode.",
    source="nvmlDeviceGetUtilizationRates.gpu",
)
GPU_MEMORY_UTILIZATION_RATIO = gpu_gauge(
    "gpu_memory_utilization_ratio",
    "Share of the driver's last sample period in which device memory was read or written, 0-1.",
    source="nvmlDeviceGetUtilizationRates.memory",
)
GPU_BUSY_SECONDS_TOTAL = gpu_counter(
    "gpu_busy_seconds_total",
    "Seconds in which at least one kernel ran, integrated since the exporter started; misses nothing between scrapes.",
    source="nvmlDeviceGetSamples(GPU_UTILIZATION), else the integral of nvmlDeviceGetUtilizationRates.gpu",
)
GPU_PERFORMANCE_STATE = gpu_gauge(
    "gpu_performance_state",
    "P-state, 0 (fastest) to 15 (slowest); absent when the driver does not know it.",
    source="nvmlDeviceGetPerformanceState",
)


@dataclass(frozen=True, slots=True)
class ActivityReading:
    """Recent activity of one GPU; None where not reported."""

    sm_utilization_ratio: Annotated[float | None, GPU_SM_UTILIZATION_RATIO]
    memory_utilization_ratio: Annotated[float | None, GPU_MEMORY_UTILIZATION_RATIO]
    busy_seconds: Annotated[float | None, GPU_BUSY_SECONDS_TOTAL]
    performance_state: Annotated[int | None, GPU_PERFORMANCE_STATE]


class ActivityReader:
    """Reads activity and integrates busy time, from the driver's sample buffer if available, else by polling."""

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._polled = Integral(max_gap_seconds)
        self._busy_seconds = 0.0
        self._newest_us = 0
        self._progress_at: float | None = None
        self._wall_ahead: float | None = None

    def read(self, gpu: GpuRound) -> ActivityReading:
        """Read activity (nvmlDeviceGetUtilizationRates, nvmlDeviceGetSamples, nvmlDeviceGetPerformanceState)."""
        inquiry = gpu.inquiry
        rates = inquiry.ask("nvmlDeviceGetUtilizationRates")
        sm, memory = (inquiry.ratio(rates.gpu), inquiry.ratio(rates.memory)) if rates else (None, None)
        state = inquiry.ask("nvmlDeviceGetPerformanceState")
        known_state = state is not None and 0 <= state <= _SLOWEST_STATE
        return ActivityReading(
            sm_utilization_ratio=sm,
            memory_utilization_ratio=memory,
            busy_seconds=self._busy(inquiry, sm, gpu.at),
            performance_state=state if known_state else None,
        )

    def _busy(self, inquiry: Inquiry, sm: float | None, at: Moment) -> float | None:
        if sm is None:
            # In MIG mode samples may continue, but they are meaningless.
            return None
        before = self._polled.total_seconds
        polled_seconds = self._polled.add(sm, at.monotonic) - before
        sampled_seconds = self._sampled_seconds(inquiry, at)
        self._busy_seconds += polled_seconds if sampled_seconds is None else sampled_seconds
        return self._busy_seconds

    def _sampled_seconds(self, inquiry: Inquiry, at: Moment) -> float | None:
        """Busy seconds in new driver samples; None if polling must be used instead."""
        wall_ahead = at.wall - at.monotonic
        if self._wall_ahead is not None and abs(wall_ahead - self._wall_ahead) > _AHEAD_SECONDS:
            # The wall clock was set, so timestamps no longer show which samples were already seen.
            self._newest_us, self._progress_at = 0, None
        self._wall_ahead = wall_ahead
        fresh = self._fresh_samples(inquiry, (at.wall + _AHEAD_SECONDS) * 1e6)
        if not fresh:
            if self._progress_at is not None and at.monotonic - self._progress_at < _SILENCE_SECONDS:
                # The buffer still covers this period: the next samples include it, so polling would count it twice.
                return 0.0
            self._newest_us = 0
            return None
        if self._newest_us == 0:
            # Ignore what the buffer held before this process started counting.
            self._newest_us = fresh[-1][0]
            return None
        busy_seconds = 0.0
        for stamp, percent in fresh:
            seconds = (stamp - self._newest_us) / 1e6
            if seconds <= self._max_gap_seconds:
                busy_seconds += percent / 100 * seconds
            self._newest_us = stamp
        self._progress_at = at.monotonic
        return busy_seconds

    def _fresh_samples(self, inquiry: Inquiry, latest_us: float) -> list[tuple[int, int]] | None:
        """Timestamp in µs and percent of new samples, oldest first; None if there are no samples at all."""
        value_type = c_uint(_UNSIGNED_INT)
        samples = inquiry.many("nvmlDeviceGetSamples", GPU_UTILIZATION_SAMPLES, self._newest_us, value_type)
        if samples is None:
            return None
        if samples and value_type.value != _UNSIGNED_INT:
            inquiry.failures.append("malformed")
            return None
        stamped = sorted((sample.timeStamp, sample.sampleValue.uiVal) for sample in samples)
        return [
            (at, percent) for at, percent in stamped if self._newest_us < at <= latest_us and percent <= _MOST_PERCENT
        ]


ACTIVITY = GpuCollector(
    name="activity",
    about="utilization, busy time and performance state",
    tier=Tier.FAST,
    reader=lambda config: ActivityReader(max_gap_seconds(config)).read,
)
