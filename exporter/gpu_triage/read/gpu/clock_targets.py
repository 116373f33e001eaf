"""Application clocks set by an administrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpu_triage.read.gpu.clocks import APPLICATION_CLOCKS, read_clock_table
from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

GPU_CLOCK_TARGET_HERTZ = gpu_gauge(
    "gpu_clock_target_hertz",
    "Application clock set by an administrator; below its default it caps every job. Absent on GeForce, and from "
    "driver 590 on, which no longer has application clocks.",
    labels={"clock": APPLICATION_CLOCKS},
    source="nvmlDeviceGetApplicationsClock",
)


@dataclass(frozen=True, slots=True)
class ClockTargetsReading:
    """Application clocks as set, or the defaults if never set; clocks not reported are missing."""

    hertz: Annotated[Mapping[str, float], GPU_CLOCK_TARGET_HERTZ]


def read_clock_targets(gpu: GpuRound) -> ClockTargetsReading:
    """Read the application clocks (nvmlDeviceGetApplicationsClock)."""
    table = read_clock_table(gpu.inquiry, "nvmlDeviceGetApplicationsClock", APPLICATION_CLOCKS, least_mhz=1)
    return ClockTargetsReading(table)


# Faster than the limits, which only change with a reboot or a new board: a low setting slows jobs immediately.
CLOCK_TARGETS = GpuCollector(
    "clock_targets", "application clocks as set", Tier.MEDIUM, lambda _config: read_clock_targets
)
