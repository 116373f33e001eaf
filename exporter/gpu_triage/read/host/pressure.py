"""Pressure stall information: time that tasks of the host spent waiting for CPU, I/O or memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.driver.kernel.procfs import KINDS, RESOURCES, parse_pressure
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier, host_counter
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rounds import HostRound

GPU_HOST_PRESSURE_SECONDS_TOTAL = host_counter(
    "gpu_host_pressure_seconds_total",
    "Time since boot for which at least one (some) or all (full) active tasks waited for the resource; absent on "
    "kernels without PSI. CPU has no full.",
    labels={"resource": RESOURCES, "kind": KINDS},
    source="/proc/pressure/{cpu,io,memory} total",
)


@dataclass(frozen=True, slots=True)
class HostPressureReading:
    cpu: Annotated[Mapping[str, float] | None, GPU_HOST_PRESSURE_SECONDS_TOTAL, "cpu"]
    io: Annotated[Mapping[str, float] | None, GPU_HOST_PRESSURE_SECONDS_TOTAL, "io"]
    memory: Annotated[Mapping[str, float] | None, GPU_HOST_PRESSURE_SECONDS_TOTAL, "memory"]


class HostPressureReader:
    def __init__(self) -> None:
        self._counters: MonotoneCounters[str] = MonotoneCounters()

    def read(self, round_: HostRound) -> HostPressureReading:
        """Read stall times by resource; all None on a kernel without PSI."""
        procfs = round_.machine.procfs
        inquiry = HostInquiry(round_.failures, procfs)
        readings = {resource: inquiry.parse(procfs / "pressure" / resource, parse_pressure) for resource in RESOURCES}
        inquiry.finish()
        if readings["cpu"]:
            # Since 5.13 the kernel also prints "full" for the host's CPUs, always 0 and documented as undefined.
            readings["cpu"] = {kind: seconds for kind, seconds in readings["cpu"].items() if kind == "some"}
        published = self._counters.published_seconds
        return HostPressureReading(**{resource: published(resource, each) for resource, each in readings.items()})


HOST_PRESSURE = HostCollector(
    "host_pressure", "pressure stall information", Tier.MEDIUM, lambda _config: HostPressureReader().read
)
