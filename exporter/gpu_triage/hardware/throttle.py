"""What holds the clocks back, and for how long it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpu_triage.hardware.integrals import Continued, Integral
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.rounds import GpuRound

REASONS: Final = MappingProxyType(
    {
        "idle": 0x1,
        "applications_clocks": 0x2,
        "sw_power_cap": 0x4,
        "hw_slowdown": 0x8,
        "sync_boost": 0x10,
        "sw_thermal": 0x20,
        "hw_thermal": 0x40,
        "hw_power_brake": 0x80,
        "display_clocks": 0x100,
        "board_limit": 0x200,
        "reliability": 0x400,
    }
)
"""Label to bit of nvmlClocksEventReasons and the older nvmlClocksThrottleReasons."""

UNKNOWN: Final = "unknown"
"""Label of all bits that have no name here."""

_KNOWN_BITS: Final = sum(REASONS.values())
_COMMON_BITS: Final = 0x1FF
_NANOSECONDS: Final = 1e9
_FASTEST: Final = 1.5
"""Seconds of throttling per second beyond which a counter is not one; the rest is for the clocks' jitter."""

_ALWAYS_FIELDS: Final = {"sw_power_cap": 74, "sync_boost": 76}


@dataclass(frozen=True, slots=True)
class ThrottleReading:
    """Reasons for the present clocks.

    Attributes:
        active: reason to whether it applies now; only reasons this GPU supports. None when not reported.
        seconds: reason to how long it has applied; never goes back.
    """

    active: Mapping[str, bool] | None
    seconds: Mapping[str, float]


def counter_fields(driver_version: str | None) -> Mapping[str, int]:
    """Reason to the field id of its counter in nanoseconds, for the driver at hand.

    The ids of the three slowdown counters were renumbered between releases, and on the other releases the same
    ids mean something else, so the header's constants cannot be trusted.
    """
    match = re.match(r"(\d+)\.(\d+)", driver_version or "")
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version >= (580, 82):
        return {**_ALWAYS_FIELDS, "sw_thermal": 269, "hw_thermal": 270, "hw_power_brake": 271}
    if version >= (575, 51):
        return {**_ALWAYS_FIELDS, "sw_thermal": 251, "hw_thermal": 252, "hw_power_brake": 253}
    return _ALWAYS_FIELDS


class ThrottleReader:
    """Reads the reasons and their counters; integrates what the driver does not count.

    A reason keeps its source: the driver's counter if there was one at the first reading, else the integral.
    A counter that runs faster than time is not what its id promises, and gives way to the integral for good.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._integrals: dict[str, Integral] = {}
        self._counters: dict[str, _DriverCounter] | None = None

    def read(self, gpu: GpuRound) -> ThrottleReading:
        """Reasons now (nvmlDeviceGetCurrentClocksEventReasons, fields of `counter_fields`)."""
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        active = _active(inquiry)
        ids = counter_fields(gpu.versions.driver)
        raw = inquiry.fields(ids.values())
        raw_seconds = {reason: raw[i] / _NANOSECONDS for reason, i in ids.items() if i in raw}
        if self._counters is None and (active is not None or raw_seconds):
            self._counters = {reason: _DriverCounter() for reason in raw_seconds}
        return ThrottleReading(active, self._seconds(inquiry, active or {}, raw_seconds, at))

    def _seconds(
        self, inquiry: Inquiry, active: Mapping[str, bool], raw_seconds: Mapping[str, float], at: float
    ) -> dict[str, float]:
        seconds: dict[str, float] = {}
        counters = self._counters or {}
        for reason, counter in list(counters.items()):
            if reason not in raw_seconds:
                continue
            total = counter.add(raw_seconds[reason], at)
            if total is None:
                inquiry.failures.append("implausible")
                del counters[reason]
                self._integrals[reason] = Integral(self._max_gap_seconds)
                self._integrals[reason].total_seconds = counter.total_seconds
            else:
                seconds[reason] = total
        for reason, is_active in active.items():
            if reason not in counters:
                integral = self._integrals.setdefault(reason, Integral(self._max_gap_seconds))
                seconds[reason] = integral.add(float(is_active), at)
        return seconds


class _DriverCounter:
    """One driver counter in seconds, checked against time."""

    __slots__ = ("_accepted_at", "_continued", "total_seconds")

    def __init__(self) -> None:
        self._continued = Continued()
        self._accepted_at: float | None = None
        self.total_seconds = 0.0

    def add(self, raw_seconds: float, at: float) -> float | None:
        """The total; None when the counter outran time by more than jitter explains."""
        if self._accepted_at is not None:
            grown_seconds = raw_seconds - self._continued.accepted
            if grown_seconds > (at - self._accepted_at) * _FASTEST + 1:
                return None
        self.total_seconds = self._continued.add(raw_seconds)
        if self._continued.accepted == raw_seconds:
            self._accepted_at = at
        return self.total_seconds


def _active(inquiry: Inquiry) -> dict[str, bool] | None:
    bits = inquiry.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    if bits is None:
        return None
    supported = inquiry.first("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons")
    mask = (_COMMON_BITS if supported is None else supported) | bits
    active = {reason: bool(bits & bit) for reason, bit in REASONS.items() if mask & bit}
    active[UNKNOWN] = bool(bits & ~_KNOWN_BITS)
    return active
