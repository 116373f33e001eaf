"""Whom a scenario gives its GPUs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Matching
from gpu_triage.simulator.schema import Count, Seconds


@dataclass(frozen=True, slots=True)
class Pod:
    """A container of a Kubernetes pod."""

    name: str
    namespace: str
    container: str


@dataclass(frozen=True, slots=True)
class Slurm:
    """A job of Slurm."""

    job: Annotated[str, Matching(r"[0-9]{1,10}", 'the number of a job, such as "4242"')]
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A GPU that is given to somebody, whether or not a process of theirs is on it.

    Attributes:
        pod: the container that the kubelet gave the GPU to.
        slurm: the job that Slurm's prolog wrote down.
        at, until: seconds of scenario time; for good where not given.
    """

    gpu: Count
    pod: Pod | None = None
    slurm: Slurm | None = None
    at: Seconds = 0
    until: Seconds | None = None

    def active(self, seconds: float) -> bool:
        """Whether it holds at this scenario time."""
        return self.at <= seconds and (self.until is None or seconds < self.until)
