"""What holds the clocks back, and for how long it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final

from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.subjects.contract import GpuCollector, max_gap_seconds
from gpu_triage.subjects.integrals import Continued, Integral
from gpu_triage.subjects.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.subjects.plausible import BeforeFall
from gpu_triage.subjects.rounds import GpuRound

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
_MOST_STRIKES: Final = 3
"""Readings that outran time before the counter is given up."""
_SOUND_READINGS: Final = 30
"""So many plausible readings in a row make up for one that was not."""
_SUPPORTED_FOR_SECONDS: Final = 60.0
_MOST_SECONDS: Final = 10 * 365 * 86_400.0

_ALWAYS_FIELDS: Final = {"sw_power_cap": 74, "sync_boost": 76}

GPU_THROTTLE_ACTIVE = gpu_gauge(
    "gpu_throttle_active",
    "1 while the driver reports this reason for the current clocks. With --metrics.profile full, also 0 for every "
    "other reason that the GPU supports. A scrape can miss short throttling; gpu_throttle_seconds_total does not.",
    labels={"reason": (*REASONS, UNKNOWN)},
    brief=lambda sample: bool(sample.value),
    source="nvmlDeviceGetCurrentClocksEventReasons & nvmlDeviceGetSupportedClocksEventReasons",
)
GPU_THROTTLE_SECONDS_TOTAL = gpu_counter(
    "gpu_throttle_seconds_total",
    "Seconds for which this reason held the clocks: the driver's own counter where it has one, else integrated since "
    "the exporter started.",
    labels={"reason": (*REASONS, UNKNOWN)},
    source="fields 74, 76 and the slowdown counters of the driver at hand, else the integral of gpu_throttle_active",
)


@dataclass(frozen=True, slots=True)
class ThrottleReading:
    """Reasons for the present clocks."""

    active: Annotated[Mapping[str, bool] | None, GPU_THROTTLE_ACTIVE]
    seconds: Annotated[Mapping[str, float], GPU_THROTTLE_SECONDS_TOTAL]


def counter_fields(driver_version: str | None) -> Mapping[str, int]:
    """Reason to the field id of its counter in nanoseconds, for the driver at hand.

    The ids of the three slowdown counters were renumbered between releases, and on the other releases the same
    ids mean something else, so the header's constants cannot be trusted.

    >>> counter_fields("575.57.08")["hw_thermal"], counter_fields("580.95.05")["hw_thermal"]
    (252, 270)
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
    A reading that outruns time is dropped: the counter stays where it was. A counter that does it again and again is
    not what its id promises, and gives way to the integral for good.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._integrals: dict[str, Integral] = {}
        self._counters: dict[str, _DriverCounter] | None = None
        self._supported = _Supported()

    def read(self, gpu: GpuRound) -> ThrottleReading:
        """Reasons now (nvmlDeviceGetCurrentClocksEventReasons, fields of `counter_fields`)."""
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        active = self._active(inquiry, at)
        ids = counter_fields(gpu.versions.driver)
        raw = inquiry.fields(ids.values())
        # The driver may have counted on until its last answer: a slow call is not an implausible counter.
        answered_at = max(at, gpu.machine.clock.now().monotonic)
        raw_seconds = {reason: raw[i] / _NANOSECONDS for reason, i in ids.items() if i in raw}
        if self._counters is None and (active is not None or raw_seconds):
            self._counters = {reason: _DriverCounter() for reason in raw_seconds}
        seconds = self._counted(inquiry, raw_seconds, at, answered_at) | self._polled(active or {}, at)
        return ThrottleReading(active, seconds)

    def _active(self, inquiry: Inquiry, at: float) -> dict[str, bool] | None:
        bits = inquiry.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        mask = self._supported.bits(inquiry, at) | bits
        active = {reason: bool(bits & bit) for reason, bit in REASONS.items() if mask & bit}
        active[UNKNOWN] = bool(bits & ~_KNOWN_BITS)
        return active

    def _counted(
        self, inquiry: Inquiry, raw_seconds: Mapping[str, float], at: float, answered_at: float
    ) -> dict[str, float]:
        seconds: dict[str, float] = {}
        counters = self._counters or {}
        for reason, counter in list(counters.items()):
            if reason not in raw_seconds:
                continue
            raw = inquiry.within(raw_seconds[reason], 0, _MOST_SECONDS)
            if raw is None:
                continue
            if not counter.add(raw, at, answered_at):
                inquiry.failures.append("implausible")
            if counter.strikes < _MOST_STRIKES:
                seconds[reason] = counter.total_seconds
            else:
                del counters[reason]
                self._integrals[reason] = Integral(self._max_gap_seconds)
                self._integrals[reason].total_seconds = counter.total_seconds
        return seconds

    def _polled(self, active: Mapping[str, bool], at: float) -> dict[str, float]:
        seconds: dict[str, float] = {}
        counters = self._counters or {}
        for reason, is_active in active.items():
            if reason not in counters:
                integral = self._integrals.setdefault(reason, Integral(self._max_gap_seconds))
                seconds[reason] = integral.add(float(is_active), at)
        return seconds


class _Supported:
    """The reasons that a GPU can give. They do not change with its load, so they are asked for once a minute."""

    __slots__ = ("_asked_at", "_bits")

    def __init__(self) -> None:
        self._bits: int | None = None
        self._asked_at = 0.0

    def bits(self, inquiry: Inquiry, at: float) -> int:
        """The bits of those reasons; of the common ones where the driver does not tell."""
        if self._bits is None or at - self._asked_at >= _SUPPORTED_FOR_SECONDS:
            bits = inquiry.first(
                "nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"
            )
            self._bits, self._asked_at = bits, at
        return _COMMON_BITS if self._bits is None else self._bits


class _DriverCounter:
    """One driver counter in seconds, checked against time.

    Attributes:
        total_seconds: the counter to publish.
        strikes: readings that outran time, less those that were lived down since.
    """

    __slots__ = ("_accepted_at", "_before_fall", "_continued", "_sound_readings", "strikes", "total_seconds")

    def __init__(self) -> None:
        self._continued = Continued()
        self._before_fall: BeforeFall[Continued] = BeforeFall()
        self._accepted_at: float | None = None
        self._sound_readings = 0
        self.total_seconds = 0.0
        self.strikes = 0

    def add(self, raw_seconds: float, at: float, answered_at: float) -> bool:
        """Take in a reading; returns False for one that outran time by more than jitter explains.

        Args:
            raw_seconds: what the driver says.
            at: monotonic second before it was asked.
            answered_at: monotonic second after it answered.
        """
        if self._accepted_at is not None:
            grown_seconds = raw_seconds - self._continued.accepted
            if grown_seconds > _most_growth(answered_at - self._accepted_at):
                before = self._before_fall.continued(raw_seconds, answered_at, _most_growth)
                if before is None:
                    self.strikes += 1
                    self._sound_readings = 0
                    return False
                self._continued, self._accepted_at = before
            self._before_fall.note(self._continued, self._accepted_at, raw_seconds, at)
        self._sound_readings += 1
        if self._sound_readings >= _SOUND_READINGS:
            self._sound_readings, self.strikes = 0, max(0, self.strikes - 1)
        self.total_seconds = max(self.total_seconds, self._continued.add(raw_seconds))
        if self._continued.accepted == raw_seconds:
            self._accepted_at = at
        return True


def _most_growth(seconds: float) -> float:
    return seconds * _FASTEST + 1


THROTTLE = GpuCollector(
    name="throttle",
    about="throttle reasons and the time they took",
    tier=Tier.FAST,
    reader=lambda config: ThrottleReader(max_gap_seconds(config)).read,
)
