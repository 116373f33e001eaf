"""SM activity from GPM: SM active, occupancy, tensor cores, memory bandwidth and floating-point pipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.gpm import GpmMeter, GpmMetrics
from gpu_triage.driver.nvml.session import Device
from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.read.metrics.contract import GpuCollector, max_gap_seconds
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

GPU_SM_ACTIVE_RATIO = gpu_gauge(
    "gpu_sm_active_ratio",
    "Share of the SMs that were busy, averaged since the last round, 0-1. Hopper and later; absent in the first "
    "round and without permission for GPM.",
    source="GPM metric 2 (SM_UTIL)",
)
GPU_SM_OCCUPANCY_RATIO = gpu_gauge(
    "gpu_sm_occupancy_ratio",
    "Warps resident on the SMs as a share of the most there can be, averaged since the last round, 0-1. Presence as "
    "gpu_sm_active_ratio.",
    source="GPM metric 3 (SM_OCCUPANCY)",
)
GPU_TENSOR_ACTIVE_RATIO = gpu_gauge(
    "gpu_tensor_active_ratio",
    "Share of time the SMs did tensor operations of any kind, averaged since the last round, 0-1. Presence as "
    "gpu_sm_active_ratio.",
    source="GPM metric 5 (ANY_TENSOR_UTIL)",
)
GPU_DRAM_ACTIVE_RATIO = gpu_gauge(
    "gpu_dram_active_ratio",
    "Device memory bandwidth in use as a share of the most there can be, averaged since the last round, 0-1. "
    "Presence as gpu_sm_active_ratio.",
    source="GPM metric 10 (DRAM_BW_UTIL)",
)
GPU_FP64_ACTIVE_RATIO = gpu_gauge(
    "gpu_fp64_active_ratio",
    "Share of time the SMs did FP64 arithmetic outside the tensor cores, averaged since the last round, 0-1. "
    "Presence as gpu_sm_active_ratio.",
    source="GPM metric 11 (FP64_UTIL)",
)
GPU_FP32_ACTIVE_RATIO = gpu_gauge(
    "gpu_fp32_active_ratio",
    "Share of time the SMs did FP32 arithmetic outside the tensor cores, averaged since the last round, 0-1. "
    "Presence as gpu_sm_active_ratio.",
    source="GPM metric 12 (FP32_UTIL)",
)
GPU_FP16_ACTIVE_RATIO = gpu_gauge(
    "gpu_fp16_active_ratio",
    "Share of time the SMs did FP16 arithmetic outside the tensor cores, averaged since the last round, 0-1. "
    "Presence as gpu_sm_active_ratio.",
    source="GPM metric 13 (FP16_UTIL)",
)


@dataclass(frozen=True, slots=True)
class GpmReading:
    """Averages since the last round, 0-1; None where not reported."""

    sm_active_ratio: Annotated[float | None, GPU_SM_ACTIVE_RATIO]
    sm_occupancy_ratio: Annotated[float | None, GPU_SM_OCCUPANCY_RATIO]
    tensor_active_ratio: Annotated[float | None, GPU_TENSOR_ACTIVE_RATIO]
    dram_active_ratio: Annotated[float | None, GPU_DRAM_ACTIVE_RATIO]
    fp64_active_ratio: Annotated[float | None, GPU_FP64_ACTIVE_RATIO]
    fp32_active_ratio: Annotated[float | None, GPU_FP32_ACTIVE_RATIO]
    fp16_active_ratio: Annotated[float | None, GPU_FP16_ACTIVE_RATIO]


_METRIC_IDS: Final = {
    "sm_active_ratio": nvml_gpm.SM_ACTIVE,
    "sm_occupancy_ratio": nvml_gpm.SM_OCCUPANCY,
    "tensor_active_ratio": nvml_gpm.TENSOR_ACTIVE,
    "dram_active_ratio": nvml_gpm.DRAM_ACTIVE,
    "fp64_active_ratio": nvml_gpm.FP64_ACTIVE,
    "fp32_active_ratio": nvml_gpm.FP32_ACTIVE,
    "fp16_active_ratio": nvml_gpm.FP16_ACTIVE,
}
"""Fields of GpmReading to GPM metric IDs."""


class GpmAccess:
    """Whether a GPU's GPM is available. A negative answer or a refusal is cached for the slow tier's interval."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._device: Device | None = None
        self._granted = False
        self._ask_again_at = 0.0

    def granted(self, gpu: GpuRound) -> bool:
        """Whether the GPU supports GPM (nvmlGpmQueryDeviceSupport) and has not recently denied access."""
        device, at = gpu.inquiry.device, gpu.at.monotonic
        if device is not self._device or (not self._granted and at >= self._ask_again_at):
            support = gpu.inquiry.ask("nvmlGpmQueryDeviceSupport")
            self._device = device
            self._granted = support is not None and bool(support.isSupportedDevice)
            self._ask_again_at = at + self._retry_seconds
        return self._granted

    def lost(self, gpu: GpuRound, failures: list[str]) -> bool:
        """Whether these failures mean access was denied, as happens once a container is no longer privileged."""
        if nvml_gpm.NO_PERMISSION not in failures:
            return False
        self._granted = False
        self._ask_again_at = gpu.at.monotonic + self._retry_seconds
        return True


class DeviceGpm:
    """GPM of a whole GPU; keeps the last sample between rounds.

    A refusal is cached for `retry_seconds`; averages over more than `max_gap_seconds` are not reported.
    """

    def __init__(self, metrics: GpmMetrics, max_gap_seconds: float, retry_seconds: float) -> None:
        self._access = GpmAccess(retry_seconds)
        self._meter = GpmMeter(metrics, max_gap_seconds)
        self._device: Device | None = None

    @property
    def spanned_seconds(self) -> float:
        """Time covered by the averages of the last round; 0 if there are none, or if they were already reported."""
        return self._meter.spanned_seconds

    def read(self, gpu: GpuRound) -> Mapping[int, float] | None:
        """Averages since the last round by metric ID; None without GPM: before Hopper, or without permission."""
        if gpu.inquiry.device is not self._device:
            self._meter.close()
            self._device = gpu.inquiry.device
        try:
            averages = self._meter.read(gpu.inquiry, gpu.at, gpu.machine.clock) if self._access.granted(gpu) else None
        except (GpuUnavailable, DriverUnavailable):
            self._meter.close()
            raise
        if self._access.lost(gpu, gpu.inquiry.failures):
            self._meter.close()
            return None
        return averages


class GpmReader:
    """Reads GPM; keeps the last sample between rounds."""

    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._gpm = DeviceGpm(GpmMetrics(*_METRIC_IDS.values()), max_gap_seconds, retry_seconds)

    def read(self, gpu: GpuRound) -> GpmReading:
        """Activity since the last round; empty before Hopper, in the first round, and without permission."""
        ratios = self._gpm.read(gpu) or {}
        return GpmReading(**{field: ratios.get(metric_id) for field, metric_id in _METRIC_IDS.items()})


GPM = GpuCollector(
    name="gpm",
    about="activity inside the SMs (GPM, Hopper and later)",
    tier=Tier.FAST,
    reader=lambda config: GpmReader(max_gap_seconds(config), config.sample_slow_seconds).read,
)
