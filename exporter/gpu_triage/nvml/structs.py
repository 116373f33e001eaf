"""Questions whose pynvml wrapper wants a struct from its caller, and the version numbers that go with them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pynvml

from gpu_triage.nvml.inquiry import Inquiry

MEMORY_V2: Final[int] = pynvml.nvmlMemory_v2
"""Version argument that makes nvmlDeviceGetMemoryInfo tell reserved memory apart."""

_BUSES: Final = 256
"""Of one PCI domain."""

FABRIC_COMPLETED: Final = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED: joining has ended, well or not."""

_UNICAST: Final = 0
"""NVML_GPU_FABRIC_CLIQUE_TYPE_UNICAST_POINTER: the clique whose GPUs reach each other's memory."""

_BYTE: Final = 0xFF
"""nvmlGpuFabricState_t is a byte in C. pynvml reads four, of which the others are padding that nobody need clear."""


def sram_threshold_exceeded(inquiry: Inquiry) -> bool | None:
    """Whether uncorrected SRAM errors passed the board's threshold (nvmlDeviceGetSramEccErrorStatus).

    None before Ampere, on drivers older than r550, and without root where the driver asks for it.
    """
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    answer = inquiry.ask_privileged("nvmlDeviceGetSramEccErrorStatus", status)
    return None if answer is None else inquiry.flag(status.bThresholdExceeded)


@dataclass(frozen=True, slots=True)
class FabricInfo:
    """What the driver says of the NVSwitch fabric, in its own numbers.

    Attributes:
        state: nvmlGpuFabricState_t.
        status: nvmlReturn_t with which joining the fabric ended; to be looked at once the state is "completed".
        health_summary: NVML_GPU_FABRIC_HEALTH_SUMMARY_*; None from drivers that give none.
        health_mask: fields of NVML_GPU_FABRIC_HEALTH_MASK_*, each 0 where it is not supported; 0 from drivers without.
        cluster_uuid: of the fabric that spans several hosts; "" within one host.
        clique: which GPUs of that fabric reach each other.
    """

    state: int
    status: int
    health_summary: int | None
    health_mask: int = 0
    cluster_uuid: str = ""
    clique: int = 0


def fabric_info(inquiry: Inquiry) -> FabricInfo | None:
    """The fabric (nvmlDeviceGetGpuFabricInfoV, else …_v4); None where unsupported or failed.

    Version 3 of the struct has the summary, version 2 serves drivers before r570. Version 4 has a function of its own
    and cliques by kind; it is asked where a driver no longer knows the others.
    """
    latest = pynvml.c_nvmlGpuFabricInfo_v3_t()
    if inquiry.ask("nvmlDeviceGetGpuFabricInfoV", latest) is not None:
        summary, mask = latest.healthSummary, latest.healthMask
        cluster = _uuid(bytes(latest.clusterUuid))
        return FabricInfo(latest.state & _BYTE, latest.status, summary, mask, cluster, latest.cliqueId)
    older = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if inquiry.ask("nvmlDeviceGetGpuFabricInfoV", older) is not None:
        cluster = _uuid(bytes(older.clusterUuid))
        return FabricInfo(older.state & _BYTE, older.status, None, cluster_uuid=cluster, clique=older.cliqueId)
    return _fabric_info_v4(inquiry)


def _fabric_info_v4(inquiry: Inquiry) -> FabricInfo | None:
    if not hasattr(pynvml, "c_nvmlGpuFabricInfo_v4_t"):
        return None  # an nvidia-ml-py before 13.610
    info = pynvml.c_nvmlGpuFabricInfo_v4_t()
    if inquiry.ask("nvmlDeviceGetGpuFabricInfo_v4", info) is None:
        return None
    cliques = [clique.id for clique in info.cliques[: info.numCliques] if clique.type == _UNICAST]
    cluster = _uuid(bytes(info.clusterUuid))
    clique = cliques[0] if cliques else 0
    return FabricInfo(info.state, info.status, info.healthSummary, info.healthMask, cluster, clique)


def power_profile_masks(inquiry: Inquiry) -> tuple[Sequence[int], Sequence[int]] | None:
    """Bits of the workload power profiles that are requested and enforced, in words of 32; None where unsupported."""
    profiles = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    if inquiry.ask("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", profiles) is None:
        return None
    return profiles.requestedProfilesMask.mask, profiles.enforcedProfilesMask.mask


def _uuid(raw: bytes) -> str:
    """A UUID as nvidia-smi writes it; "" for none, which is all zeros."""
    return str(uuid.UUID(bytes=raw)) if any(raw) else ""


def in_fabric(inquiry: Inquiry) -> bool:
    """Whether the GPU has joined an NVSwitch fabric."""
    info = fabric_info(inquiry)
    return info is not None and info.state == FABRIC_COMPLETED


def far_end_named(inquiry: Inquiry, link: int) -> bool:
    """Whether the driver names what is at the other end of an NVLink link (nvmlDeviceGetNvLinkRemotePciInfo_v2).

    Drivers differ in how they say of a link that it leads nowhere: none of their errors is a failure here.
    """
    before = len(inquiry.failures)
    info = inquiry.ask("nvmlDeviceGetNvLinkRemotePciInfo", link)
    del inquiry.failures[before:]
    # An address of all zeros is a struct that nobody filled, one of all ones a bus that does not answer.
    return info is not None and info.bus < _BUSES and any((info.domain, info.bus, info.device))


VGPU_MODE: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
"""What nvmlDeviceGetVirtualizationMode answers in a virtual machine that has a part of a GPU."""


def licensed_features(inquiry: Inquiry) -> dict[str, bool]:
    """Whether each vGPU product that is enabled is licensed, by its name (nvmlDeviceGetGridLicensableFeatures).

    Empty where the driver has no licensing. Every product counts where none is called enabled.
    """
    answer = inquiry.ask("nvmlDeviceGetGridLicensableFeatures")
    if answer is None or not answer.isGridLicenseSupported:
        return {}
    count = inquiry.within(answer.licensableFeaturesCount, 0, pynvml.NVML_GRID_LICENSE_FEATURE_MAX_COUNT)
    features = answer.gridLicensableFeatures[: count or 0]
    enabled = [feature for feature in features if feature.featureEnabled] or features
    return {_product_of(feature): bool(feature.featureState) for feature in enabled}


def _product_of(feature: pynvml.c_nvmlGridLicensableFeature_v4_t) -> str:
    # The attribute as ctypes has it: pynvml's own raises for a name that is not UTF-8.
    raw: bytes = type(feature).productName.__get__(feature)
    return raw.decode("utf-8", "replace").strip()
