"""License of a vGPU; without one, its driver throttles it 20 minutes after the virtual machine booted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.structs import VGPU_MODE, licensed_features
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import ANY, Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

GPU_VGPU_LICENSE_STATE = gpu_gauge(
    "gpu_vgpu_license_state",
    "License of a vGPU in a virtual machine, by the licensed product: {states}. NVML reports unlicensed or licensed; "
    "only files of nvidia-smi tell whether restrictions already apply. Absent on GPUs that are not vGPUs.",
    labels={"product": ANY},
    states={0: "unlicensed", 1: "licensed", 2: "unlicensed, not yet restricted", 3: "unlicensed, restricted"},
    source="nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures",
)

LICENSED: Final = GPU_VGPU_LICENSE_STATE.value_of("licensed")
UNLICENSED: Final = GPU_VGPU_LICENSE_STATE.value_of("unlicensed")


@dataclass(frozen=True, slots=True)
class VgpuLicenseReading:
    """License state by product, as in gpu_vgpu_license_state; empty on GPUs that are not vGPUs."""

    states: Annotated[Mapping[str, int], GPU_VGPU_LICENSE_STATE]


def read_vgpu_license(gpu: GpuRound) -> VgpuLicenseReading:
    """Read the licenses (nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures)."""
    if gpu.inquiry.ask("nvmlDeviceGetVirtualizationMode") != VGPU_MODE:
        return VgpuLicenseReading({})
    features = licensed_features(gpu.inquiry)
    return VgpuLicenseReading({product: LICENSED if licensed else UNLICENSED for product, licensed in features.items()})


VGPU_LICENSE = GpuCollector("vgpu_license", "the license of a vGPU", Tier.SLOW, lambda _config: read_vgpu_license)
