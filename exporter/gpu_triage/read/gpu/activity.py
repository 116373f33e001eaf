"""How busy a GPU is: its SMs and memory, encoder and decoder, and what GPM measures of each."""

from collections.abc import Hashable, Iterable, Mapping
from ctypes import c_uint
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.gpm import GpmMeter, GpmMetrics
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.machine import Moment
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound, max_gap_seconds
from gpu_triage.read.metrics.driver_counters import Grown, Integral
from gpu_triage.read.metrics.metric import MetricSpec, Tier, gpu_counter, gpu_gauge

TOTAL_POWER, GPU_UTILIZATION = 0, 1
"""NVML_TOTAL_POWER_SAMPLES (milliwatts) and NVML_GPU_UTILIZATION_SAMPLES (percent) of nvmlSamplingType_t."""
SILENCE_SECONDS: Final = 3.0
"""After this long without a new sample, the driver has stopped sampling."""

_UNSIGNED_INT: Final = 1
"""NVML_VALUE_TYPE_UNSIGNED_INT: the type of both kinds of samples."""
_AHEAD_SECONDS: Final = 1.0
"""Samples carry wall-clock timestamps; one in the future dates from before the clock was set back."""


class SampleRing:
    """What the driver samples of a GPU and keeps for a while: each sample once, without values above `most`."""

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


_SLOWEST_STATE: Final = 15
_MOST_PERCENT: Final = 100

GPU_SM_UTILIZATION_RATIO = gpu_gauge(
    "Share of the driver's last sample period in which at least one kernel ran, 0-1; not occupancy. Absent in MIG "
    "mode.",
    source="nvmlDeviceGetUtilizationRates.gpu",
)
GPU_MEMORY_UTILIZATION_RATIO = gpu_gauge(
    "Share of the driver's last sample period in which device memory was read or written, 0-1.",
    source="nvmlDeviceGetUtilizationRates.memory",
)
GPU_BUSY_SECONDS_TOTAL = gpu_counter(
    "Seconds in which at least one kernel ran since the exporter started.",
    source="nvmlDeviceGetSamples(GPU_UTILIZATION), else nvmlDeviceGetUtilizationRates.gpu",
)
GPU_OBSERVED_SECONDS_TOTAL = gpu_counter(
    "Seconds that gpu_busy_seconds_total covers: divide by them. Fewer than passed if readings come late, as on a host "
    "without CPU time for the exporter.",
    source="the exporter",
)
GPU_PERFORMANCE_STATE = gpu_gauge(
    "P-state, 0 (fastest) to 15 (slowest); absent if the driver does not report it.",
    source="nvmlDeviceGetPerformanceState",
)


@dataclass(frozen=True, slots=True)
class ActivityReading:
    sm_utilization_ratio: Annotated[float | None, GPU_SM_UTILIZATION_RATIO]
    memory_utilization_ratio: Annotated[float | None, GPU_MEMORY_UTILIZATION_RATIO]
    busy_seconds: Annotated[float | None, GPU_BUSY_SECONDS_TOTAL]
    performance_state: Annotated[int | None, GPU_PERFORMANCE_STATE]
    observed_seconds: Annotated[float | None, GPU_OBSERVED_SECONDS_TOTAL] = None


class ActivityReader:
    """Reads activity and integrates busy time, from the driver's sample buffer if available, else by polling."""

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._polled = Integral(max_gap_seconds)
        self._busy_seconds = self._observed_seconds = 0.0
        self._ring = SampleRing(GPU_UTILIZATION, _MOST_PERCENT)
        self._progress_at: float | None = None

    def read(self, gpu: GpuRound) -> ActivityReading:
        inquiry = gpu.inquiry
        rates = inquiry.ask("nvmlDeviceGetUtilizationRates")
        sm, memory = (inquiry.ratio(rates.gpu), inquiry.ratio(rates.memory)) if rates else (None, None)
        state = inquiry.ask("nvmlDeviceGetPerformanceState")
        known_state = state is not None and 0 <= state <= _SLOWEST_STATE
        # In MIG mode samples may continue, but they are meaningless.
        if sm is not None:
            polled = self._polled.add(sm, gpu.at.monotonic)
            busy, observed = self._sampled(inquiry, gpu.at) or polled
            self._busy_seconds += busy
            self._observed_seconds += observed
        return ActivityReading(
            sm_utilization_ratio=sm,
            memory_utilization_ratio=memory,
            busy_seconds=None if sm is None else self._busy_seconds,
            performance_state=state if known_state else None,
            observed_seconds=None if sm is None else self._observed_seconds,
        )

    def _sampled(self, inquiry: Inquiry, at: Moment) -> Grown | None:
        """Seconds in new driver samples; None if polling must be used instead."""
        if self._ring.clock_was_set(at):
            self._progress_at = None
        seen_us = self._ring.newest_us
        fresh = self._ring.take(inquiry, at)
        if not fresh:
            if self._progress_at is not None and at.monotonic - self._progress_at < SILENCE_SECONDS:
                # The buffer still covers this period: the next samples include it, so polling would count it twice.
                return Grown(0.0, 0.0)
            self._ring.newest_us = 0
            return None
        if seen_us == 0:
            # Ignore what the buffer held before this process started counting.
            return None
        busy = observed = 0.0
        for stamp, percent in fresh:
            seconds = (stamp - seen_us) / 1e6
            if seconds <= self._max_gap_seconds:
                busy += percent / 100 * seconds
                observed += seconds
            seen_us = stamp
        self._progress_at = at.monotonic
        return Grown(busy, observed)


ACTIVITY = GpuCollector(
    about="utilization, busy time and performance state",
    tier=Tier.FAST,
    reader=lambda config: ActivityReader(max_gap_seconds(config)).read,
)

GPU_ENCODER_UTILIZATION_RATIO = gpu_gauge(
    "Share of time the video encoder was busy, 0-1.", source="nvmlDeviceGetEncoderUtilization"
)
GPU_DECODER_UTILIZATION_RATIO = gpu_gauge(
    "Share of time the video decoder was busy, 0-1.", source="nvmlDeviceGetDecoderUtilization"
)
GPU_ENCODER_SESSIONS = gpu_gauge(
    "Open sessions of the video encoder (NVENC) in all processes. GeForce drivers allow only a few. Absent if the "
    "driver does not count them.",
    source="nvmlDeviceGetEncoderStats",
    default_samples=lambda sample: sample.value > 0,
)
GPU_JPEG_UTILIZATION_RATIO = gpu_gauge(
    "Share of time the JPEG engine was busy, 0-1. Turing and later.", source="nvmlDeviceGetJpgUtilization"
)

_MOST_SESSIONS: Final = 4096  # more than any driver allows on one GPU


@dataclass(frozen=True, slots=True)
class MediaReading:
    encoder_utilization_ratio: Annotated[float | None, GPU_ENCODER_UTILIZATION_RATIO]
    decoder_utilization_ratio: Annotated[float | None, GPU_DECODER_UTILIZATION_RATIO]
    encoder_sessions: Annotated[int | None, GPU_ENCODER_SESSIONS] = None
    jpeg_utilization_ratio: Annotated[float | None, GPU_JPEG_UTILIZATION_RATIO] = None


def read_media(gpu: GpuRound) -> MediaReading:
    stats = gpu.inquiry.ask("nvmlDeviceGetEncoderStats")  # [sessions, average frames per second, average latency in µs]
    return MediaReading(
        encoder_sessions=gpu.inquiry.within(stats[0] if stats else None, 0, _MOST_SESSIONS),
        encoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetEncoderUtilization"),
        decoder_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetDecoderUtilization"),
        jpeg_utilization_ratio=_ratio(gpu.inquiry, "nvmlDeviceGetJpgUtilization"),
    )


def _ratio(inquiry: Inquiry, function: str) -> float | None:
    answer = inquiry.ask(function)  # [percent, sampling period in µs]
    return inquiry.ratio(answer[0] if answer else None)


MEDIA = GpuCollector("video encoder and decoder", Tier.MEDIUM, lambda _config: read_media)

GPU_SM_ACTIVE_RATIO = gpu_gauge(
    "Share of SMs busy, averaged since the last round, 0-1. Hopper and later; absent in the first round and without "
    "permission for GPM.",
    source="GPM 2 (SM_UTIL)",
)


def _gpm(what: str, number: str) -> MetricSpec:
    when = "averaged since the last round, 0-1. Absent when gpu_sm_active_ratio is."
    return gpu_gauge(f"{what}, {when}", source=f"GPM {number}")


GPU_SM_OCCUPANCY_RATIO = _gpm("Resident warps as a share of the maximum", "3 (SM_OCCUPANCY)")
GPU_TENSOR_ACTIVE_RATIO = _gpm("Share of time in tensor operations of any kind", "5 (ANY_TENSOR_UTIL)")
GPU_DRAM_ACTIVE_RATIO = _gpm("Device memory bandwidth in use as a share of the maximum", "10 (DRAM_BW_UTIL)")
_OUTSIDE_TENSOR = "arithmetic outside the tensor cores"
GPU_FP64_ACTIVE_RATIO = _gpm(f"Share of time in FP64 {_OUTSIDE_TENSOR}", "11 (FP64_UTIL)")
GPU_FP32_ACTIVE_RATIO = _gpm(f"Share of time in FP32 {_OUTSIDE_TENSOR}", "12 (FP32_UTIL)")
GPU_FP16_ACTIVE_RATIO = _gpm(f"Share of time in FP16 {_OUTSIDE_TENSOR}", "13 (FP16_UTIL)")


@dataclass(frozen=True, slots=True)
class GpmReading:
    sm_active_ratio: Annotated[float | None, GPU_SM_ACTIVE_RATIO]
    sm_occupancy_ratio: Annotated[float | None, GPU_SM_OCCUPANCY_RATIO]
    tensor_active_ratio: Annotated[float | None, GPU_TENSOR_ACTIVE_RATIO]
    dram_active_ratio: Annotated[float | None, GPU_DRAM_ACTIVE_RATIO]
    fp64_active_ratio: Annotated[float | None, GPU_FP64_ACTIVE_RATIO]
    fp32_active_ratio: Annotated[float | None, GPU_FP32_ACTIVE_RATIO]
    fp16_active_ratio: Annotated[float | None, GPU_FP16_ACTIVE_RATIO]


_METRIC_IDS: Final = (
    *(nvml_gpm.SM_ACTIVE, nvml_gpm.SM_OCCUPANCY, nvml_gpm.TENSOR_ACTIVE, nvml_gpm.DRAM_ACTIVE),
    *(nvml_gpm.FP64_ACTIVE, nvml_gpm.FP32_ACTIVE, nvml_gpm.FP16_ACTIVE),
)
"""Of the fields of GpmReading, in their order."""

WHOLE: Final = "whole"
_WHOLE_GPU: Final[Mapping[Hashable, int | None]] = {WHOLE: None}


class Gpm:
    """GPM of a GPU, or of its MIG instances; keeps their last samples between rounds.

    A refusal is cached for `retry_seconds`; averages over more than `max_gap_seconds` are not reported.
    """

    def __init__(self, ids: Iterable[int], max_gap_seconds: float, retry_seconds: float) -> None:
        self._metrics = GpmMetrics(*ids)
        self._max_gap_seconds = max_gap_seconds
        self._retry_seconds = retry_seconds
        self._meters: dict[Hashable, GpmMeter] = {}
        self._device: Device | None = None
        self._granted = False
        self._ask_again_at = 0.0

    @property
    def spanned_seconds(self) -> float:
        """Time covered by the averages of the last round; 0 if there are none, or if they were already reported."""
        return max((meter.spanned_seconds for meter in self._meters.values()), default=0.0)

    def read(
        self, gpu: GpuRound, instances: Mapping[Hashable, int | None] = _WHOLE_GPU
    ) -> Mapping[Hashable, Mapping[int, float]] | None:
        """Averages since the last round by instance, then by metric ID; None without GPM or permission.

        GPM exists since Hopper. Instances are IDs by any key that is not used again; None is the whole GPU.
        """
        averages: dict[Hashable, Mapping[int, float]] = {}
        inquiry = gpu.inquiry
        try:
            self._keep(instances if instances and self._is_granted(gpu) else {})
            for key, meter in self._meters.items():
                before = len(inquiry.failures)
                averages[key] = meter.read(inquiry, gpu.at, gpu.machine.clock)
                if nvml_gpm.NO_PERMISSION in inquiry.failures[before:]:
                    # Happens once a container is no longer privileged.
                    self._granted = False
                    self._ask_again_at = gpu.at.monotonic + self._retry_seconds
                    self.close()
                    return None
        except (GpuUnavailable, DriverUnavailable):
            self.close()
            raise
        return averages if self._meters else None

    def close(self) -> None:
        """Free the samples: they belong to the NVML session."""
        self._keep({})

    def _is_granted(self, gpu: GpuRound) -> bool:
        """Whether the GPU supports GPM (nvmlGpmQueryDeviceSupport) and has not recently denied access."""
        device, at = gpu.inquiry.device, gpu.at.monotonic
        if device is not self._device or (not self._granted and at >= self._ask_again_at):
            self.close()
            support = gpu.inquiry.ask("nvmlGpmQueryDeviceSupport")
            self._device = device
            self._granted = support is not None and bool(support.isSupportedDevice)
            self._ask_again_at = at + self._retry_seconds
        return self._granted

    def _keep(self, instances: Mapping[Hashable, int | None]) -> None:
        """Keep exactly one meter per instance; an instance that was recreated gets a new one."""
        for gone in self._meters.keys() - instances.keys():
            self._meters.pop(gone).close()
        for key, instance in instances.items():
            if key not in self._meters:
                self._meters[key] = GpmMeter(self._metrics, self._max_gap_seconds, instance)


class GpmReader:
    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._gpm = Gpm(_METRIC_IDS, max_gap_seconds, retry_seconds)

    def read(self, gpu: GpuRound) -> GpmReading:
        """Activity since the last round; empty before Hopper, in the first round, and without permission."""
        averages = self._gpm.read(gpu) or {}
        return GpmReading(*map(averages.get(WHOLE, {}).get, _METRIC_IDS))


GPM = GpuCollector(
    about="activity inside the SMs (GPM, Hopper and later)",
    tier=Tier.FAST,
    reader=lambda config: GpmReader(max_gap_seconds(config), config.sample_slow_seconds).read,
)
