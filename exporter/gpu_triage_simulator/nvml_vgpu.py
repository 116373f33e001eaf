"""NVML functions of virtual machines: whether a GPU is a vGPU, and its license."""

from __future__ import annotations

from ctypes import c_int
from typing import Final

from gpu_triage_simulator.nvml_calls import OUT, Function, at, put
from gpu_triage_simulator.nvml_library import GRID_FEATURES, GRID_LICENSE_COMPUTE, NOT_VIRTUAL, PASSED_THROUGH, VGPU
from gpu_triage_simulator.nvml_session import Device
from gpu_triage_simulator.vgpu_effect import VgpuLicense


def _license(device: Device) -> VgpuLicense | None:
    return device.host.timeline.latest(VgpuLicense, device.state.index, device.state.seconds)


def _virtualization_mode(device: Device, out: int | None) -> None:
    whole = PASSED_THROUGH if device.host.scenario.machine.virtual else NOT_VIRTUAL
    put(c_int, out, whole if _license(device) is None else VGPU)


def _licensable_features(device: Device, out: int | None) -> None:
    features, vgpu = at(GRID_FEATURES, out), _license(device)
    features.isGridLicenseSupported = int(vgpu is not None)
    features.licensableFeaturesCount = int(vgpu is not None)
    if vgpu is not None:
        feature = features.gridLicensableFeatures[0]
        feature.featureCode, feature.featureEnabled = GRID_LICENSE_COMPUTE, 1
        feature.featureState = int(vgpu.licensed)
        feature.productName = vgpu.product.encode()


FUNCTIONS: Final = (
    Function("nvmlDeviceGetVirtualizationMode", (OUT,), _virtualization_mode),
    Function("nvmlDeviceGetGridLicensableFeatures_v4", (OUT,), _licensable_features, since=510),
)
