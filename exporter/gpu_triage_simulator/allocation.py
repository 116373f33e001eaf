"""GPUs that a scenario allocates to pods or Slurm jobs."""

from dataclasses import dataclass
from typing import Annotated

from gpu_triage.documents import Pattern
from gpu_triage_simulator.schema import Count, Seconds


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    namespace: str
    container: str


@dataclass(frozen=True, slots=True)
class Slurm:
    job: Annotated[str, Pattern(r"[0-9]{1,10}", 'the number of a job, such as "4242"')]
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A GPU allocated to a pod or job, whether or not it runs a process on it; without `until`, it never ends."""

    gpu: Count
    pod: Pod | None = None
    slurm: Slurm | None = None
    at: Seconds = 0
    until: Seconds | None = None

    def active(self, seconds: float) -> bool:
        return self.at <= seconds and (self.until is None or seconds < self.until)
