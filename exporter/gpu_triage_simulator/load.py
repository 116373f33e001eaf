"""Workload on a simulated GPU."""

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Range
from gpu_triage_simulator.schema import Amount, Ratio

Intensity = Annotated[float, Range(0.0, 5.0)]
BurstPeriod = Annotated[float, Range(2.0, 3600.0)]


@dataclass(frozen=True, slots=True)
class Load:
    """Workload on a GPU; in an effect, only the given fields change."""

    utilization: Ratio | None = None  # share of time with a kernel running
    memory_utilization: Ratio | None = None  # share of time device memory is read or written
    # dynamic power at full utilization and clocks, as a multiple of the default limit minus idle power
    intensity: Intensity | None = None
    # whether the kernels wait in a collective: few SMs are busy, and there is no NVLink traffic
    spinning: bool | None = None
    jitter: Ratio | None = None  # noise of the utilization, as a share of its value
    pcie_receive_bytes_per_second: Amount | None = None  # host to GPU
    pcie_transmit_bytes_per_second: Amount | None = None  # GPU to host
    # encoder, decoder: utilization of the video engines, which keep the clocks up even without a kernel
    encoder: Ratio | None = None
    decoder: Ratio | None = None
    video_jitter: Ratio | None = None  # noise of those two, as a share of their values
    # power while no kernel runs on a GPU that a process keeps awake, with its clocks up; without it, the GPU goes idle
    # and draws the model's idle power
    resting_watts: Amount | None = None
    # the load comes in bursts, one per period, at the same time on all GPUs, like the ranks of one job; clocks stay up
    # between bursts
    burst_period_seconds: BurstPeriod | None = None
    burst_duty: Ratio | None = None  # share of the period that a burst takes; 1 turns bursts off
    # GPM only. tensor: share of the time in which the tensor cores are active while all SMs are busy; bandwidth: share
    # of the memory bandwidth in use while memory is read or written
    tensor: Ratio | None = None
    bandwidth: Ratio | None = None

    def pauses(self, step: int) -> bool:
        """Whether this second of scenario time is between two bursts."""
        if self.burst_period_seconds is None or self.burst_duty is None:
            return False
        return step % self.burst_period_seconds >= self.burst_duty * self.burst_period_seconds
