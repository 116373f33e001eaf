"""Throttling: which reasons are active, and for how long, from counters of the driver that are checked."""

import logging
import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import version_numbers
from gpu_triage.log import fields
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound, max_gap_seconds
from gpu_triage.read.metrics.driver_counters import DriverCounter, Integral
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge, gpu_info

STANDS_STILL: Final = "stands_still"
TOO_FAST: Final = "too_fast"
FAULTS: Final = (STANDS_STILL, TOO_FAST)
"""Possible faults of a counter."""

_FASTEST: Final = 1.5
"""Growth in seconds per second above which a counter is implausible; above 1 to allow for clock jitter."""
_MOST_STRIKES: Final = 3  # implausible readings before the counter is rejected
_SOUND_READINGS: Final = 30  # plausible readings in a row that cancel an implausible one
_ENOUGH_SAMPLES: Final = 10
_WITHIN_SECONDS: Final = 60.0
_WITHIN_INTERVALS: Final = 20
"""With slow sampling, a minute has too few samples; then the window is this many intervals."""
_APART_SECONDS: Final = 0.9
"""Faster samples count once per second, since the driver need not update its counters more often."""


class ThrottleCounter:
    """One driver counter in seconds, checked against elapsed time and against its reason bit.

    If the bit is set while the counter does not move, the counter is wrong. The reverse proves nothing: the driver
    counts pulses too short for any sample, and on some boards time that no bit reflects.
    """

    __slots__ = ("_counter", "_last_raw", "_moved_at", "_sound_readings", "_stood_still", "_strikes", "_within_seconds")

    def __init__(self, interval_seconds: float) -> None:
        self._counter = DriverCounter()
        self._sound_readings = 0
        self._strikes = 0
        self._last_raw: float | None = None
        self._moved_at = -math.inf
        self._stood_still: deque[float] = deque(maxlen=_ENOUGH_SAMPLES)
        self._within_seconds = max(_WITHIN_SECONDS, _WITHIN_INTERVALS * interval_seconds)

    @property
    def total_seconds(self) -> float:
        return self._counter.total

    @property
    def fault(self) -> str | None:
        """Fault of the counter, one of FAULTS; None while it is plausible."""
        if self._strikes >= _MOST_STRIKES:
            return TOO_FAST
        seen = self._stood_still
        if len(seen) < _ENOUGH_SAMPLES:
            return None
        lately = seen[-1] - seen[0] < self._within_seconds
        return STANDS_STILL if lately and seen[-1] - self._moved_at >= self._within_seconds else None

    def add(self, raw_seconds: float, at: float, answered_at: float, *, active: bool) -> bool:
        """Add a reading taken from `at` to `answered_at` (monotonic seconds); False if it grew too fast for that."""
        self._watch(raw_seconds, at, active=active)
        grown = self._counter.grown(raw_seconds, answered_at)
        too_fast = grown is not None and grown[0] > _most_growth(grown[1])
        if too_fast and not self._counter.resumes(raw_seconds, answered_at, _most_growth):
            self._strikes += 1
            self._sound_readings = 0
            return False
        self._sound_readings += 1
        if self._sound_readings >= _SOUND_READINGS:
            self._sound_readings, self._strikes = 0, max(0, self._strikes - 1)
        self._counter.add(raw_seconds, at)
        return True

    def _watch(self, raw_seconds: float, at: float, *, active: bool) -> None:
        """Record when the counter last moved, and the samples with the bit set since then."""
        if raw_seconds != self._last_raw:
            self._moved_at = self._moved_at if self._last_raw is None else at
            self._last_raw = raw_seconds
            self._stood_still.clear()
        elif active and (not self._stood_still or at - self._stood_still[-1] >= _APART_SECONDS):
            self._stood_still.append(at)


def _most_growth(seconds: float) -> float:
    return seconds * _FASTEST + 1


log = logging.getLogger(__name__)

REASONS: Final = {
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
"""Label to bit of nvmlClocksEventReasons and the older nvmlClocksThrottleReasons."""

UNKNOWN: Final = "unknown"  # label for all bits without a name here
UNKNOWN_BITS: Final = ~sum(REASONS.values())
_COMMON_BITS: Final = 0x1FF
"""The reasons taken as supported if the driver does not report them."""
_NANOSECONDS: Final = 1e9
_SUPPORTED_FOR_SECONDS: Final = 60.0
"""The reasons a GPU supports do not depend on load, so they are cached."""
_MOST_NANOSECONDS: Final = 10 * 365 * 86_400 * _NANOSECONDS

_SELDOM: Final = frozenset({"board_limit", "reliability"})
_ALWAYS_FIELDS: Final = {"sw_power_cap": 74, "sync_boost": 76, "board_limit": 77, "reliability": 79}
"""NVML_FI_DEV_PERF_POLICY_*. DCGM reads them as nanoseconds, like the newer counters with fields of their own."""
_THERMAL_POLICY: Final = {"sw_thermal": 75}
"""Counter of software thermal slowdown for drivers without a separate one (nvmlDeviceGetViolationStatus, nvml.h)."""

GPU_THROTTLE_ACTIVE = gpu_gauge(
    "1 while the driver reports this reason for the current clocks; --metrics.profile full also has 0 for other "
    "supported reasons.",
    labels={"reason": (*REASONS, UNKNOWN)},
    default_samples=lambda sample: bool(sample.value),
    source="nvmlDeviceGetCurrentClocksEventReasons",
)
GPU_THROTTLE_SECONDS_TOTAL = gpu_counter(
    "Seconds for which this reason held the clocks: the driver's own counter if it has a correct one (see "
    "gpu_throttle_counter_rejected_info), else integrated from gpu_throttle_active since the exporter started. Never "
    "decreases while the exporter runs. board_limit and reliability are only in --metrics.profile full while 0.",
    labels={"reason": (*REASONS, UNKNOWN)},
    default_samples=lambda sample: sample.value > 0 or sample.labels[-1] not in _SELDOM,
    source="fields 74 to 77, 79 and others, else the integral of gpu_throttle_active",
)
GPU_THROTTLE_COUNTER_REJECTED_INFO = gpu_info(
    "A reason with a wrong driver counter, by cause ({cause}): it stood still while the driver reported the reason "
    "in 10 samples of a minute, or gained more than a second per second. gpu_throttle_seconds_total is then "
    "integrated until the exporter restarts.",
    labels={"reason": (*REASONS, UNKNOWN), "cause": FAULTS},
    source="the exporter, from successive readings",
)


@dataclass(frozen=True, slots=True)
class ThrottleReading:
    """Reasons for the current clocks; `rejected` has the fault of each driver counter that is not used, by reason."""

    active: Annotated[Mapping[str, bool] | None, GPU_THROTTLE_ACTIVE]
    seconds: Annotated[Mapping[str, float], GPU_THROTTLE_SECONDS_TOTAL]
    rejected: Annotated[Mapping[str, str], GPU_THROTTLE_COUNTER_REJECTED_INFO] = field(default_factory=dict)


def counter_fields(driver_version: str | None) -> Mapping[str, int]:
    """Field ID of each reason's counter in nanoseconds, for this driver version.

    The IDs of the three slowdown counters were renumbered between releases, and in other releases the same IDs mean
    something else, so the header's constants cannot be trusted.
    >>> counter_fields("575.57.08")["hw_thermal"], counter_fields("580.95.05")["hw_thermal"]
    (252, 270)
    >>> counter_fields("550.54.14")["sw_thermal"]
    75
    """
    version = version_numbers(driver_version)
    if version >= (580, 82):
        return {**_ALWAYS_FIELDS, "sw_thermal": 269, "hw_thermal": 270, "hw_power_brake": 271}
    if version >= (575, 51):
        return {**_ALWAYS_FIELDS, "sw_thermal": 251, "hw_thermal": 252, "hw_power_brake": 253}
    return {**_ALWAYS_FIELDS, **_THERMAL_POLICY}


class ThrottleReader:
    """Reads the reasons and their counters; integrates reasons that the driver does not count.

    A reason keeps its source: the driver's counter if the first reading had one, else the integral. A counter that
    turns out to be wrong is permanently replaced by the integral, which continues from its total.
    """

    def __init__(self, max_gap_seconds: float, interval_seconds: float = 1.0) -> None:
        self._interval_seconds = interval_seconds
        self._integrals = defaultdict[str, Integral](partial(Integral, max_gap_seconds))
        self._counters: dict[str, ThrottleCounter] | None = None
        self._rejected: dict[str, str] = {}
        self._supported: int | None = None
        self._supported_at = -math.inf

    def read(self, gpu: GpuRound) -> ThrottleReading:
        inquiry, at = gpu.inquiry, gpu.at.monotonic
        active = self._active(inquiry, at)
        ids = counter_fields(gpu.versions.driver)
        raw = inquiry.fields(ids.values())
        counted = {reason: raw[i] for reason, i in ids.items() if i in raw}
        # The counter may have grown until the driver answered, so a slow call does not make it implausible.
        answered_at = max(at, gpu.machine.clock.now().monotonic)
        if self._counters is None:
            if active is None and not counted:
                return ThrottleReading(None, {})
            self._counters = {reason: ThrottleCounter(self._interval_seconds) for reason in counted}
        reported = active or {}
        seconds: dict[str, float] = {}
        for reason, counter in tuple(self._counters.items()):
            nanoseconds = inquiry.within(counted.get(reason), 0, _MOST_NANOSECONDS)
            if nanoseconds is None:
                continue
            if not counter.add(nanoseconds / _NANOSECONDS, at, answered_at, active=reported.get(reason, False)):
                inquiry.failures.append("implausible")
            seconds[reason] = counter.total_seconds
            if counter.fault is not None:
                del self._counters[reason]
                self._integrals[reason].total_seconds = counter.total_seconds
                self._rejected[reason] = counter.fault
                _log_rejected(gpu, reason, ids[reason], counter.fault)
        for reason, is_active in reported.items():
            if reason not in self._counters:
                self._integrals[reason].add(float(is_active), at)
                seconds[reason] = self._integrals[reason].total_seconds
        return ThrottleReading(active, seconds, dict(self._rejected))

    def _active(self, inquiry: Inquiry, at: float) -> dict[str, bool] | None:
        bits = inquiry.first("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        if self._supported is None or at - self._supported_at >= _SUPPORTED_FOR_SECONDS:
            self._supported_at = at
            self._supported = inquiry.first(
                "nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"
            )
        mask = bits | (_COMMON_BITS if self._supported is None else self._supported)
        active = {reason: bool(bits & bit) for reason, bit in REASONS.items() if mask & bit}
        active[UNKNOWN] = bool(bits & UNKNOWN_BITS)
        return active


def _log_rejected(gpu: GpuRound, reason: str, field_id: int, cause: str) -> None:
    device, driver = gpu.inquiry.device, gpu.versions.driver
    about = fields(gpu=device.index, uuid=device.uuid, reason=reason, cause=cause, field=field_id, driver=driver)
    log.warning("the driver's counter of a throttle reason is not used", extra=about)


THROTTLE = GpuCollector(
    about="throttle reasons and their time",
    tier=Tier.FAST,
    reader=lambda config: ThrottleReader(max_gap_seconds(config), config.sample_fast_seconds).read,
)
