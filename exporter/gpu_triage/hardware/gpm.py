"""What the SMs do while the GPU is busy: active, occupied, in tensor cores, waiting for memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.hardware import nvml_gpm
from gpu_triage.hardware.nvml import Device
from gpu_triage.hardware.nvml_gpm import GpmMeter, GpmMetrics
from gpu_triage.hardware.rounds import GpuRound


@dataclass(frozen=True, slots=True)
class GpmReading:
    """Averages since the last round, 0-1; None where not reported.

    Attributes:
        sm_active_ratio: share of the SMs that had a warp resident.
        sm_occupancy_ratio: warps resident, of as many as the SMs could hold.
        tensor_active_ratio: share of time the SMs' tensor cores were in use.
        dram_active_ratio: device memory traffic, of the most there can be.
        fp64_active_ratio: share of time the SMs did FP64 arithmetic outside the tensor cores.
        fp32_active_ratio: FP32, likewise.
        fp16_active_ratio: FP16, likewise.
    """

    sm_active_ratio: float | None
    sm_occupancy_ratio: float | None
    tensor_active_ratio: float | None
    dram_active_ratio: float | None
    fp64_active_ratio: float | None
    fp32_active_ratio: float | None
    fp16_active_ratio: float | None


class GpmAccess:
    """Whether one GPU's GPM may be asked. A no, or a refusal, holds for as long as the slow tier's interval."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._device: Device | None = None
        self._granted = False
        self._ask_again_at = 0.0

    def granted(self, gpu: GpuRound) -> bool:
        """Whether the GPU has GPM (nvmlGpmQueryDeviceSupport) and has not lately refused it."""
        device, at = gpu.inquiry.device, gpu.at.monotonic
        if device is not self._device or (not self._granted and at >= self._ask_again_at):
            support = gpu.inquiry.ask("nvmlGpmQueryDeviceSupport")
            self._device = device
            self._granted = support is not None and bool(support.isSupportedDevice)
            self._ask_again_at = at + self._retry_seconds
        return self._granted

    def lost(self, gpu: GpuRound, failures: list[str]) -> bool:
        """Whether these failures say that the driver refuses, as it does once a container is no longer privileged."""
        if nvml_gpm.NO_PERMISSION not in failures:
            return False
        self._granted = False
        self._ask_again_at = gpu.at.monotonic + self._retry_seconds
        return True


class GpmReader:
    """Reads GPM; keeps the last sample from round to round."""

    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._access = GpmAccess(retry_seconds)
        self._meter = GpmMeter(
            GpmMetrics(
                nvml_gpm.SM_ACTIVE,
                nvml_gpm.SM_OCCUPANCY,
                nvml_gpm.TENSOR_ACTIVE,
                nvml_gpm.DRAM_ACTIVE,
                nvml_gpm.FP64_ACTIVE,
                nvml_gpm.FP32_ACTIVE,
                nvml_gpm.FP16_ACTIVE,
            ),
            max_gap_seconds,
        )
        self._device: Device | None = None

    def read(self, gpu: GpuRound) -> GpmReading:
        """Activity since the last round; nothing before Hopper, in the first round, and without permission."""
        if gpu.inquiry.device is not self._device:
            self._meter.close()
            self._device = gpu.inquiry.device
        try:
            ratios = self._meter.read(gpu) if self._access.granted(gpu) else {}
        except (GpuUnavailable, DriverUnavailable):
            self._meter.close()
            raise
        if self._access.lost(gpu, gpu.inquiry.failures):
            self._meter.close()
        return GpmReading(
            sm_active_ratio=ratios.get(nvml_gpm.SM_ACTIVE),
            sm_occupancy_ratio=ratios.get(nvml_gpm.SM_OCCUPANCY),
            tensor_active_ratio=ratios.get(nvml_gpm.TENSOR_ACTIVE),
            dram_active_ratio=ratios.get(nvml_gpm.DRAM_ACTIVE),
            fp64_active_ratio=ratios.get(nvml_gpm.FP64_ACTIVE),
            fp32_active_ratio=ratios.get(nvml_gpm.FP32_ACTIVE),
            fp16_active_ratio=ratios.get(nvml_gpm.FP16_ACTIVE),
        )
