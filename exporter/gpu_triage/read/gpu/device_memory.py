"""Device memory and the BAR1 aperture: size and usage."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.structs import MEMORY_V2
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound
from gpu_triage.read.metrics.metric import Tier, gpu_gauge

_MOST_BYTES: Final = 1 << 50

GPU_MEMORY_TOTAL_BYTES = gpu_gauge("Installed device memory.", source="nvmlDeviceGetMemoryInfo_v2.total")
GPU_MEMORY_USED_BYTES = gpu_gauge(
    "Allocated device memory, without what the driver reserves; see gpu_memory_os_managed.",
    source="nvmlDeviceGetMemoryInfo_v2.used",
)
GPU_MEMORY_FREE_BYTES = gpu_gauge("Unallocated device memory.", source="nvmlDeviceGetMemoryInfo_v2.free")
GPU_MEMORY_RESERVED_BYTES = gpu_gauge(
    "Device memory reserved by the driver; absent before driver r510.", source="nvmlDeviceGetMemoryInfo_v2.reserved"
)
GPU_BAR1_MEMORY_TOTAL_BYTES = gpu_gauge("BAR1 aperture size.", source="nvmlDeviceGetBAR1MemoryInfo.bar1Total")
GPU_BAR1_MEMORY_USED_BYTES = gpu_gauge("BAR1 aperture mapped.", source="nvmlDeviceGetBAR1MemoryInfo.bar1Used")


@dataclass(frozen=True, slots=True)
class DeviceMemoryReading:
    total_bytes: Annotated[float | None, GPU_MEMORY_TOTAL_BYTES]
    used_bytes: Annotated[float | None, GPU_MEMORY_USED_BYTES]
    free_bytes: Annotated[float | None, GPU_MEMORY_FREE_BYTES]
    reserved_bytes: Annotated[float | None, GPU_MEMORY_RESERVED_BYTES]
    bar1_total_bytes: Annotated[float | None, GPU_BAR1_MEMORY_TOTAL_BYTES]
    bar1_used_bytes: Annotated[float | None, GPU_BAR1_MEMORY_USED_BYTES]


def read_device_memory(gpu: GpuRound) -> DeviceMemoryReading:
    inquiry = gpu.inquiry
    memory = inquiry.ask("nvmlDeviceGetMemoryInfo", MEMORY_V2) or inquiry.ask("nvmlDeviceGetMemoryInfo")
    bar1 = inquiry.ask("nvmlDeviceGetBAR1MemoryInfo")
    total, bar1_total = _bytes(inquiry, memory, "total"), _bytes(inquiry, bar1, "bar1Total")
    return DeviceMemoryReading(
        total_bytes=total,
        used_bytes=_bytes(inquiry, memory, "used", total),
        free_bytes=_bytes(inquiry, memory, "free", total),
        reserved_bytes=_bytes(inquiry, memory, "reserved", total),
        bar1_total_bytes=bar1_total,
        bar1_used_bytes=_bytes(inquiry, bar1, "bar1Used", bar1_total),
    )


def _bytes(inquiry: Inquiry, answer: Any, member: str, most: float | None = None) -> float | None:
    return inquiry.within(getattr(answer, member, None), 0, _MOST_BYTES if most is None else most)


MEMORY = GpuCollector("device memory and BAR1", Tier.MEDIUM, lambda _config: read_device_memory)
