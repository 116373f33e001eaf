"""GPUs that a scenario allocates to pods or Slurm jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Pattern
from gpu_triage_simulator.schema import Count, Seconds


@dataclass(frozen=True, slots=True)
class Pod:
    """A container of a Kubernetes pod."""

    name: str
    namespace: str
    container: str


@dataclass(frozen=True, slots=True)
class Slurm:
    """A Slurm job."""

    job: Annotated[str, Pattern(r"[0-9]{1,10}", 'the number of a job, such as "4242"')]
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A GPU allocated to a pod or job, whether or not it runs a process on the GPU.

    Attributes:
        pod: the container that the kubelet assigned the GPU to.
        slurm: the job recorded by the Slurm prolog.
        at, until: seconds of scenario time; without `until`, it never ends.
    """

    gpu: Count
    pod: Pod | None = None
    slurm: Slurm | None = None
    at: Seconds = 0
    until: Seconds | None = None

    def active(self, seconds: float) -> bool:
        """Whether it is in effect at this scenario time."""
        return self.at <= seconds and (self.until is None or seconds < self.until)
