"""What the driver samples of a GPU by itself, several times per second, and keeps in a ring for a while."""

from __future__ import annotations

from ctypes import c_uint
from typing import Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.machine import Moment

TOTAL_POWER, GPU_UTILIZATION = 0, 1
"""NVML_TOTAL_POWER_SAMPLES (milliwatts) and NVML_GPU_UTILIZATION_SAMPLES (percent) of nvmlSamplingType_t."""
SILENCE_SECONDS: Final = 3.0
"""After this long without a new sample, the driver has stopped sampling."""

_UNSIGNED_INT: Final = 1
"""NVML_VALUE_TYPE_UNSIGNED_INT: the type of both kinds of samples."""
_AHEAD_SECONDS: Final = 1.0
"""Samples carry wall-clock timestamps; one in the future dates from before the clock was set back."""


class SampleRing:
    """Samples of one kind of one GPU, each taken once; values above `most` are left out."""

    def __init__(self, kind: int, most: int) -> None:
        self.newest_us = 0  # timestamp of the last one taken; 0 to take all that the driver has
        self._kind = kind
        self._most = most
        self._wall_ahead: float | None = None

    def clock_was_set(self, at: Moment) -> bool:
        """Whether the wall clock was set since the last call: timestamps no longer show which samples were taken."""
        before, self._wall_ahead = self._wall_ahead, at.wall - at.monotonic
        if before is None or abs(self._wall_ahead - before) <= _AHEAD_SECONDS:
            return False
        self.newest_us = 0
        return True

    def take(self, inquiry: Inquiry, at: Moment) -> list[tuple[int, int]] | None:
        """Timestamp in µs and value of new samples, oldest first; None if there are no samples at all."""
        value_type = c_uint(_UNSIGNED_INT)
        samples = inquiry.many("nvmlDeviceGetSamples", self._kind, self.newest_us, value_type, about=(self._kind,))
        if samples is None:
            return None
        if samples and value_type.value != _UNSIGNED_INT:
            inquiry.failures.append("malformed")
            return None
        latest_us = (at.wall + _AHEAD_SECONDS) * 1e6
        stamped = sorted((sample.timeStamp, sample.sampleValue.uiVal) for sample in samples)
        fresh = [
            (stamp, value) for stamp, value in stamped if self.newest_us < stamp <= latest_us and value <= self._most
        ]
        if fresh:
            self.newest_us = fresh[-1][0]
        return fresh
