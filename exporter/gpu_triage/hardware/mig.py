"""MIG: the instances a GPU is cut into, their memory, and what their SMs do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.hardware import nvml_gpm
from gpu_triage.hardware.gpm import GpmAccess
from gpu_triage.hardware.modes import mig_mode
from gpu_triage.hardware.nvml import Device
from gpu_triage.hardware.nvml_gpm import GpmMeter, GpmMetrics
from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.nvml_structs import MEMORY_V2
from gpu_triage.hardware.rounds import GpuRound

MAX_MIG_DEVICES: Final = 64
"""Boards have at most 7 or 8; a driver that counts more than this counts junk, and is not followed."""

_MOST_BYTES: Final = 1 << 50
_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_PROFILE_IN_NAME: Final = re.compile(r" MIG ((?:\d+c\.)?\d+g\.\d+gb[\w.+-]*)$")
_MEMORY_EIGHTHS: Final = 8
_MOST_MEDIA_SLICES: Final = 2
"""Of instances up to this size only one can have the media extensions; larger ones are not named for them."""


@dataclass(frozen=True, slots=True)
class MigInstanceReading:
    """One MIG device: a compute instance on a GPU instance. None where not reported.

    Attributes:
        uuid: ``MIG-…``.
        gpu_instance: NVML's id of its GPU instance on this GPU.
        compute_instance: NVML's id of its compute instance on that.
        profile: as nvidia-smi names it (``1g.10gb``, ``1c.3g.40gb``); "" when the driver tells neither name nor sizes.
        memory_used_bytes: device memory allocated on its GPU instance.
        memory_total_bytes: device memory of its GPU instance.
        sm_active_ratio: share of its GPU instance's SMs that had a warp resident since the last round, 0-1.
        tensor_active_ratio: share of time their tensor cores were in use, likewise.
        dram_active_ratio: memory traffic of its GPU instance, of the most there can be, likewise.
    """

    uuid: str
    gpu_instance: int | None
    compute_instance: int | None
    profile: str
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class MigReading:
    """The MIG devices of one GPU now, in the driver's order; none where MIG is off or does not exist."""

    instances: tuple[MigInstanceReading, ...]


class MigReader:
    """Reads MIG devices; keeps the last GPM sample of each GPU instance from round to round."""

    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._access = GpmAccess(retry_seconds)
        self._metrics = GpmMetrics(nvml_gpm.SM_ACTIVE, nvml_gpm.TENSOR_ACTIVE, nvml_gpm.DRAM_ACTIVE)
        self._meters: dict[_Occupants, GpmMeter] = {}
        self._device: Device | None = None

    def read(self, gpu: GpuRound) -> MigReading:
        """MIG devices now, found anew each time (nvmlDeviceGetMigMode, …MaxMigDeviceCount, …MigDeviceHandleByIndex)."""
        if gpu.inquiry.device is not self._device:
            self._keep_meters({})
            self._device = gpu.inquiry.device
        try:
            instances = _enumerate(gpu.inquiry)
            # Last: on some drivers sampling an instance was seen to spoil the memory questions after it.
            active = self._activity(gpu, instances)
        except (GpuUnavailable, DriverUnavailable):
            self._keep_meters({})
            raise
        return MigReading(tuple(_with_activity(i, active.get(i.gpu_instance, {})) for i in instances))

    def _activity(
        self, gpu: GpuRound, instances: tuple[MigInstanceReading, ...]
    ) -> Mapping[int | None, Mapping[int, float]]:
        """Ratios by metric id, by GPU instance (nvmlGpmMigSampleGet)."""
        occupants = _occupants(instances)
        self._keep_meters(occupants if instances and self._access.granted(gpu) else {})
        ratios: dict[int | None, Mapping[int, float]] = {}
        for key, meter in self._meters.items():
            before = len(gpu.inquiry.failures)
            ratios[occupants[key]] = meter.read(gpu)
            if self._access.lost(gpu, gpu.inquiry.failures[before:]):
                self._keep_meters({})
                return {}
        return ratios

    def _keep_meters(self, occupants: Mapping[_Occupants, int]) -> None:
        """Have a meter for each of these GPU instances and no other; one that was made anew starts anew."""
        for gone in self._meters.keys() - occupants.keys():
            self._meters.pop(gone).close()
        for key, instance in occupants.items():
            if key not in self._meters:
                self._meters[key] = GpmMeter(self._metrics, self._max_gap_seconds, instance)


_Occupants = tuple[int, frozenset[tuple[str, str]]]
"""A GPU instance and what is on it, UUIDs and profiles: the id alone may be another instance's by the next round."""


def _occupants(instances: tuple[MigInstanceReading, ...]) -> dict[_Occupants, int]:
    by_instance: dict[int, set[tuple[str, str]]] = {}
    for instance in instances:
        if instance.gpu_instance is not None:
            by_instance.setdefault(instance.gpu_instance, set()).add((instance.uuid, instance.profile))
    return {(number, frozenset(devices)): number for number, devices in by_instance.items()}


def _with_activity(instance: MigInstanceReading, ratios: Mapping[int, float]) -> MigInstanceReading:
    return replace(
        instance,
        sm_active_ratio=ratios.get(nvml_gpm.SM_ACTIVE),
        tensor_active_ratio=ratios.get(nvml_gpm.TENSOR_ACTIVE),
        dram_active_ratio=ratios.get(nvml_gpm.DRAM_ACTIVE),
    )


def _enumerate(inquiry: Inquiry) -> tuple[MigInstanceReading, ...]:
    if not mig_mode(inquiry):
        return ()
    count = inquiry.within(inquiry.ask("nvmlDeviceGetMaxMigDeviceCount"), 0, MAX_MIG_DEVICES)
    instances: dict[str, MigInstanceReading] = {}
    for index in range(count or 0):
        handle = inquiry.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is not None and (instance := _read_instance(inquiry, handle)) is not None:
            instances.setdefault(instance.uuid, instance)
    return tuple(instances.values())


def _read_instance(gpu: Inquiry, handle: Any) -> MigInstanceReading | None:
    """What is behind a handle; None when it went away meanwhile: without its UUID nothing can be said of it."""
    # What one instance does not support says nothing of the GPU, nor of the next instance under the same handle.
    inquiry = Inquiry(replace(gpu.device, handle=handle, unsupported=set()))
    inquiry.failures = gpu.failures
    uuid = inquiry.ask("nvmlDeviceGetUUID")
    if not uuid:
        return None
    memory = inquiry.ask("nvmlDeviceGetMemoryInfo", MEMORY_V2) or inquiry.ask("nvmlDeviceGetMemoryInfo")
    total = inquiry.within(getattr(memory, "total", None), 0, _MOST_BYTES)
    return MigInstanceReading(
        uuid=uuid,
        gpu_instance=inquiry.ask("nvmlDeviceGetGpuInstanceId"),
        compute_instance=inquiry.ask("nvmlDeviceGetComputeInstanceId"),
        profile=_profile(gpu, inquiry),
        memory_used_bytes=inquiry.within(getattr(memory, "used", None), 0, _MOST_BYTES if total is None else total),
        memory_total_bytes=total,
    )


def _profile(gpu: Inquiry, instance: Inquiry) -> str:
    """The profile's name: the end of the device's own (nvmlDeviceGetName), else made of its sizes."""
    named = _PROFILE_IN_NAME.search(instance.ask("nvmlDeviceGetName") or "")
    if named:
        return named[1]
    attributes = instance.ask("nvmlDeviceGetAttributes_v2")
    memory = gpu.ask("nvmlDeviceGetMemoryInfo") if attributes else None
    return profile_name(attributes, memory.total) if memory else ""


def profile_name(attributes: Any, gpu_memory_bytes: int) -> str:
    """A profile as nvidia-smi names it, from nvmlDeviceAttributes_t and the memory of the whole GPU.

    The memory in a name is nominal: eighths of the GPU's, in whole GiB. An instance can use a little less.
    """
    slices, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    share = attributes.memorySizeMB * _MIB / gpu_memory_bytes if gpu_memory_bytes else 0
    eighths = math.floor(share * _MEMORY_EIGHTHS + 0.5)
    gib = math.floor(eighths * math.ceil(gpu_memory_bytes / _GIB) / _MEMORY_EIGHTHS + 0.5)
    part = f"{compute}c." if compute != slices else ""
    media = "+me" if attributes.sharedOfaCount and slices <= _MOST_MEDIA_SLICES else ""
    return f"{part}{slices}g.{gib}gb{media}"
