"""MIG instances of a GPU: profile, memory and SM activity."""

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

from gpu_triage.driver.nvml import gpm as nvml_gpm
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.structs import MEMORY_V2
from gpu_triage.errors import DriverUnavailable, GpuUnavailable
from gpu_triage.read.gpu.activity import Gpm
from gpu_triage.read.gpu.modes import mig_mode
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rendering import Each, samples

MAX_MIG_DEVICES: Final = 64  # GPUs have at most 7 or 8; a higher count is treated as garbage
_MOST_BYTES: Final = 1 << 50
_PROFILE_IN_NAME: Final = re.compile(r" MIG ((?:\d+c\.)?\d+g\.\d+gb[\w.+-]*)$")

GPU_MIG_INFO = gpu_info(
    "A MIG device: its GPU instance, compute instance and profile, as in nvidia-smi; join on gpu, uuid and mig_uuid. "
    "Absent outside MIG mode.",
    labels=("mig_uuid", "gi", "ci", "profile"),
    source="nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetName",
)
_instance_gauge = partial(gpu_gauge, labels=("mig_uuid",))

GPU_MIG_MEMORY_USED_BYTES = _instance_gauge(
    "Allocated device memory of the GPU instance; the same for all its compute instances.",
    source="nvmlDeviceGetMemoryInfo_v2.used of the MIG device",
)
GPU_MIG_MEMORY_TOTAL_BYTES = _instance_gauge(
    "Device memory of the GPU instance.", source="nvmlDeviceGetMemoryInfo_v2.total of the MIG device"
)
GPU_MIG_SM_ACTIVE_RATIO = _instance_gauge(
    "Share of the GPU instance's SMs busy, averaged since the last round, 0-1; the same for all its compute instances. "
    "Hopper and later; absent in an instance's first round and without permission for GPM.",
    source="nvmlGpmMigSampleGet, GPM 2 (SM_UTIL)",
)
GPU_MIG_TENSOR_ACTIVE_RATIO = _instance_gauge(
    "Share of time in tensor operations of any kind in the GPU instance, averaged since the last round, 0-1. Absent "
    "when gpu_mig_sm_active_ratio is.",
    source="nvmlGpmMigSampleGet, GPM 5 (ANY_TENSOR_UTIL)",
)
GPU_MIG_DRAM_ACTIVE_RATIO = _instance_gauge(
    "Memory bandwidth of the GPU instance in use as a share of its maximum, averaged since the last round, 0-1. Absent "
    "when gpu_mig_sm_active_ratio is.",
    source="nvmlGpmMigSampleGet, GPM 10 (DRAM_BW_UTIL)",
)


@dataclass(frozen=True, slots=True)
class MigInstanceReading:
    """One MIG device: a compute instance on a GPU instance, with NVML's IDs. None where not reported.

    The profile is as in nvidia-smi (``1c.3g.40gb``), from the name; "" if the driver does not report it.
    """

    uuid: str
    gpu_instance: int | None
    compute_instance: int | None
    profile: str
    memory_used_bytes: Annotated[float | None, GPU_MIG_MEMORY_USED_BYTES]
    memory_total_bytes: Annotated[float | None, GPU_MIG_MEMORY_TOTAL_BYTES]
    sm_active_ratio: Annotated[float | None, GPU_MIG_SM_ACTIVE_RATIO] = None
    tensor_active_ratio: Annotated[float | None, GPU_MIG_TENSOR_ACTIVE_RATIO] = None
    dram_active_ratio: Annotated[float | None, GPU_MIG_DRAM_ACTIVE_RATIO] = None


@dataclass(frozen=True, slots=True)
class MigReading:
    """MIG devices of one GPU, in the driver's order; empty if MIG is off or unsupported."""

    instances: Annotated[tuple[MigInstanceReading, ...], Each("uuid")]


class MigReader:
    def __init__(self, max_gap_seconds: float, retry_seconds: float) -> None:
        metrics = (nvml_gpm.SM_ACTIVE, nvml_gpm.TENSOR_ACTIVE, nvml_gpm.DRAM_ACTIVE)
        self._gpm = Gpm(metrics, max_gap_seconds, retry_seconds)

    def read(self, gpu: GpuRound) -> MigReading:
        """Enumerate the MIG devices (nvmlDeviceGetMigMode, …MaxMigDeviceCount, …MigDeviceHandleByIndex)."""
        try:
            found = [_read_instance(each) for each in _instances(gpu.inquiry)]
        except (GpuUnavailable, DriverUnavailable):
            self._gpm.close()
            raise
        instances = tuple({each.uuid: each for each in found if each is not None}.values())
        # Last, because with some drivers sampling an instance made later memory queries fail.
        occupants = _occupants(instances)
        averages = self._gpm.read(gpu, occupants) or {}
        active = {occupants[key]: ratios for key, ratios in averages.items()}
        return MigReading(tuple(_with_activity(i, active.get(i.gpu_instance, {})) for i in instances))


def _occupants(instances: tuple[MigInstanceReading, ...]) -> dict[Hashable, int | None]:
    """GPU instances by their ID and devices (UUIDs, profiles): the ID alone may be another one's in the next round."""
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


def _instances(gpu: Inquiry) -> Iterator[Inquiry]:
    """Yield an inquiry for each MIG device, which records failures with those of the GPU; none if MIG is off."""
    count = gpu.within(gpu.ask("nvmlDeviceGetMaxMigDeviceCount"), 0, MAX_MIG_DEVICES) if mig_mode(gpu) else 0
    for index in range(count or 0):
        handle = gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is not None:
            # Unsupported calls are cached per instance, since another instance may support them.
            instance = Inquiry(replace(gpu.device, handle=handle, unsupported=set()), gpu.call)
            instance.failures = gpu.failures
            yield instance


def _read_instance(inquiry: Inquiry) -> MigInstanceReading | None:
    """Read one MIG device; None if it disappeared meanwhile, since it cannot be identified without its UUID."""
    uuid = inquiry.ask("nvmlDeviceGetUUID")
    if not uuid:
        return None
    named = _PROFILE_IN_NAME.search(inquiry.ask("nvmlDeviceGetName") or "")
    memory = inquiry.ask("nvmlDeviceGetMemoryInfo", MEMORY_V2) or inquiry.ask("nvmlDeviceGetMemoryInfo")
    total = inquiry.within(getattr(memory, "total", None), 0, _MOST_BYTES)
    return MigInstanceReading(
        uuid=uuid,
        gpu_instance=inquiry.ask("nvmlDeviceGetGpuInstanceId"),
        compute_instance=inquiry.ask("nvmlDeviceGetComputeInstanceId"),
        profile=named[1] if named else "",
        memory_used_bytes=inquiry.within(getattr(memory, "used", None), 0, _MOST_BYTES if total is None else total),
        memory_total_bytes=total,
    )


def read_mig_uuids(inquiry: Inquiry) -> Mapping[tuple[int, int], str]:
    """UUIDs (``MIG-…``) of a GPU's MIG devices by (GPU instance ID, compute instance ID); empty without MIG."""
    found: dict[tuple[int, int], str] = {}
    for instance in _instances(inquiry):
        uuid = instance.ask("nvmlDeviceGetUUID")
        gpu_id, compute_id = instance.ask("nvmlDeviceGetGpuInstanceId"), instance.ask("nvmlDeviceGetComputeInstanceId")
        if uuid is not None and gpu_id is not None and compute_id is not None:
            found[gpu_id, compute_id] = uuid
    return found


def render(reading: MigReading, gpu: GpuLabels) -> Iterator[Sample]:
    for each in reading.instances:
        ids = ("" if number is None else str(number) for number in (each.gpu_instance, each.compute_instance))
        yield GPU_MIG_INFO.sample(1, *gpu, each.uuid, *ids, each.profile)
    yield from samples(reading, gpu)


MIG = GpuCollector(
    about="MIG instances: memory and activity",
    tier=Tier.MEDIUM,
    reader=lambda config: MigReader(config.stale_after * config.sample_medium_seconds, config.sample_slow_seconds).read,
    render=render,
)
