"""UUIDs of a GPU's MIG devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device

_MOST_DEVICES: Final = 64
"""More than any GPU supports; a higher count is treated as garbage."""


def read_mig_uuids(inquiry: Inquiry) -> Mapping[tuple[int, int], str]:
    """UUIDs (``MIG-…``) of a GPU's MIG devices by (GPU instance ID, compute instance ID); empty without MIG.

    Source: nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGet{UUID,GpuInstanceId,ComputeInstanceId} of that

    Raises:
        GpuUnavailable: the GPU is lost or needs a reset.
        DriverUnavailable: NVML as a whole is gone.
    """
    count = inquiry.within(inquiry.ask("nvmlDeviceGetMaxMigDeviceCount"), 0, _MOST_DEVICES) or 0
    found: dict[tuple[int, int], str] = {}
    for index in range(count):
        handle = inquiry.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is None:
            continue
        instance = Inquiry(Device(inquiry.device.index, "", None, handle), inquiry.call)
        uuid = instance.ask("nvmlDeviceGetUUID")
        gpu_id, compute_id = instance.ask("nvmlDeviceGetGpuInstanceId"), instance.ask("nvmlDeviceGetComputeInstanceId")
        inquiry.failures += instance.failures
        if uuid is not None and gpu_id is not None and compute_id is not None:
            found[gpu_id, compute_id] = uuid
    return found
