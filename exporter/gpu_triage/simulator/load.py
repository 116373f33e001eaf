"""What the jobs ask of a simulated GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Between
from gpu_triage.simulator.schema import Amount, Ratio

Intensity = Annotated[float, Between(0.0, 5.0)]
BurstPeriod = Annotated[float, Between(2.0, 3600.0)]


@dataclass(frozen=True, slots=True)
class Load:
    """What the jobs ask of a GPU; in an effect, only what is given changes.

    Attributes:
        utilization: share of time with a kernel running.
        memory_utilization: share of time device memory is read or written.
        intensity: dynamic power at full utilisation and clocks, a multiple of what the default limit leaves above idle.
        spinning: whether the kernels wait in a collective: few SMs are at work, and nothing goes over NVLink.
        jitter: how far utilisation wanders, as a share of itself.
        pcie_receive_bytes_per_second: host to GPU.
        pcie_transmit_bytes_per_second: GPU to host.
        encoder, decoder: utilisation of the video engines, which keep the clocks up without any kernel.
        video_jitter: how far those two wander, as a share of themselves.
        resting_watts: power while no kernel runs, of a GPU that a process keeps awake, with its clocks up; where not
            given, it falls asleep and draws the model's power at idle.
        burst_period_seconds: the load comes in bursts, one a period, at the same time on all GPUs, as the ranks of one
            job have them; between two the clocks stay up.
        burst_duty: share of the period that a burst takes; 1 makes an end of the bursts.
    """

    utilization: Ratio | None = None
    memory_utilization: Ratio | None = None
    intensity: Intensity | None = None
    spinning: bool | None = None
    jitter: Ratio | None = None
    pcie_receive_bytes_per_second: Amount | None = None
    pcie_transmit_bytes_per_second: Amount | None = None
    encoder: Ratio | None = None
    decoder: Ratio | None = None
    video_jitter: Ratio | None = None
    resting_watts: Amount | None = None
    burst_period_seconds: BurstPeriod | None = None
    burst_duty: Ratio | None = None

    def pauses(self, step: int) -> bool:
        """Whether this second of scenario time lies between two bursts."""
        if self.burst_period_seconds is None or self.burst_duty is None:
            return False
        return step % self.burst_period_seconds >= self.burst_duty * self.burst_period_seconds
