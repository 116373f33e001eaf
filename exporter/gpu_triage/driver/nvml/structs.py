"""NVML calls that need a versioned struct from the caller."""

from collections.abc import Sequence
from ctypes import c_uint
from typing import Any, Final

import pynvml

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.errors import GpuUnavailable

MEMORY_V2: Final[int] = pynvml.nvmlMemory_v2
"""Version argument that makes nvmlDeviceGetMemoryInfo report reserved memory separately."""

_BUSES: Final = 256  # per PCI domain
FABRIC_COMPLETED: Final = 3  # NVML_GPU_FABRIC_STATE_COMPLETED: joining has finished, successfully or not
_BYTE: Final = 0xFF
"""nvmlGpuFabricState_t is one byte in C. pynvml reads four; the other three are padding that may not be zeroed."""


def sram_threshold_exceeded(inquiry: Inquiry) -> bool | None:
    """Whether uncorrected SRAM errors exceeded the board's threshold (nvmlDeviceGetSramEccErrorStatus).

    None before Ampere, with drivers before r550, and without root if the driver requires it.
    """
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    answer = inquiry.ask_privileged("nvmlDeviceGetSramEccErrorStatus", status)
    return None if answer is None else inquiry.flag(status.bThresholdExceeded)


_UNREPAIRABLE_VERSION: Final = 0x1000008  # pynvml.nvmlUnrepairableMemory_v1: version 1, 8 bytes


def memory_unrepairable(inquiry: Inquiry) -> bool | None:
    """Whether device memory cannot be repaired (nvmlDeviceGetUnrepairableMemoryFlag_v1); Hopper and later, r590.

    The struct is the flag alone in nvml.h; in pynvml and DCGM, a version comes before it, and pynvml's wrapper misses
    what a library of the first kind writes.
    """
    words = (c_uint * 2)(_UNREPAIRABLE_VERSION)
    if not inquiry.fill("nvmlDeviceGetUnrepairableMemoryFlag_v1", words):
        return None
    first, second = words
    return inquiry.flag(second if first == _UNREPAIRABLE_VERSION else first)


def repairs_pending(inquiry: Inquiry) -> Sequence[bool | None]:
    """Whether a memory channel, and a TPC, wait to be repaired (nvmlDeviceGetRepairStatus); [] before Ampere and r580.

    A GPU that must be reset may return that error for this call and still answer others: nvidia-smi then prints
    "Channel Repair Pending : GPU requires reset" beside other values.
    """
    try:
        answer = inquiry.ask("nvmlDeviceGetRepairStatus")
    except GpuUnavailable as gone:
        inquiry.failures.append(gone.reason)
        return []
    return [inquiry.flag(pending) for pending in answer or ()]


def fabric_info(inquiry: Inquiry) -> Any | None:
    """Read the state in an NVSwitch fabric (nvmlDeviceGetGpuFabricInfoV) as a struct; None if unsupported or failed.

    It is a c_nvmlGpuFabricInfo_v3_t, or before r570 a …_v2_t, which lacks healthSummary.
    """
    for struct in (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t):
        info = struct()
        if inquiry.ask("nvmlDeviceGetGpuFabricInfoV", info) is not None:
            info.state &= _BYTE
            return info
    return None


def power_profile_masks(inquiry: Inquiry) -> tuple[Sequence[int], Sequence[int]] | None:
    """Bit masks of the requested and the enforced workload power profiles, in 32-bit words; None if unsupported."""
    profiles = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    if inquiry.ask("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", profiles) is None:
        return None
    return profiles.requestedProfilesMask.mask, profiles.enforcedProfilesMask.mask


def in_fabric(inquiry: Inquiry) -> bool:
    """Whether the GPU has joined an NVSwitch fabric."""
    info = fabric_info(inquiry)
    return info is not None and info.state == FABRIC_COMPLETED


def far_end(inquiry: Inquiry, link: int) -> str:
    """PCI address of the device at the other end of an NVLink (nvmlDeviceGetNvLinkRemotePciInfo_v2), as in sysfs.

    "" if the driver does not name it. Drivers return different errors for an open link: none counts as a failure.
    """
    before = len(inquiry.failures)
    info = inquiry.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
    del inquiry.failures[before:]
    # All zeros means the struct was not filled, all ones that the bus does not answer.
    if info is None or info.bus >= _BUSES or not any((info.domain, info.bus, info.device)):
        return ""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


PASSED_THROUGH_MODE: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH
"""Result of nvmlDeviceGetVirtualizationMode in a virtual machine that has the whole GPU."""
VGPU_MODE: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
"""Result of nvmlDeviceGetVirtualizationMode in a virtual machine with a vGPU."""


def licensed_features(inquiry: Inquiry) -> dict[str, bool]:
    """Whether each enabled vGPU product is licensed, by product name (nvmlDeviceGetGridLicensableFeatures)."""
    answer = inquiry.ask("nvmlDeviceGetGridLicensableFeatures")
    if answer is None or not answer.isGridLicenseSupported:
        return {}
    count = inquiry.within(answer.licensableFeaturesCount, 0, pynvml.NVML_GRID_LICENSE_FEATURE_MAX_COUNT)
    features = answer.gridLicensableFeatures[: count or 0]
    enabled = [feature for feature in features if feature.featureEnabled] or features
    # Bypass pynvml's attribute hook, which raises if a name is not UTF-8.
    products = [type(feature).productName.__get__(feature).decode("utf-8", "replace").strip() for feature in enabled]
    return {product: bool(feature.featureState) for product, feature in zip(products, enabled, strict=True)}
