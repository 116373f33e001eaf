"""Device memory and the BAR1 aperture: what is there, what is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gpu_triage.hardware.nvml_inquiry import Inquiry
from gpu_triage.hardware.nvml_structs import MEMORY_V2
from gpu_triage.hardware.rounds import GpuRound

_MOST_BYTES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class DeviceMemoryReading:
    """Bytes of device memory and of BAR1; None where not reported.

    Attributes:
        total_bytes: installed.
        used_bytes: allocated; without what the driver reserves, where it tells that apart.
        free_bytes: not allocated.
        reserved_bytes: kept by the driver.
        bar1_total_bytes: aperture size.
        bar1_used_bytes: aperture mapped.
    """

    total_bytes: float | None
    used_bytes: float | None
    free_bytes: float | None
    reserved_bytes: float | None
    bar1_total_bytes: float | None
    bar1_used_bytes: float | None


def read_device_memory(gpu: GpuRound) -> DeviceMemoryReading:
    """Memory now (nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo; nvmlDeviceGetBAR1MemoryInfo)."""
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
